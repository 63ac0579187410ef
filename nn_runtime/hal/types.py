# SPDX-License-Identifier: Apache-2.0
"""Values that cross the HAL: models, requests, capabilities, results. All frozen and picklable.

Source: SURFACE sections (b) to (g), after the HAL definitions 1.0 to 1.3. Times are nanoseconds here; the adapters of
the older versions convert. A method of the HAL that fails raises `HalError`.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING

from nn_runtime.codes import ResultCode
from nn_runtime.errors import BadData
from nn_runtime.numeric import float32
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.operand import Array, ChannelQuant, Dimensions

UNKNOWN_DURATION = 2**64 - 1
DEFAULT_LOOP_TIMEOUT_NS = 2_000_000_000
MAXIMUM_LOOP_TIMEOUT_NS = 15_000_000_000
CACHE_TOKEN_BYTES = 32
MAXIMUM_CACHE_FILES = 32
MAX_EXTENSION_PREFIX = 2**16 - 1
INLINE_CONSTANT_BYTES = 128
"""Constants up to this size are copied into a model's `operand_values`; larger ones live in a pool."""


_EXTENSION_NAME = re.compile(r"[a-z0-9._]+")


class ErrorStatus(IntEnum):
    """Why a HAL call failed. DEAD_OBJECT is canonical only (the service behind a driver died)."""

    NONE = 0
    DEVICE_UNAVAILABLE = 1
    GENERAL_FAILURE = 2
    OUTPUT_INSUFFICIENT_SIZE = 3
    INVALID_ARGUMENT = 4
    MISSED_DEADLINE_TRANSIENT = 5
    MISSED_DEADLINE_PERSISTENT = 6
    RESOURCE_EXHAUSTED_TRANSIENT = 7
    RESOURCE_EXHAUSTED_PERSISTENT = 8
    DEAD_OBJECT = 9


RESULT_OF_STATUS: dict[ErrorStatus, ResultCode] = {
    ErrorStatus.NONE: ResultCode.NO_ERROR,
    ErrorStatus.DEVICE_UNAVAILABLE: ResultCode.UNAVAILABLE_DEVICE,
    ErrorStatus.GENERAL_FAILURE: ResultCode.OP_FAILED,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE: ResultCode.OUTPUT_INSUFFICIENT_SIZE,
    ErrorStatus.INVALID_ARGUMENT: ResultCode.BAD_DATA,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: ResultCode.MISSED_DEADLINE_TRANSIENT,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: ResultCode.MISSED_DEADLINE_PERSISTENT,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: ResultCode.RESOURCE_EXHAUSTED_TRANSIENT,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: ResultCode.RESOURCE_EXHAUSTED_PERSISTENT,
    ErrorStatus.DEAD_OBJECT: ResultCode.DEAD_OBJECT,
}

STATUS_OF_RESULT: dict[ResultCode, ErrorStatus] = {
    **{code: ErrorStatus.GENERAL_FAILURE for code in ResultCode},
    **{code: status for status, code in RESULT_OF_STATUS.items()},
    ResultCode.UNEXPECTED_NULL: ErrorStatus.INVALID_ARGUMENT,
    ResultCode.DEAD_OBJECT: ErrorStatus.GENERAL_FAILURE,
}
"""The way back, for results that cross the HAL (asynchronous and fenced executions)."""


@dataclass(frozen=True)
class OutputShape:
    """Dimensions of one output after an execution; a size is 0 where not known (or truly 0 on success)."""

    dimensions: Dimensions
    is_sufficient: bool = True


class HalError(Exception):
    """A HAL method failed: `status` and a message; `output_shapes` goes with OUTPUT_INSUFFICIENT_SIZE."""

    def __init__(self, status: ErrorStatus, message: str, output_shapes: tuple[OutputShape, ...] = ()) -> None:
        """Keep status, message and shapes."""
        super().__init__(status, message, output_shapes)
        self.status = status
        self.message = message
        self.output_shapes = output_shapes

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.message)


class OperandLifeTime(IntEnum):
    """Where an operand's data comes from. POINTER never crosses a process boundary."""

    TEMPORARY_VARIABLE = 0
    SUBGRAPH_INPUT = 1
    SUBGRAPH_OUTPUT = 2
    CONSTANT_COPY = 3
    CONSTANT_REFERENCE = 4
    NO_VALUE = 5
    SUBGRAPH = 6
    POINTER = 7


CONSTANT_LIFETIMES = frozenset(
    {OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_REFERENCE, OperandLifeTime.POINTER}
)
WRITTEN_LIFETIMES = frozenset({OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT})
"""Of what operations write, each operand once."""


@dataclass(frozen=True)
class DataLocation:
    """Where bytes lie: `offset` and `length` in pool `pool_index`, or `pointer` (in process only).

    `pointer` is a C-contiguous array: the constant itself, or the user's buffer of a request argument.
    For a SUBGRAPH operand `offset` is the index of the referenced model.
    """

    pool_index: int = 0
    offset: int = 0
    length: int = 0
    padding: int = 0
    pointer: Array | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Operand:
    """An operand of a subgraph. `dimensions`: () for a scalar or unknown rank, 0 for a size not known."""

    type: int
    dimensions: Dimensions = ()
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()
    channel_quant: ChannelQuant | None = None
    extension_data: bytes | None = None

    def __post_init__(self) -> None:
        """Keep the scale as an exact float32 value, which is all that a HAL can carry; raises BadData."""
        object.__setattr__(self, "scale", float32("operand: scale", self.scale))


@dataclass(frozen=True)
class Operation:
    """An operation: code and operand indices of its subgraph."""

    type: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Subgraph:
    """Operands, operations in run order, and the indices of the operands at the boundary."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A model as a driver gets it: `main`, the models it refers to, constants, pools."""

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[SharedMemory, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BufferToken:
    """A driver-managed buffer as a pool of a request (IDevice.allocate)."""

    value: int


@dataclass(frozen=True)
class RequestArgument:
    """One input or output of a request. `dimensions` () means: as the model says."""

    has_no_value: bool = False
    location: DataLocation = DataLocation()
    dimensions: Dimensions = ()


@dataclass(frozen=True)
class Request:
    """Arguments of one execution, in the order of the model's inputs and outputs, and their pools."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[SharedMemory | BufferToken, ...] = ()


class ExecutionPreference(IntEnum):
    """What a prepared model is optimised for."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2


class Priority(IntEnum):
    """Relative priority among the prepared models of one client."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


class DeviceStatus(IntEnum):
    """Whether a device can take work."""

    AVAILABLE = 0
    BUSY = 1
    OFFLINE = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Timing:
    """Durations of one execution in ns; UNKNOWN_DURATION where not measured or not known."""

    time_on_device_ns: int = UNKNOWN_DURATION
    time_in_driver_ns: int = UNKNOWN_DURATION


@dataclass(frozen=True)
class ExecutionResult:
    """What a successful execution reports: shapes (empty if all were fully specified) and timing."""

    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


@dataclass(frozen=True)
class PerformanceInfo:
    """Cost relative to the CPU, lower is better; no unit."""

    exec_time: float
    power_usage: float


@dataclass(frozen=True)
class Capabilities:
    """What a device claims of its performance, by operand type and for the special cases."""

    operand_performance: Mapping[int, PerformanceInfo]
    relaxed_float32_to_float16_scalar: PerformanceInfo
    relaxed_float32_to_float16_tensor: PerformanceInfo
    if_performance: PerformanceInfo
    while_performance: PerformanceInfo


def check_extension_name(name: str) -> None:
    """Check the name of a vendor extension; raises BadData."""
    if not _EXTENSION_NAME.fullmatch(name) or "." not in name:
        raise BadData(f"extension name {name!r}: wanted lower-case letters, digits, '_' and at least one '.'")


@dataclass(frozen=True)
class Extension:
    """A vendor extension: its name and operand types as {type: (is_tensor, byte size)}."""

    name: str
    operand_types: Mapping[int, tuple[bool, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class BufferDesc:
    """Dimensions wanted of a driver-managed buffer; () means: as the roles say."""

    dimensions: Dimensions = ()


@dataclass(frozen=True)
class BufferRole:
    """Use of a buffer: argument `io_index` of prepared model `model_index`, how often (0 to 1]."""

    model_index: int
    io_index: int
    frequency: float

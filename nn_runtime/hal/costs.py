# SPDX-License-Identifier: Apache-2.0
"""What running costs on a device, as a table, and estimates made of it. Times are ns.

A driver ships a table for each class of its devices; `nnrt doctor --measure` stores a measured one, which counts for
the same device, driver version and processor. The same table always gives the same estimates.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from nn_runtime.codes import CONTROL_FLOW, OperandCode, OperationCode
from nn_runtime.hal.cache_folder import cache_directory
from nn_runtime.hal.files import read_file, write_file
from nn_runtime.hal.references import innermost_first, referenced_by
from nn_runtime.hal.types import CONSTANT_LIFETIMES, OperandLifeTime
from nn_runtime.operand import dtype_of, element_count, is_tensor
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.types import Model, Operand, Operation, Subgraph
    from nn_runtime.operand import Dimensions

LOOP_GUESS = 8
"""Times that a WHILE is taken to go round."""
UNKNOWN_SIZE = 16
"""Elements along a dimension that nothing tells."""
LONGEST_NS = 1e18
"""No nest of loops is estimated to take longer: thirty years."""

_TAKING = frozenset(
    {OperationCode.SLICE, OperationCode.STRIDED_SLICE, OperationCode.GATHER, OperationCode.EMBEDDING_LOOKUP}
)
"""They read no more of their input than becomes output."""
_FILTER = {
    OperationCode.CONV_2D: 1,
    OperationCode.GROUPED_CONV_2D: 1,
    OperationCode.DEPTHWISE_CONV_2D: 1,
    OperationCode.TRANSPOSE_CONV_2D: 1,
    OperationCode.FULLY_CONNECTED: 1,
}
"""Operations that multiply every output by a filter, and which input that is."""

_RECURRENT = frozenset(
    {
        OperationCode.LSTM,
        OperationCode.QUANTIZED_LSTM,
        OperationCode.QUANTIZED_16BIT_LSTM,
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
        OperationCode.RNN,
        OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN,
        OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
        OperationCode.SVDF,
    }
)
"""Operations that multiply by all their matrices at every step."""

_TYPE_CLASSES = {
    OperandCode.TENSOR_FLOAT32: "float32",
    OperandCode.TENSOR_FLOAT16: "float16",
    OperandCode.TENSOR_QUANT8_ASYMM: "quant8",
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: "quant8",
    OperandCode.TENSOR_QUANT8_SYMM: "quant8",
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: "quant8",
}
OTHER_TYPES = "other"
ANY_OPERATION = "*"
"""Row for operations that a table does not list."""


@dataclass(frozen=True)
class Work:
    """Size of one operation: steps in time (1 but for sequences), elements read or written, multiply-adds."""

    steps: int
    elements: int
    multiply_adds: int


@dataclass(frozen=True)
class OperationCost:
    """Cost of a kind of operation: at each step, by element, by multiply-add.

    `dynamic_ns`: at each step where sizes are known at run time only.
    """

    fixed_ns: float
    dynamic_ns: float
    element_ns: float = 0.0
    multiply_add_ns: float = 0.0

    def of(self, work: Work, dynamic: bool) -> float:
        """Return the estimate for one operation."""
        fixed = self.dynamic_ns if dynamic else self.fixed_ns
        return fixed * work.steps + self.element_ns * work.elements + self.multiply_add_ns * work.multiply_adds

    def scaled(self, factors: CostFactors) -> OperationCost:
        """Return the costs on a device that is faster or slower."""
        return OperationCost(
            round(self.fixed_ns * factors.fixed),
            round(self.dynamic_ns * factors.dynamic),
            rounded(self.element_ns * factors.work),
            rounded(self.multiply_add_ns * factors.product),
        )


@dataclass(frozen=True)
class CostFactors:
    """How many times as much things cost on another device.

    A run, its arguments, their bytes, an operation (of sizes known beforehand, or at run time), the elements it works
    on, its multiply-adds.
    """

    run: float = 1.0
    argument: float = 1.0
    byte: float = 1.0
    fixed: float = 1.0
    dynamic: float = 1.0
    work: float = 1.0
    product: float = 1.0


@dataclass(frozen=True)
class CostTable:
    """All that is known of a device's costs.

    `run_ns`: a run of nothing, call and wait. `input_ns`, `scalar_ns`, `output_ns`: each tensor or scalar that goes in,
    each output. `byte_ns`: of their bytes. `operations`: by name of the operation (or ANY_OPERATION), then by class of
    its data type. `source`: where the figures come from, for people.
    """

    run_ns: float
    input_ns: float
    scalar_ns: float
    output_ns: float
    byte_ns: float
    operations: Mapping[str, Mapping[str, OperationCost]]
    source: str = field(default="", compare=False)

    def row_of(self, code: int, data_type: int) -> tuple[str, str]:
        """Return the name and class of the row of an operation: of its data type, else the dearest of another type."""
        name = OperationCode(code).name if code in OperationCode.__members__.values() else ANY_OPERATION
        name = name if name in self.operations else ANY_OPERATION
        rows = self.operations[name]
        kind = type_class(data_type)
        return name, kind if kind in rows else max(rows, key=lambda other: rows[other].fixed_ns)

    def cost_of(self, code: int, data_type: int) -> OperationCost:
        """Return the row of an operation."""
        name, kind = self.row_of(code, data_type)
        return self.operations[name][kind]

    def step_ns(self, graph: Subgraph, inputs: Sequence[int], outputs: Sequence[int]) -> float:
        """Return what a run with these operands as arguments costs above its operations."""
        tensors = sum(is_tensor(graph.operands[i].type) for i in inputs)
        size_bytes = sum(_transfer_bytes(graph.operands[i]) for i in (*inputs, *outputs))
        return (
            self.run_ns
            + tensors * self.input_ns
            + (len(inputs) - tensors) * self.scalar_ns
            + len(outputs) * self.output_ns
            + size_bytes * self.byte_ns
        )

    def run_ns_of(self, model: Model) -> float:
        """Return what a run of a whole model costs above its operations."""
        return self.step_ns(model.main, model.main.input_indexes, model.main.output_indexes)

    def scaled(self, source: str, factors: CostFactors) -> CostTable:
        """Return the table of a device that is faster or slower."""
        rows = {
            name: {kind: row.scaled(factors) for kind, row in kinds.items()} for name, kinds in self.operations.items()
        }
        return CostTable(
            round(self.run_ns * factors.run),
            round(self.input_ns * factors.argument),
            round(self.scalar_ns * factors.argument),
            round(self.output_ns * factors.argument),
            rounded(self.byte_ns * factors.byte),
            rows,
            source,
        )

    def to_json(self) -> dict[str, object]:
        """Return the table as plain dicts; a row is a list in the order of OperationCost's fields."""
        document = {key: value for key, value in asdict(self).items() if key != "operations"}
        document["operations"] = {
            name: {kind: list(asdict(row).values()) for kind, row in sorted(rows.items())}
            for name, rows in sorted(self.operations.items())
        }
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> CostTable:
        """Return the table that `to_json` made; raises ValueError for anything else."""
        try:
            rows = {
                str(name): {str(kind): OperationCost(*map(_figure, row)) for kind, row in kinds.items()}
                for name, kinds in document["operations"].items()  # type: ignore[attr-defined]
            }
            figures = [_figure(document[key]) for key in ("run_ns", "input_ns", "scalar_ns", "output_ns", "byte_ns")]
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"no table of costs: {error}") from error
        if not rows.get(ANY_OPERATION) or not all(rows.values()):
            raise ValueError(f"no table of costs: an operation, or {ANY_OPERATION!r}, has no row")
        run, tensor, scalar, output, byte = figures
        return cls(run, tensor, scalar, output, byte, rows, str(document.get("source", "")))


@runtime_checkable
class HasCosts(Protocol):
    """Optional: a device that tells its table of costs, for placement and for `nnrt doctor --measure`."""

    def cost_table(self) -> CostTable:
        """Return the table in force: the measured one, else the shipped one."""


def type_class(data_type: int) -> str:
    """Return the class of a data type in a table."""
    return _TYPE_CLASSES.get(OperandCode(data_type), OTHER_TYPES) if data_type in _TYPE_CLASSES else OTHER_TYPES


def operation_estimates(model: Model, table: CostTable) -> list[float]:
    """Return the estimate of every operation of the main subgraph."""
    return _Estimator(model, table).operations(model.main)


def operation_work(code: int, dims: Sequence[Dimensions], outputs: Sequence[Dimensions]) -> Work:
    """Return the size of an operation with tensor inputs and outputs of known dimensions (() for scalars)."""
    sizes = outputs if code in _TAKING else (*dims, *outputs)
    elements = max((element_count(shape) for shape in sizes), default=1)
    if code in _FILTER:
        filter_dims = dims[_FILTER[OperationCode(code)]]
        if code == OperationCode.DEPTHWISE_CONV_2D:
            filter_dims = filter_dims[:-1]
        # A transposed convolution multiplies every input element by every filter element of its depth.
        image = dims[0] if code == OperationCode.TRANSPOSE_CONV_2D else outputs[0]
        inner = filter_dims[:-1] if code == OperationCode.TRANSPOSE_CONV_2D else filter_dims[1:]
        return Work(1, elements, element_count(image) * math.prod(inner))
    if code == OperationCode.BATCH_MATMUL:
        products = element_count(dims[0]) * element_count(dims[1]) * element_count(outputs[0])
        return Work(1, elements, math.isqrt(products // max(1, element_count(outputs[0][:-2]))))
    if code in _RECURRENT:
        data = dims[0]
        steps = _sequence_steps(code, data)
        rows = max(1, element_count(data[:-1]))
        weights = sum(element_count(shape) for shape in dims[1:] if len(shape) == 2)
        return Work(steps, elements, rows * weights)
    return Work(1, elements, 0)


def _sequence_steps(code: int, data: Dimensions) -> int:
    """Return the steps in time: the lesser of the first two sizes is often the batch, so the greater is taken."""
    sequence = OperationCode(code).name.endswith(("SEQUENCE_LSTM", "SEQUENCE_RNN"))
    return max(1, *data[:2]) if sequence and len(data) == 3 else 1


class _Estimator:
    """Estimates of the subgraphs of one model; sizes that the model does not tell are guessed."""

    def __init__(self, model: Model, table: CostTable) -> None:
        self._table = table
        self._referenced_ns: dict[int, float] = {}
        for number in innermost_first(model.main, model.referenced):
            self._referenced_ns[number] = sum(self.operations(model.referenced[number]))

    def operations(self, graph: Subgraph) -> list[float]:
        """Return the estimate of every operation of a graph, once those of all models that it refers to are known."""
        guessed: dict[int, Dimensions] = {}
        return [self._operation(graph, operation, guessed) for operation in graph.operations]

    def _operation(self, graph: Subgraph, operation: Operation, guessed: dict[int, Dimensions]) -> float:
        operands = graph.operands
        if operation.type in CONTROL_FLOW:
            return self._control_flow(graph, operation)
        used = [operands[i] for i in (*operation.inputs, *operation.outputs)]
        dynamic = any(_is_unknown(operand) for operand in used)
        dims = [_dimensions(operands[i], guessed.get(i)) for i in operation.inputs]
        largest = max(dims, key=element_count, default=())
        for i in operation.outputs:
            guessed[i] = _dimensions(operands[i], largest)
        work = operation_work(operation.type, dims or [()], [guessed[i] for i in operation.outputs])
        data_type = data_type_of(operation, operands)
        return self._table.cost_of(_kind_of(operation.type, dims), data_type).of(work, dynamic)

    def _control_flow(self, graph: Subgraph, operation: Operation) -> float:
        """Return the mean of an IF's branches, or LOOP_GUESS times a WHILE's models, each with a decision."""
        inner = [self._referenced_ns[number] for number in referenced_by(graph, operation)]
        decision = self._table.run_ns
        if operation.type == OperationCode.IF:
            return decision + sum(inner) / max(1, len(inner))
        return min(LONGEST_NS, LOOP_GUESS * (decision + sum(inner)))


def _kind_of(code: int, dims: Sequence[Dimensions]) -> int:
    """Return the operation whose row counts: a depthwise convolution with a multiplier is computed as a grouped one."""
    if code == OperationCode.DEPTHWISE_CONV_2D and len(dims[0]) == 4 and dims[1][-1] not in (dims[0][1], dims[0][3]):
        return OperationCode.GROUPED_CONV_2D
    return code


def data_type_of(operation: Operation, operands: Sequence[Operand]) -> int:
    """Return the type of the first tensor computed on, which for some operations is not the first input."""
    for i in operation.inputs:
        if operands[i].type != OperandCode.TENSOR_INT32 and is_tensor(operands[i].type):
            return operands[i].type
    return operands[operation.outputs[0]].type if operation.outputs else OperandCode.TENSOR_INT32


def _is_unknown(operand: Operand) -> bool:
    return (
        is_tensor(operand.type)
        and operand.lifetime not in (*CONSTANT_LIFETIMES, OperandLifeTime.NO_VALUE)
        and (not operand.dimensions or 0 in operand.dimensions)
    )


def _dimensions(operand: Operand, guess: Dimensions | None) -> Dimensions:
    """Return an operand's dimensions; unknown ones as in `guess` (as many elements in all), else UNKNOWN_SIZE each."""
    if not is_tensor(operand.type) or operand.lifetime == OperandLifeTime.NO_VALUE:
        return ()
    dims = operand.dimensions
    if dims and 0 not in dims:
        return dims
    if guess:
        return guess if len(guess) == len(dims) or not dims else (*[1] * (len(dims) - 1), element_count(guess))
    return tuple(size or UNKNOWN_SIZE for size in dims) or (UNKNOWN_SIZE,)


def rounded(value: float) -> float:
    """Return a value to four digits, for files that people read."""
    return float(f"{value:.4g}")


def _figure(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise TypeError(f"wanted a time in ns, got {value!r}")
    return float(value)


# Measured tables on disk


def measured_table(device: str, version: str) -> CostTable | None:
    """Return the table that was measured for this device, driver version and processor, or None."""
    try:
        document = json.loads(read_file(table_path(device)))
        if {key: document[key] for key in ("device", "version", "cpu")} != _identity(device, version):
            return None
        return CostTable.from_json(document["costs"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def store_table(device: str, version: str, table: CostTable) -> Path:
    """Store a measured table and return its file; raises OSError."""
    path = table_path(device)
    document = {**_identity(device, version), "costs": table.to_json()}
    write_file(path, json.dumps(document, indent=1).encode())
    return path


def table_path(device: str) -> Path:
    """Return the file of a device's measured table."""
    return cache_directory() / "costs" / f"{device}.json"


def _identity(device: str, version: str) -> dict[str, str]:
    return {"device": device, "version": version, "cpu": processor()}


@functools.cache
def processor() -> str:
    """Return the model name of this machine's processor and how many there are."""
    name = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            name = next((line.partition(":")[2].strip() for line in stream if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} processors"


def _transfer_bytes(operand: Operand) -> int:
    """Return the bytes of a model's input or output, unknown sizes guessed."""
    return element_count(_dimensions(operand, None)) * dtype_of(operand.type).itemsize

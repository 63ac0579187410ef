# SPDX-License-Identifier: Apache-2.0
"""A family of devices after Android's sample drivers, a quantised-only accelerator, and scripted fakes of any version.

All compute by the CPU driver; they differ in what they take and claim of their speed. `devices()` can be an
entry point of `nn_runtime.drivers`, or be hosted in another process (`nn_runtime.hal.remote.hosted`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperandCode, OperationCode, operand_type_name
from nn_runtime.hal.capabilities import uniform, updated
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.types import Capabilities, PerformanceInfo
from nn_runtime.hal.versions import adapt, serve
from nn_runtime.operand import is_tensor
from nn_runtime.testing.sample_drivers import SampleDevice, uniform_capabilities
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.hal.types import Model, Operation
    from nn_runtime.hal.versions.adapter import AdaptedDevice

FLOATS = frozenset({OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT32, OperandCode.FLOAT16})
QUANTIZED = frozenset(
    {
        OperandCode.TENSOR_QUANT8_ASYMM,
        OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
        OperandCode.TENSOR_QUANT8_SYMM,
        OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        OperandCode.TENSOR_QUANT16_ASYMM,
        OperandCode.TENSOR_QUANT16_SYMM,
    }
)
_QUANT8 = QUANTIZED - {OperandCode.TENSOR_QUANT16_ASYMM, OperandCode.TENSOR_QUANT16_SYMM}
_SMALL_ELEMENTS = 1024


class TypedDevice(SampleDevice):
    """A device that takes operations by the type of their first input, and only some codes."""

    def __init__(
        self,
        name: str,
        capabilities: Capabilities,
        types: Collection[int] | None = None,
        operations: Collection[int] | None = None,
        largest: int | None = None,
        kind: DeviceTypeCode = DeviceTypeCode.OTHER,
    ) -> None:
        """`types` of first inputs, `operations`: codes (None: any); `largest`: elements of any operand."""
        super().__init__(name, operations, capabilities)
        self._types = types
        self._largest = largest
        self._kind = kind

    def get_type(self) -> DeviceTypeCode:
        """Return the kind given."""
        return self._kind

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Refuse by type and size what is left of the list of operations."""
        answers = super().explain_operations(model)
        return [
            self._by_type(model, operation, answer)
            for operation, answer in zip(model.main.operations, answers, strict=True)
        ]

    def _by_type(self, model: Model, operation: Operation, answer: OperationSupport) -> OperationSupport:
        if not answer.supported:
            return answer
        operands = [model.main.operands[i] for i in (*operation.inputs, *operation.outputs)]
        if self._types is not None and operands[0].type not in self._types:
            return OperationSupport(False, f"it takes no {operand_type_name(operands[0].type)}")
        for operand in operands if self._largest is not None else ():
            count = 1
            for size in operand.dimensions:
                count *= size
            if count > (self._largest or 0):
                return OperationSupport(False, f"an operand has {count} elements, at most {self._largest} fit")
        return answer


class Accelerator(TypedDevice):
    """A device for 8-bit data alone, as digital signal processors are.

    Every tensor of an operation must be 8-bit, but for 32-bit biases, parameters, and the float side of QUANTIZE and
    DEQUANTIZE.
    """

    def _by_type(self, model: Model, operation: Operation, answer: OperationSupport) -> OperationSupport:
        if not answer.supported:
            return answer
        allowed = {*_QUANT8, OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8}
        if operation.type in (OperationCode.QUANTIZE, OperationCode.DEQUANTIZE):
            allowed |= FLOATS
        operands = [model.main.operands[i] for i in (*operation.inputs, *operation.outputs)]
        if not any(operand.type in _QUANT8 for operand in operands):
            return OperationSupport(False, "nothing of it is 8-bit")
        wrong = next((operand for operand in operands if is_tensor(operand.type) and operand.type not in allowed), None)
        if wrong is not None:
            return OperationSupport(False, f"it computes with 8-bit data alone, not {operand_type_name(wrong.type)}")
        return answer


def sample_all() -> SampleDevice:
    """Return a device for everything, a little worse than the CPU in all."""
    return TypedDevice("nnapi-sample_all", uniform_capabilities(1.1, 1.1))


def sample_float_fast() -> SampleDevice:
    """Return a device for float tensors: faster than the CPU, with more power."""
    return TypedDevice("nnapi-sample_float_fast", _table(FLOATS, 0.8, 1.2, 1.0, 1.0), FLOATS)


def sample_float_slow() -> SampleDevice:
    """Return a device for float tensors: slower than the CPU, with less power."""
    return TypedDevice("nnapi-sample_float_slow", _table(FLOATS, 1.3, 0.7, 1.0, 1.0), FLOATS)


def sample_float_xs() -> SampleDevice:
    """Return a device for small float tensors: the best in time and power, with little memory."""
    return TypedDevice("nnapi-sample_float_xs", _table(FLOATS, 0.4, 0.5, 1.0, 1.0), FLOATS, largest=_SMALL_ELEMENTS)


def sample_quant() -> SampleDevice:
    """Return a device for quantised tensors, slow for all else."""
    return TypedDevice("nnapi-sample_quant", _table(QUANTIZED, 0.4, 0.5, 50.0, 1.0), QUANTIZED)


def sample_minimal() -> SampleDevice:
    """Return a device for ADD, MUL and CONV_2D of float32 alone."""
    codes = (OperationCode.ADD, OperationCode.MUL, OperationCode.CONV_2D)
    types = (OperandCode.TENSOR_FLOAT32,)
    return TypedDevice("nnapi-sample_minimal", _table(types, 0.4, 0.5, 1.0, 1.0), types, codes)


def accelerator() -> SampleDevice:
    """Return an accelerator for 8-bit data: ten times the CPU's speed; float is declared as 30 times its time."""
    table = _table(_QUANT8, 0.1, 0.1, 30.0, 30.0)
    return Accelerator("nnapi-sample_dsp", table, kind=DeviceTypeCode.ACCELERATOR)


def family() -> list[SampleDevice]:
    """Return one device of each kind."""
    makers = (sample_all, sample_float_fast, sample_float_slow, sample_float_xs, sample_quant, sample_minimal)
    return [*(make() for make in makers), accelerator()]


def devices() -> list[IDevice]:
    """Return the family as a driver does."""
    return [*family()]


@dataclass(frozen=True)
class Fake:
    """A scripted device behind the interface of an older version.

    `device` is for the runtime, `sample` has script and record.
    """

    device: AdaptedDevice
    sample: SampleDevice


def fake(
    name: str,
    version: int = FeatureLevel.HAL_1_3,
    operations: Collection[int] | None = None,
    capabilities: Capabilities | None = None,
) -> Fake:
    """Return a fake of HAL 1.0 to 1.3 (a FeatureLevel): all that it hears goes through that version's interface."""
    sample = SampleDevice(name, operations, capabilities, feature_level=version)
    return Fake(adapt(serve(sample, version), name), sample)


def _table(
    codes: Iterable[int], exec_time: float, power_usage: float, other_time: float, other_power: float
) -> Capabilities:
    """Return figures for some types, and others for the rest; relaxed float32 is like float32."""
    info = PerformanceInfo(exec_time, power_usage)
    base = uniform(PerformanceInfo(other_time, other_power))
    table = updated(base, codes, info)
    relaxed = table.operand_performance[OperandCode.TENSOR_FLOAT32]
    return Capabilities(table.operand_performance, relaxed, relaxed, base.if_performance, base.while_performance)

# SPDX-License-Identifier: Apache-2.0
"""MEAN, REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ALL, REDUCE_ANY."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain.elementwise import joinable
from gpu_driver.chain.reductions import Scaling, fits_extreme, fits_sum, reduction_step, sum_steps
from gpu_driver.kernel import Kernel, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.operations import launches, supports
from gpu_driver.splits.groups import share_outputs
from gpu_driver.splits.vectors import LANES, c_type, defines, group_size, per_item, work_sizes
from gpu_driver.splits.worksize import linear
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES, dtype_of
from nn_runtime.operations.reduce import mean_multiplier, merged_axes, reduction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Scalar
    from nn_runtime.operand import Dimensions
    from nn_runtime.operations import OperationView

_MAX_RANK = 4
_MAX_QUANTIZED_TERMS = 1 << 23
"""So many 8-bit terms, centred, sum up within 32 bits."""
_FEW_TERMS = 256
"""Of one output: more of them are rather summed up one output after the other."""
_VECTORS_AT_ONCE = 4
"""Of outputs that lie side by side: reduce.cl:*_vectors."""
_NUMBERS = {
    OperationCode.REDUCE_SUM: 0,
    OperationCode.REDUCE_PROD: 1,
    OperationCode.REDUCE_MAX: 2,
    OperationCode.REDUCE_MIN: 3,
    OperationCode.REDUCE_ALL: 4,
    OperationCode.REDUCE_ANY: 5,
}
_EXTREMES = {OperationCode.REDUCE_MAX: 1, OperationCode.REDUCE_MIN: -1}


@supports(OperationCode.MEAN)
def mean_refusal(op: OperationView, device: DeviceProfile) -> str:
    """Refuse sums of 8-bit elements that 32 bits may not hold; where sizes are not known, `mean` does."""
    dims = op.input("input").dimensions
    if op.data_type not in QUANT8_TYPES or dims is None or math.prod(dims) <= _MAX_QUANTIZED_TERMS:
        return ""
    terms = _terms(op) if op.input("axes").value() is not None else math.prod(dims)
    return f"means of more than {_MAX_QUANTIZED_TERMS} elements of 8 bits" if terms > _MAX_QUANTIZED_TERMS else ""


@launches(OperationCode.MEAN)
def mean(op: BoundOperation, device: DeviceProfile) -> Launch:
    """MEAN. FLOAT32, FLOAT16, QUANT8, rank up to 4, QUANT8 to FLOAT32; kernels reduce.cl:mean, mean_*."""
    terms = _terms(op)
    if _makes_reals(op):
        return _sum_of_bytes(op, 1 if op.fusion.is_sum else terms, device)
    if op.data_type in QUANT8_TYPES and terms > _MAX_QUANTIZED_TERMS:
        op.fail("axes", f"must reduce at most {_MAX_QUANTIZED_TERMS} elements of 8 bits", terms)
    multiplier = mean_multiplier(terms)
    factor = int_vector(multiplier.mantissa, multiplier.exponent)
    launch = _reduce("mean", op, (factor, int32(op.input("input").zero_point)), device)
    return replace(launch, steps=_steps_of_sum(op, terms, device))


def _steps_of_sum(op: BoundOperation, divisor: int, device: DeviceProfile) -> tuple[chain.Step, ...]:
    """Return what takes the place of a sum over neighbouring dimensions, or of a MEAN of bytes, in a chain."""
    kernel, sizes = chain.step_kernel(op.outputs[0], device), _neighbours(op)
    if kernel is None or sizes is None:
        return ()
    source, output, terms = op.input("input"), op.outputs[0], sizes[1]
    if op.data_type not in QUANT8_TYPES:
        return sum_steps(kernel, source, output, sizes, divisor)
    if not fits_sum(terms, sizes[2]):
        return ()
    multiplier, zero = mean_multiplier(terms), source.zero_point
    scaling = Scaling(1, -zero * terms, multiplier.mantissa, multiplier.exponent, zero, *_bounds(output))
    return (reduction_step(kernel, source, output, sizes, scaling),)


@launches(*_NUMBERS)
def reduce(op: BoundOperation, device: DeviceProfile) -> Launch:
    """REDUCE_*. FLOAT32, FLOAT16, MAX and MIN also QUANT8, ALL and ANY BOOL8; kernels reduce.cl:reduce*."""
    launch = _reduce("reduce", op, (int32(_NUMBERS[OperationCode(op.code)]),), device)
    if op.code == OperationCode.REDUCE_SUM:
        return replace(launch, steps=_steps_of_sum(op, 1, device))
    return joinable(launch, _step_of_extreme(launch, op, device) if op.code in _EXTREMES else None)


def _neighbours(op: BoundOperation) -> tuple[int, int, int] | None:
    """Return [outer, terms, inner] where all that is reduced lies together."""
    dims, reduced = merged_axes(op.dimensions("input"), reduction(op).axes)
    if len(reduced) != 1:
        return None
    return math.prod(dims[: reduced[0]]), dims[reduced[0]], math.prod(dims[reduced[0] + 1 :])


def _makes_reals(op: BoundOperation) -> bool:
    """Whether an operation takes bytes that a DEQUANTIZE was to take (passes/reductions.py)."""
    return op.input("input").type in QUANT8_TYPES and op.outputs[0].type == OperandCode.TENSOR_FLOAT32


def _sum_of_bytes(op: BoundOperation, divisor: int, device: DeviceProfile) -> Launch:
    source = op.input("input")
    factor = int_vector(int(np.float32(source.scale).view(np.int32)), divisor)
    return _reduce("mean", op, (factor, int32(source.zero_point)), device)


def _step_of_extreme(launch: Launch, op: BoundOperation, device: DeviceProfile) -> chain.Step | None:
    """Return what takes the place of a REDUCE_MAX or REDUCE_MIN in a chain: of rows, or REDUCE_MAX before long rows."""
    source, output = op.input("input"), op.outputs[0]
    kernel, sizes = chain.step_kernel(output, device), _neighbours(op)
    if kernel is None or sizes is None:
        return None
    outer, terms, inner = sizes
    if fits_extreme(terms, inner):
        return reduction_step(kernel, source, output, sizes, Scaling(extreme=_EXTREMES[OperationCode(op.code)]))
    if op.code != OperationCode.REDUCE_MAX or source.dimensions[-1] < LANES or inner == 1:
        return None
    line = replace(chain.rows_of(1, inner), input_width=terms, filter_width=terms)
    low, high = (-math.inf, math.inf) if op.data_type in FLOAT_TYPES else _bounds(output)
    return chain.Step(
        kernel,
        chain.Kind.GREATEST,
        source,
        output,
        geometry=replace(line, input_height=outer, output_height=outer),
        values={"low": low, "high": high},
        flops=launch.flops,
        bytes_moved=launch.bytes_moved,
    )


def _bounds(output: BoundOperand) -> tuple[int, int]:
    info = np.iinfo(dtype_of(output.type))
    return int(info.min), int(info.max)


def _reduce(kernel: str, op: BoundOperation, parameters: tuple[Argument, ...], device: DeviceProfile) -> Launch:
    """Return the launch of a kernel of reduce.cl in the form that fits."""
    source, output = op.input("input"), op.outputs[0]
    axes, terms = reduction(op).axes, _terms(op)
    dims, reduced = merged_axes(source.dimensions, axes)
    kept = [at for at in range(len(dims)) if at not in reduced]
    ends_kept = bool(dims) and len(dims) - 1 in kept
    last: tuple[Argument, ...] = ()
    if share_outputs(output.count, terms, device):
        kernel, sizes = f"{kernel}_groups", work_sizes(output.count * group_size(device), device)
    elif ends_kept and dims[-1] >= LANES:
        inner, vectors = dims[-1], -(-dims[-1] // LANES)
        outer = output.count // inner
        are_many = -(-vectors // _VECTORS_AT_ONCE) * outer >= device.compute_units
        at_once = _VECTORS_AT_ONCE if device.is_cpu and are_many else 1
        kernel, sizes = f"{kernel}_vectors", work_sizes(-(-vectors // at_once), device, outer)
        kept, last = kept[:-1], (int32(inner), int32(at_once))
    elif device.is_cpu and len(kept) == 1 and terms <= _FEW_TERMS and output.count >= LANES:
        item_outputs = LANES * per_item(-(-output.count // LANES), device, LANES * terms)
        kernel, sizes = f"{kernel}_lanes", ((-(-output.count // item_outputs),), (1,))
        last = int32(output.count), int32(item_outputs)
    elif device.is_cpu and not ends_kept and terms >= LANES:
        item_outputs = per_item(output.count, device, terms)
        kernel, sizes = f"{kernel}_rows", ((-(-output.count // item_outputs),), (1,))
        last = int32(output.count), int32(item_outputs)
    else:
        sizes, last = linear(output.count, device), (int32(output.count),)
    element = "uchar" if source.type == OperandCode.TENSOR_BOOL8 else c_type(source)
    real = (("REAL", 1),) if _makes_reals(op) else ()
    return Launch(
        Kernel("reduce.cl", kernel, (*real, *defines(device, T=element))),
        (source, output, *_walk(dims, kept, reduced), int32(terms), *parameters, *last),
        *sizes,
        flops=source.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )


def _terms(op: OperationView) -> int:
    return math.prod(op.dimensions("input")[axis] for axis in reduction(op).axes)


def _walk(dims: Dimensions, kept: Sequence[int], axes: Sequence[int]) -> tuple[Argument, ...]:
    """Return sizes and strides of the kept dimensions, then of the reduced ones."""
    strides = dense_strides(dims)
    return (
        _int4((dims[axis] for axis in kept), 1),
        _int4((strides[axis] for axis in kept), 0),
        _int4((dims[axis] for axis in axes), 1),
        _int4((strides[axis] for axis in axes), 0),
    )


def _int4(values: Iterable[int], unused: int) -> Scalar:
    known = list(values)
    return int_vector(*[unused] * (_MAX_RANK - len(known)), *known)

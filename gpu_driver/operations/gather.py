# SPDX-License-Identifier: Apache-2.0
"""GATHER, EMBEDDING_LOOKUP, HASHTABLE_LOOKUP."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.chain.gathering import gather_step
from gpu_driver.kernel import Kernel, Scratch, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.faults import complaints, no_complaints
from gpu_driver.launchers.strided import Side, raw_type, strided_copies, widest_type
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type, per_item
from gpu_driver.splits.worksize import linear, rows
from gpu_driver.strides import block_of, dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.gather import check_indices

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launchers.faults import Faults

_INT_BYTES = 4


class _Negative(IntEnum):
    """What a negative index means: NEGATIVE_* in gather.cl."""

    WRONG = 0
    MISSING = 1
    FROM_END = 2


@launches(OperationCode.GATHER)
def gather(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """GATHER. Any type; kernel gather.cl:gather. Known indices are checked here, others by the kernel.

    Known ones that are the places of a block, as of a transposed tensor's elements, are a strided copy.
    """
    source, behind, indices, output = op.input("input"), op.fusion.behind, op.input("indices"), op.outputs[0]
    axis = op.axis("axis", len(source.dimensions))
    faults = _check(op, "indices", source.dimensions[axis] + (behind.dimensions[axis] if behind else 0))
    known = indices.value()
    block = None if behind or known is None or output.type != source.type else block_of(known.reshape(-1))
    if known is None or block is None or not output.count:
        return (_gather(source, behind, indices, indices.count, output, axis, faults, device, _negative(op)),)
    first = int(known.reshape(-1)[0])
    first += source.dimensions[axis] * (first < 0)
    outer, inner = math.prod(source.dimensions[:axis]), math.prod(source.dimensions[axis + 1 :])
    sizes = outer, *(size for size, _ in block), inner
    strides = source.dimensions[axis] * inner, *(stride * inner for _, stride in block), 1
    taken, made = Side(source, strides, first * inner), Side(output, dense_strides(sizes))
    return strided_copies(sizes, taken, made, device)


@launches(OperationCode.EMBEDDING_LOOKUP)
def embedding_lookup(op: BoundOperation, device: DeviceProfile) -> Launch:
    """EMBEDDING_LOOKUP. Any type; kernel gather.cl:gather. Known indices are checked here, others by the kernel."""
    values, lookups = op.input("values"), op.input("lookups")
    faults = _check(op, "lookups", values.dimensions[0])
    return _gather(values, None, lookups, lookups.count, op.outputs[0], 0, faults, device, _negative(op))


@launches(OperationCode.HASHTABLE_LOOKUP)
def hashtable_lookup(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, Launch]:
    """HASHTABLE_LOOKUP. FLOAT32, INT32, QUANT8; kernels gather.cl:find_keys, then gather."""
    lookups, keys, values = op.input("lookups"), op.input("keys"), op.input("values")
    places = Scratch(lookups.count * _INT_BYTES)
    global_size, local_size = linear(lookups.count, device)
    search = Launch(
        Kernel("gather.cl", "find_keys", (("T", raw_type(values)),)),
        (lookups, keys, places, op.outputs[1], int32(keys.count), int32(lookups.count)),
        global_size,
        local_size,
        bytes_moved=lookups.size_bytes + keys.size_bytes,
    )
    faults = no_complaints(op)
    return search, _gather(values, None, places, lookups.count, op.outputs[0], 0, faults, device, _Negative.MISSING)


def _check(op: BoundOperation, name: str, limit: int) -> Faults:
    """Check indices where they are known, and return what the kernel needs to check them where not."""
    indices = op.input(name).value()
    if indices is None:
        return complaints(op, name, f"must be in [0, {limit})")
    check_indices(op, name, indices + limit * (indices < 0) if op.fusion.from_end else indices, limit)
    return no_complaints(op)


def _negative(op: BoundOperation) -> _Negative:
    return _Negative.FROM_END if op.fusion.from_end else _Negative.WRONG


def _gather(
    source: BoundOperand,
    behind: BoundOperand | None,
    indices: BoundOperand | Scratch,
    chosen: int,
    output: BoundOperand,
    axis: int,
    faults: Faults,
    device: DeviceProfile,
    negative: _Negative,
) -> Launch:
    dims = source.dimensions
    outer, inner = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    type_, by = widest_type(source, inner) if device.is_cpu else (raw_type(source), 1)
    types: tuple[tuple[str, str], ...] = (("T", type_),)
    if output.type != source.type:
        types, by = (("T", c_type(source)), ("R", c_type(output))), 1
    inner //= by
    whole = dims[axis] + (behind.dimensions[axis] if behind else 0)
    sizes = (int32(value) for value in (dims[axis], whole, inner, chosen, negative))
    codes = float32(source.scale), int32(source.zero_point)
    common = source, behind or source, indices, output, *sizes, *codes, *faults
    moved = 2 * output.size_bytes
    if not device.is_cpu:
        return Launch(
            Kernel("gather.cl", "gather", types), common, *rows(chosen * inner, outer, device), bytes_moved=moved
        )
    count = outer * chosen
    item_rows = per_item(count, device, inner)
    split = int32(count), int32(item_rows)
    return Launch(
        Kernel("gather.cl", "gather_rows", types),
        (*common, *split),
        (-(-count // item_rows),),
        (1,),
        bytes_moved=moved,
        steps=_steps(source, behind, indices, output, axis, faults, device, negative),
    )


def _steps(
    source: BoundOperand,
    behind: BoundOperand | None,
    indices: BoundOperand | Scratch,
    output: BoundOperand,
    axis: int,
    faults: Faults,
    device: DeviceProfile,
    negative: _Negative,
) -> tuple[chain.Step, ...]:
    """Return what takes the place of a launch on one source in a chain, if it only moves elements."""
    kernel = chain.step_kernel(output, device)
    if kernel is None or behind is not None or isinstance(indices, Scratch) or output.type != source.type:
        return ()
    return (gather_step(kernel, (source, indices, output), axis, negative, faults),)

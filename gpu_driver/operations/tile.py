# SPDX-License-Identifier: Apache-2.0
"""TILE."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import Side, strided_copies
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.tile import tile_multiples

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.TILE)
def tile(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """TILE. Any type; a strided copy over (times, size) of every axis, the former with source stride 0."""
    source, output, multiples = op.input("input"), op.outputs[0], tile_multiples(op)
    dims = source.dimensions
    sizes = tuple(chain.from_iterable(zip(multiples, dims, strict=True)))
    taken = tuple(chain.from_iterable((0, stride) for stride in dense_strides(dims)))
    axes = zip(dims, dense_strides(output.dimensions), strict=True)
    written = tuple(chain.from_iterable((size * stride, stride) for size, stride in axes))
    return strided_copies(sizes, Side(source, taken), Side(output, written), device)

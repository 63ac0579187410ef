# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR as steps of a chain, as in decoders of segmentation networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver import chain
from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.chain.test_epilogues import CONV, TYPES, Network

if TYPE_CHECKING:
    from gpu_driver.driver import Device

BILINEAR, NEAREST = OperationCode.RESIZE_BILINEAR, OperationCode.RESIZE_NEAREST_NEIGHBOR
SIGNED = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def decoder(
    code: OperandCode,
    operation: OperationCode,
    depth: int,
    size: tuple[int, int],
    flags: tuple[bool, bool] = (False, False),
) -> Network:
    """A product, resized, and a product of that; flags: align_corners, half_pixel_centers."""
    network = Network(code, (2, 5, 7, 12))
    network.product(CONV, depth)
    graph, source = network.graph, network.now
    height, width = size
    operands = [source, graph.integer(width), graph.integer(height), *(graph.flag(flag) for flag in (False, *flags))]
    graph.operation(operation, operands, network.tensor((2, height, width, depth)))
    network.product(CONV, 16)
    network.finish()
    return network


@pytest.mark.parametrize("depth", [1, 3, 6, 12, 16, 40])
@pytest.mark.parametrize("size", [(10, 14), (3, 4), (13, 9)], ids=str)
@pytest.mark.parametrize("operation", [BILINEAR, NEAREST], ids=lambda operation: operation.name)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_resized_pictures(
    opencl_device: Device, code: OperandCode, operation: OperationCode, size: tuple[int, int], depth: int
) -> None:
    network = decoder(code, operation, depth, size)
    kind = chain.Kind.BILINEAR if operation == BILINEAR else chain.Kind.NEAREST
    assert kind in [step.kind for step in network.steps]
    network.check(opencl_device)


@pytest.mark.parametrize("flags", [(True, False), (False, True)], ids=["corners", "centres"])
@pytest.mark.parametrize("operation", [BILINEAR, NEAREST], ids=lambda operation: operation.name)
def test_corners_and_centres(opencl_device: Device, operation: OperationCode, flags: tuple[bool, bool]) -> None:
    decoder(SIGNED, operation, 24, (11, 16), flags).check(opencl_device)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    for at, depth in enumerate((48, 48, 3, 7)):
        decoder(SIGNED, BILINEAR, depth, (20 + at, 40)).check(opencl_device)


def test_not_a_number_stays_where_it_is(opencl_device: Device) -> None:
    """The nearest pixel is copied: what is not finite beside it does not spread."""
    network = decoder(OperandCode.TENSOR_FLOAT32, NEAREST, 16, (10, 14))
    network.source[0, 2, 3] = np.nan
    network.check(opencl_device)

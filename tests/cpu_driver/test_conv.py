# SPDX-License-Identifier: Apache-2.0
"""Convolutions of many images: tiles of several, of one, and of a part of one give what each image gives alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver.driver import Device
from cpu_driver.operations import conv
from nn_runtime.hal.types import ExecutionPreference, Priority
from tests.gpu_driver.drawn import FLOAT, QUANT8, SIGNED, Network
from tests.gpu_driver.graphs import request

if TYPE_CHECKING:
    from nn_runtime.codes import OperandCode
    from nn_runtime.operand import Array

IMAGES = 7


def network(code: OperandCode, images: int) -> Network:
    made = Network(code, (images, 9, 7, 5), 3)
    made.convolve(12, 3)
    made.depthwise(3, 2)
    made.convolve(8, 1, 2)
    made.depthwise(5)
    made.convolve(6, 3, is_output=True)
    return made


def results(code: OperandCode, data: Array) -> Array:
    made = network(code, len(data))
    prepared = Device().prepare_model(
        made.graph.model(), ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
    )
    output = np.empty(made.dims, data.dtype)
    prepared.execute_synchronously(request([data], [output]), False, None, None)
    return output


@pytest.mark.parametrize("elements", [1, 700, 2000, 1 << 19], ids=["rows", "parts", "several", "all"])
@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED])
def test_every_image_is_as_alone(code: OperandCode, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = network(code, IMAGES).data()
    alone = np.concatenate([results(code, one[np.newaxis]) for one in data])
    monkeypatch.setattr(conv, "_COLUMNS_ELEMENTS", elements)
    monkeypatch.setattr(conv, "_TILE_ELEMENTS", elements)
    np.testing.assert_allclose(results(code, data), alone, rtol=0, atol=1e-5 if code == FLOAT else 0)

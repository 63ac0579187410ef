# SPDX-License-Identifier: Apache-2.0
"""What convolutions take over from the addition after them, and what they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, results

if TYPE_CHECKING:
    from gpu_driver.driver import Device

PADDING_VALID = 2


@pytest.mark.parametrize("is_nchw", [False, True], ids=["NHWC", "NCHW"])
def test_a_layout_that_comes_with_the_request(opencl_device: Device, is_nchw: bool) -> None:
    """Which axis the channels are is not known at preparation: the ADD stays."""
    graph = Graph()
    image, filters, addend = random_floats(1, 4, 4, 4), random_floats(4, 1, 1, 4, seed=1), random_floats(4, seed=2)
    weights, bias = graph.constant(filters), graph.constant(np.zeros(4, np.float32))
    one, none = graph.integer(1), graph.integer(FuseCode.NONE)
    source, layout = graph.input(image.shape), graph.input((), OperandCode.BOOL)
    product = graph.temporary(image.shape)
    parameters = [graph.integer(PADDING_VALID), one, one, none, layout]
    graph.operation(OperationCode.CONV_2D, [source, weights, bias, *parameters], product)
    graph.operation(OperationCode.ADD, [product, graph.constant(addend), none], graph.output(image.shape))
    assert operations_left(graph.model()) == ["CONV_2D", "ADD"]
    (result,) = results(opencl_device, graph.model(), [image, np.array(is_nchw)])
    equation = "bihw,oi->bohw" if is_nchw else "bhwi,oi->bhwo"
    wanted = np.einsum(equation, image.astype(np.float64), filters.reshape(4, 4)) + addend
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Files with weights of 8 bits and data of real numbers ("dynamic range quantisation"), and what is made of them.

Expected values: sums in double precision, and LiteRT's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

import nn_runtime as nn
from gpu_driver.driver import Device as GpuDevice
from nn_runtime.cli import main
from tests.nn_runtime.tflite.operator_file import (
    Array,
    Graph,
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    random_inputs,
    real,
    write_graphs,
)

if TYPE_CHECKING:
    from pathlib import Path

    from nn_runtime.device import Device

RNG = np.random.default_rng(3)
PICTURE, FEATURES, UNITS = (1, 9, 9, 16), 48, 24
SAME, VALID = 0, 1


class Product(NamedTuple):
    """A graph of one operator: input 0, weights 1, bias 2, output 3."""

    graph: Graph

    @property
    def data(self) -> Tensor:
        return self.graph.tensors[0]

    @property
    def bias(self) -> Array:
        bias = self.graph.tensors[2].data
        assert bias is not None
        return bias

    @property
    def weights(self) -> Array:
        """As real numbers."""
        tensor = self.graph.tensors[1]
        assert tensor.data is not None
        scales = np.reshape(tensor.scale, (-1, *[1] * (tensor.data.ndim - 1))) if np.size(tensor.scale) else 1.0
        return (tensor.data.astype(np.int64) - tensor.zero_point) * scales

    @property
    def file(self) -> bytes:
        return write_graphs([self.graph])


def product(code: str, weights: Tensor, data: Tensor | None = None, out: Tensor | None = None) -> Product:
    units = weights.shape[0]
    bias = constant(RNG.standard_normal(units) if data is None else np.zeros(units, np.int32))
    if code == "FULLY_CONNECTED":
        step = Step(code, [0, 1, 2], [3], "FullyConnectedOptions", version=9)
        tensors = [data or real(3, FEATURES), weights, bias, out or real(3, UNITS)]
    else:
        step = Step(code, [0, 1, 2], [3], "Conv2DOptions", {"Padding": VALID, "StrideH": 1, "StrideW": 1}, version=5)
        height, width = weights.shape[1:3]
        tensors = [real(*PICTURE), weights, bias, real(1, 10 - height, 10 - width, units)]
    return Product(Graph(tensors, [step], [0], [3]))


def transposed(weights: Tensor, stride: int, padding: int) -> Product:
    depth, size, _, _ = weights.shape
    height, width = ((one - 1) * stride + size if padding == VALID else one * stride for one in PICTURE[1:3])
    result = 1, height, width, depth
    tensors = [real(*PICTURE), weights, constant(RNG.standard_normal(depth)), real(*result), constant(np.array(result))]
    options = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    step = Step("TRANSPOSE_CONV", [4, 1, 0, 2], [3], "TransposeConvOptions", options, version=4)
    return Product(Graph(tensors, [step], [0], [3]))


def integers(*shape: int, dtype: type = np.int8) -> Array:
    """Whole numbers of which each channel's greatest is 127."""
    numbers = RNG.integers(-127, 128, shape)
    numbers.reshape(shape[0], -1)[:, 0] = 127
    return (numbers + (128 if dtype == np.uint8 else 0)).astype(dtype)


def scales(count: int) -> list[float]:
    return [float(one) for one in RNG.uniform(0.001, 0.01, count)]


FILTERS = 12, 3, 3, 16
DYNAMIC = {
    "CONV_2D by channel": product("CONV_2D", constant(integers(*FILTERS), scales(12))),
    "CONV_2D": product("CONV_2D", constant(integers(*FILTERS), 0.01)),
    "CONV_2D of pixels": product("CONV_2D", constant(integers(40, 1, 1, 16), scales(40))),
    "CONV_2D of few channels": product("CONV_2D", constant(integers(3, 2, 2, 16), scales(3))),
    "CONV_2D of groups": product("CONV_2D", constant(integers(12, 3, 3, 8), scales(12))),
    "TRANSPOSE_CONV": transposed(constant(integers(*FILTERS), scales(12)), 2, SAME),
    "TRANSPOSE_CONV of few taps": transposed(constant(integers(12, 2, 2, 16), scales(12)), 2, VALID),
    "TRANSPOSE_CONV of many taps": transposed(constant(integers(12, 5, 5, 16), scales(12)), 2, VALID),
    "TRANSPOSE_CONV of few channels": transposed(constant(integers(2, 3, 3, 16), scales(2)), 2, SAME),
    "TRANSPOSE_CONV of one channel": transposed(constant(integers(1, 3, 3, 16), scales(1)), 2, SAME),
    "TRANSPOSE_CONV cut": transposed(constant(integers(12, 5, 5, 16), scales(12)), 3, SAME),
    "FULLY_CONNECTED": product("FULLY_CONNECTED", constant(integers(UNITS, FEATURES), 0.01)),
    "FULLY_CONNECTED by channel": product("FULLY_CONNECTED", constant(integers(UNITS, FEATURES), scales(UNITS))),
}
STATIC = {
    "real weights": product("FULLY_CONNECTED", constant(RNG.standard_normal((UNITS, FEATURES)))),
    "unsigned weights": product("FULLY_CONNECTED", constant(integers(UNITS, FEATURES, dtype=np.uint8), 0.01, 128)),
    "data of 8 bits": product(
        "FULLY_CONNECTED", constant(integers(UNITS, FEATURES), 0.01), int8(0.1, 3, 3, FEATURES), int8(1.0, 0, 3, UNITS)
    ),
}


def makes_bytes(device: Device) -> bool:
    """Whether a device has the instructions that products of bytes are worth it with."""
    hal = device.hal
    return isinstance(hal, GpuDevice) and hal.profile.builds_chains and hal.profile.dot4_of_vectors > 0


def expected(of: Product, image: Array) -> Array:
    """Return sums in double precision; windows have no padding."""
    real_image, weights, bias = image.astype(np.float64), of.weights, of.bias
    if weights.ndim == 2:
        return real_image @ weights.T + bias
    (step,) = of.graph.steps
    if step.code == "TRANSPOSE_CONV":
        return _transposed(real_image, weights, int(step.values["StrideH"]), of.graph.tensors[3].shape) + bias
    windows = np.lib.stride_tricks.sliding_window_view(real_image, weights.shape[1:3], (1, 2))
    groups = image.shape[-1] // weights.shape[-1]
    parts = zip(np.split(windows, groups, 3), np.split(weights, groups), strict=True)
    return np.concatenate([np.einsum("bhwcyx,oyxc->bhwo", *part) for part in parts], -1) + bias


def _transposed(image: Array, weights: Array, stride: int, result: tuple[int, ...]) -> Array:
    """Add what each tap gives at its places; what SAME cuts away is cut at both ends, more behind."""
    _, height, width, _ = image.shape
    size = weights.shape[1]
    reached = np.zeros((1, (height - 1) * stride + size, (width - 1) * stride + size, len(weights)))
    for y, x in np.ndindex(size, size):
        reached[:, y : y + height * stride : stride, x : x + width * stride : stride] += image @ weights[:, y, x].T
    top, left = ((a - b) // 2 for a, b in zip(reached.shape[1:3], result[1:3], strict=True))
    return reached[:, top : top + result[1], left : left + result[2]]


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("name", DYNAMIC)
def test_files_that_ask_for_it(name: str) -> None:
    with nn.load(DYNAMIC[name].file) as network:
        assert network.dynamic_quantization


@pytest.mark.parametrize("name", STATIC)
def test_files_that_do_not(name: str) -> None:
    with nn.load(STATIC[name].file) as network:
        assert not network.dynamic_quantization


@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "real weights"])
def test_files_that_ask_for_it_in_a_branch(name: str) -> None:
    inner = {**DYNAMIC, **STATIC}[name].graph
    tensors = [boolean(), inner.tensors[0], inner.tensors[3]]
    step = Step("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    with nn.load(write_graphs([Graph(tensors, [step], [0, 1], [2]), inner, inner])) as network:
        assert network.dynamic_quantization == (name in DYNAMIC)


@pytest.mark.parametrize("name", DYNAMIC)
def test_real_numbers_where_bytes_are_forbidden(name: str, device: Device) -> None:
    of = DYNAMIC[name]
    inputs = random_inputs([of.data])
    wanted = expected(of, inputs[0])
    with nn.load(of.file) as network, network.compile(device, dynamic_quantization=False) as session:
        np.testing.assert_allclose(session.run(inputs)[0], wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", DYNAMIC)
def test_bytes_where_they_pay_and_real_numbers_elsewhere(name: str, device: Device) -> None:
    """The inputs' bytes have 255 steps: an error of each of up to half a step, a twelfth of its square on average."""
    of = DYNAMIC[name]
    inputs = random_inputs([of.data])
    wanted = expected(of, inputs[0])
    with nn.load(of.file) as network, network.compile(device) as session:
        error = rms(session.run(inputs)[0] - wanted)
    step = np.ptp(inputs[0]) / 255
    terms = rms(wanted - of.bias) / rms(inputs[0])
    usual = step * terms / np.sqrt(12)
    if makes_bytes(device):
        assert usual / 2 < error < usual * 2
    else:
        assert error < usual / 1000


@pytest.mark.parametrize(
    "name", [name for name in DYNAMIC if name != "CONV_2D of groups"]
)  # each has its own scale here
def test_bytes_are_those_of_litert(name: str, device: Device) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    if not makes_bytes(device):
        pytest.skip("this device computes with real numbers")
    of = DYNAMIC[name]
    inputs = random_inputs([of.data])
    interpreter = litert.Interpreter(model_content=of.file, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], inputs[0])
    interpreter.invoke()
    theirs = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    with nn.load(of.file) as network, network.compile(device) as session:
        np.testing.assert_allclose(session.run(inputs)[0], theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("allowed", [True, False])
def test_the_command_line_allows_it_and_tells_of_it(
    allowed: bool, device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "network.tflite"
    file.write_bytes(DYNAMIC["CONV_2D"].file)
    options = [] if allowed else ["--no-dynamic-quantization"]
    arguments = [str(file), "--device", device.name, "--runs", "2", "--profile", "--json", *options]
    assert main(["benchmark", *arguments]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    on_bytes = [launch for launch in launches if launch["kernel"].endswith(" on bytes")]
    assert len(on_bytes) == (allowed and makes_bytes(device))
    assert all(launch["arithmetic"] == "quant8" for launch in on_bytes)

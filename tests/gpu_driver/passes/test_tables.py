# SPDX-License-Identifier: Apache-2.0
"""Real numbers between DEQUANTIZE and QUANTIZE: a table where one byte decides, else left as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.execution import constant_folding
from gpu_driver.passes.graph import Graph as Working
from gpu_driver.passes.graph import Rewritten
from gpu_driver.passes.tables import apart, islands
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.devices import find_device
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.passes.simplifying import launches_on, results
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model, Subgraph
    from nn_runtime.operand import Array, Dimensions

UNSIGNED, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
DIMS = (2, 8, 16)
SCALE, ZERO_POINT = 0.05, 3
OUT_SCALE, OUT_ZERO_POINT = 0.03, -7


class Network:
    """A graph that begins with a DEQUANTIZE of its input."""

    def __init__(self, code: OperandCode = SIGNED, dims: Dimensions = DIMS) -> None:
        self.graph = Graph()
        self.dims, self.code = dims, code
        self.source = self.graph.input(dims, code, SCALE, ZERO_POINT)
        self.real = self.dequantized(self.source)

    def dequantized(self, source: int) -> int:
        real = self.graph.temporary(self.dims)
        self.graph.operation(OperationCode.DEQUANTIZE, [source], real)
        return real

    def single(self, code: OperationCode, source: int) -> int:
        made = self.graph.temporary(self.dims)
        self.graph.operation(code, [source], made)
        return made

    def pair(self, code: OperationCode, first: int, second: int) -> int:
        made = self.graph.temporary(self.dims)
        self.graph.operation(code, [first, second, self.graph.integer(FuseCode.NONE)], made)
        return made

    def number(self, value: float, dims: Dimensions = (1,)) -> int:
        return self.graph.constant(np.full(dims, value, np.float32))

    def quantized(self, real: int, code: OperandCode = SIGNED) -> int:
        zero_point = OUT_ZERO_POINT + (128 if code == UNSIGNED else 0)
        output = self.graph.output(self.dims, code, OUT_SCALE, zero_point)
        self.graph.operation(OperationCode.QUANTIZE, [real], output)
        return output

    def found(self) -> list[tuple[tuple[int, ...], frozenset[int]]]:
        model = self.graph.model()
        return [(one.sources, one.operations) for one in islands(Working(model, Rewritten.of(model.main)))]


def curve(network: Network) -> int:
    """X * tanh(x / 2 + 1)."""
    half = network.pair(OperationCode.MUL, network.real, network.number(0.5, (1, 1)))
    return network.pair(
        OperationCode.MUL,
        network.real,
        network.single(OperationCode.TANH, network.pair(OperationCode.ADD, half, network.number(1.0))),
    )


def every_code(code: OperandCode, dims: Dimensions = DIMS) -> Array:
    codes: Array = np.arange(256, dtype=np.uint8).view(dtype_of(code)).reshape(dims)
    return codes


@pytest.mark.parametrize("output", [UNSIGNED, SIGNED], ids=["to-unsigned", "to-signed"])
@pytest.mark.parametrize("source", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
def test_a_function_of_a_byte_is_one_launch(opencl_device: Device, source: OperandCode, output: OperandCode) -> None:
    network = Network(source)
    network.quantized(curve(network), output)
    model = network.graph.model()
    assert launches_on(opencl_device, model) == 1
    codes = every_code(source)
    (result,) = results(opencl_device, model, [codes])
    x = SCALE * (codes.astype(np.float64) - ZERO_POINT)
    real = x * np.tanh(x / 2 + 1) / OUT_SCALE + OUT_ZERO_POINT + (128 if output == UNSIGNED else 0)
    info = np.iinfo(dtype_of(output))
    assert np.abs(result - np.clip(real, info.min, info.max)).max() <= 0.5 + 1e-4


def test_a_table_is_made_by_programs_that_compile_quickly(opencl_device: Device) -> None:
    """What runs once is not worth a chain, which operations on real numbers would be in every run."""
    network = Network()
    network.quantized(curve(network))
    programs = prepare(opencl_device, network.graph.model()).programs
    assert len(programs) > 1
    assert all(program.source_name != "chain.cl" for program in programs)


def test_a_profile_tells_all_that_a_table_does(opencl_device: Device) -> None:
    network = Network()
    network.quantized(curve(network))
    prepared = prepare(opencl_device, network.graph.model())
    static = prepared._graph.static
    assert static is not None
    (command,) = static.segment.commands
    assert sorted(command.operations) == list(range(6))
    assert not prepared.left_out


def test_tables_of_one_source_share_what_they_are_made_of(opencl_device: Device) -> None:
    network = Network()
    root = network.single(OperationCode.ABS, network.real)
    network.quantized(root)
    network.quantized(network.single(OperationCode.NEG, root))
    assert [operations for _, operations in network.found()] == [{0, 1, 2}, {0, 1, 3, 4}]
    model = network.graph.model()
    codes = every_code(SIGNED)
    first, second = results(opencl_device, model, [codes])
    real = np.abs(SCALE * (codes.astype(np.float64) - ZERO_POINT)) / OUT_SCALE
    for result, sign in ((first, 1), (second, -1)):
        assert np.abs(result - np.clip(sign * real + OUT_ZERO_POINT, -128, 127)).max() <= 0.5 + 1e-4
    static = prepare(opencl_device, model)._graph.static
    assert static is not None
    assert sum(len(command.operations) for command in static.segment.commands) == 5


def test_tables_of_what_tables_gave(opencl_device: Device) -> None:
    """The second reads bytes that the first makes, and those that both read."""
    network = Network()
    first = network.quantized(curve(network))
    again = network.dequantized(first)
    network.quantized(network.single(OperationCode.NEG, again))
    network.quantized(network.pair(OperationCode.SUB, again, network.real))
    found = islands(Working(network.graph.model(), Rewritten.of(network.graph.model().main)))
    assert [len(one.sources) for one in found] == [1, 1, 2]
    assert [[found.index(one) for one in group] for group in apart(found)] == [[0], [1], [2]]
    codes = every_code(SIGNED)
    made, negative, difference = (
        result.astype(np.float64) for result in results(opencl_device, network.graph.model(), [codes])
    )
    real = OUT_SCALE * (made - OUT_ZERO_POINT)
    x = SCALE * (codes.astype(np.float64) - ZERO_POINT)
    for result, wanted in ((negative, -real), (difference, real - x)):
        assert np.abs(result - np.clip(wanted / OUT_SCALE + OUT_ZERO_POINT, -128, 127)).max() <= 0.5 + 1e-4


def test_tables_of_the_same_bytes_are_computed_at_once() -> None:
    network = Network()
    network.quantized(curve(network))
    network.quantized(network.single(OperationCode.NEG, network.real))
    network.quantized(squared_difference(network, DIMS))
    model = network.graph.model()
    groups = apart(islands(Working(model, Rewritten.of(model.main))))
    assert [[len(one.sources) for one in group] for group in groups] == [[1, 1], [2]]


def test_what_changes_nothing_in_between_is_left_out_first(opencl_device: Device) -> None:
    network = Network()
    shape = network.graph.constant(np.array(DIMS, np.int32))
    same = network.graph.temporary(DIMS)
    network.graph.operation(OperationCode.RESHAPE, [network.real, shape], same)
    network.quantized(network.single(OperationCode.TANH, same))
    assert launches_on(opencl_device, network.graph.model()) == 1


def test_islands_may_be_deep(opencl_device: Device) -> None:
    """Deeper than functions may call each other; every ADD is undone."""
    network = Network()
    real = network.real
    for _ in range(600):
        one = network.number(1.0)
        real = network.pair(OperationCode.SUB, network.pair(OperationCode.ADD, real, one), one)
    network.quantized(real)
    codes = every_code(SIGNED)
    (result,) = results(opencl_device, network.graph.model(), [codes])
    wanted = SCALE * (codes.astype(np.float64) - ZERO_POINT) / OUT_SCALE + OUT_ZERO_POINT
    assert np.abs(result - np.clip(wanted, -128, 127)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("output", [UNSIGNED, SIGNED], ids=["to-unsigned", "to-signed"])
def test_other_quantisation_takes_no_run_on_the_device(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, output: OperandCode
) -> None:
    network = Network()
    network.quantized(network.real, output)
    monkeypatch.setattr(constant_folding, "_computed", None)
    model = network.graph.model()
    assert launches_on(opencl_device, model) == 1
    codes = every_code(SIGNED)
    (result,) = results(opencl_device, model, [codes])
    wanted = SCALE * (codes.astype(np.float64) - ZERO_POINT) / OUT_SCALE
    info = np.iinfo(result.dtype)
    zero_point = OUT_ZERO_POINT + (128 if output == UNSIGNED else 0)
    assert np.abs(result - np.clip(wanted + zero_point, info.min, info.max)).max() <= 0.5 + 1e-4


def test_where_one_of_several_fails_the_others_are_tables(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network()
    other = Network()
    other.graph = network.graph
    other.real = other.dequantized(network.graph.input(DIMS, SIGNED, SCALE, ZERO_POINT))
    network.quantized(network.single(OperationCode.TANH, network.real))
    other.quantized(other.single(OperationCode.EXP, other.real))
    computed = constant_folding._computed

    def fails(device: DeviceContext, model: Model, part: Subgraph, profile: DeviceProfile) -> object:
        if any(operation.type == OperationCode.EXP for operation in part.operations):
            raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "made up")
        return computed(device, model, part, profile)

    monkeypatch.setattr(constant_folding, "_computed", fails)
    assert launches_on(opencl_device, network.graph.model()) == 1 + 3


def test_real_numbers_that_others_read_are_still_made(opencl_device: Device) -> None:
    network = Network()
    root = network.single(OperationCode.ABS, network.real)
    network.quantized(root)
    output = network.graph.output(DIMS)
    network.graph.operation(OperationCode.EXP, [root], output)
    codes = every_code(SIGNED)
    quantised, real = results(opencl_device, network.graph.model(), [codes])
    size = np.abs(SCALE * (codes.astype(np.float64) - ZERO_POINT))
    np.testing.assert_allclose(real, np.exp(size), rtol=1e-5)
    assert np.abs(quantised - np.clip(size / OUT_SCALE + OUT_ZERO_POINT, -128, 127)).max() <= 0.5 + 1e-4


def test_real_numbers_that_the_model_gives_are_still_made(opencl_device: Device) -> None:
    network = Network()
    size = network.graph.output(DIMS)
    network.graph.operation(OperationCode.ABS, [network.real], size)
    network.quantized(network.single(OperationCode.NEG, size))
    codes = every_code(SIGNED)
    real, quantised = results(opencl_device, network.graph.model(), [codes])
    wanted = np.abs(SCALE * (codes.astype(np.float64) - ZERO_POINT))
    np.testing.assert_allclose(real, wanted, rtol=1e-6)
    assert np.abs(quantised - np.clip(-wanted / OUT_SCALE + OUT_ZERO_POINT, -128, 127)).max() <= 0.5 + 1e-4


def test_half_precision_between_rounds_what_it_holds(opencl_device: Device) -> None:
    """Without it many results would lie in the middle between two codes."""
    graph = Graph()
    source, real = graph.input(DIMS, SIGNED, 0.03, 3), graph.temporary(DIMS, OperandCode.TENSOR_FLOAT16)
    graph.operation(OperationCode.DEQUANTIZE, [source], real)
    graph.operation(OperationCode.QUANTIZE, [real], graph.output(DIMS, SIGNED, 0.02, 3))
    codes = every_code(SIGNED)
    assert launches_on(opencl_device, graph.model()) == 1
    (result,) = results(opencl_device, graph.model(), [codes])
    halves = (np.float32(0.03) * (codes.astype(np.float32) - 3)).astype(np.float16)
    assert np.abs(result - np.clip(halves.astype(np.float64) / 0.02 + 3, -128, 127)).max() <= 0.5 + 1e-4


@pytest.mark.parametrize(("rank", "count"), [(1, 1), (4, 0)])
def test_a_number_may_have_no_more_dimensions_than_are_known(opencl_device: Device, rank: int, count: int) -> None:
    """Of a tensor of unknown rank it makes one that has as many at least."""
    network = Network(dims=())
    network.quantized(network.pair(OperationCode.MUL, network.real, network.number(0.5, (1,) * rank)))
    assert len(network.found()) == count
    model, codes = network.graph.model(), every_code(SIGNED, (256,))
    output = np.zeros((1,) * (rank - 1) + (256,), np.int8)
    found = run(prepare(opencl_device, model), request([codes], [output]))
    assert [shape.dimensions for shape in found.output_shapes] == [output.shape]
    wanted = 0.5 * SCALE * (codes.astype(np.float64) - ZERO_POINT) / OUT_SCALE + OUT_ZERO_POINT
    assert np.abs(output.reshape(-1) - np.clip(wanted, -128, 127)).max() <= 0.5 + 1e-4


def squared_difference(network: Network, dims: Dimensions) -> int:
    """(x - y)^2."""
    other = network.graph.input(dims, network.code, 2 * SCALE, 0)
    real = network.graph.temporary(dims)
    network.graph.operation(OperationCode.DEQUANTIZE, [other], real)
    difference = network.pair(OperationCode.SUB, network.real, real)
    return network.pair(OperationCode.MUL, difference, difference)


@pytest.mark.parametrize("dims", [DIMS, (2, 8, 1), (16,), (8, 1), (1, 1, 1), (2, 1, 16)], ids=str)
@pytest.mark.parametrize("code", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
def test_a_function_of_two_bytes_is_one_launch(opencl_device: Device, code: OperandCode, dims: Dimensions) -> None:
    network = Network(code)
    network.quantized(squared_difference(network, dims), code)
    model = network.graph.model()
    assert launches_on(opencl_device, model) == 1
    codes = every_code(code)
    others = np.random.default_rng(1).integers(0, 256, dims).astype(np.uint8).view(codes.dtype)
    (result,) = results(opencl_device, model, [codes, others])
    x, y = SCALE * (codes.astype(np.float64) - ZERO_POINT), 2 * SCALE * others.astype(np.float64)
    real = (x - y) ** 2 / OUT_SCALE + OUT_ZERO_POINT + (128 if code == UNSIGNED else 0)
    info = np.iinfo(codes.dtype)
    assert np.abs(result - np.clip(real, info.min, info.max)).max() <= 0.5 + 1e-4


def test_a_function_of_two_vectors_is_one_launch(opencl_device: Device) -> None:
    """Tables have an axis for each, which vectors have not."""
    network = Network(dims=(256,))
    network.quantized(squared_difference(network, (256,)))
    assert launches_on(opencl_device, network.graph.model()) == 1
    codes = every_code(SIGNED, (256,))
    (result,) = results(opencl_device, network.graph.model(), [codes, codes[::-1].copy()])
    x, y = SCALE * (codes.astype(np.float64) - ZERO_POINT), 2 * SCALE * codes[::-1].astype(np.float64)
    assert np.abs(result - np.clip((x - y) ** 2 / OUT_SCALE + OUT_ZERO_POINT, -128, 127)).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("dims", [(2, 8, 16), (2, 8, 1), (1, 1, 16)], ids=str)
def test_tables_of_pairs_are_in_chains(opencl_device: Device, dims: Dimensions) -> None:
    """Between operations that are steps; what a broadcast source gives first is the CPU driver's."""
    network = Network()
    real = squared_difference(network, dims)
    made = network.graph.temporary(DIMS, SIGNED, OUT_SCALE, OUT_ZERO_POINT)
    network.graph.operation(OperationCode.QUANTIZE, [real], made)
    none = network.graph.integer(FuseCode.NONE)
    for at in range(4):
        operand = network.graph.temporary if at < 3 else network.graph.output
        other = network.graph.constant(np.arange(16, dtype=np.int8), SIGNED, SCALE, 0)
        total = operand(DIMS, SIGNED, OUT_SCALE * (at + 2), 0)
        network.graph.operation(OperationCode.ADD, [made, other, none], total)
        made = total
    model = network.graph.model()
    assert launches_on(opencl_device, model) == (1 if opencl_device.profile.builds_chains else 5)
    codes = every_code(SIGNED)
    inputs = [codes, np.random.default_rng(2).integers(-128, 128, dims).astype(np.int8)]
    assert np.array_equal(results(opencl_device, model, inputs)[0], answer_of_the_cpu(model, inputs))


def test_a_table_for_groups_is_looked_up_as_one(opencl_device: Device) -> None:
    """POW has no form on longer rows, as operations have that groups share (`groups.py`): the MAXIMUM has none either.

    Numbers are whole, so that those in the table are exact.
    """
    dims = 1024, 8, 4
    graph = Graph()
    bases, exponents = graph.input(dims, SIGNED, 1.0, -128), graph.input((1, 8, 1), SIGNED, 1.0, -1)
    reals = graph.temporary(dims), graph.temporary((1, 8, 1)), graph.temporary(dims)
    graph.operation(OperationCode.DEQUANTIZE, [bases], reals[0])
    graph.operation(OperationCode.DEQUANTIZE, [exponents], reals[1])
    graph.operation(OperationCode.POW, reals[:2], reals[2])
    graph.operation(OperationCode.QUANTIZE, [reals[2]], graph.output(dims, SIGNED, 1.0, -128))
    codes = (np.arange(1024 * 32) % 16 - 128).astype(np.int8).reshape(dims)
    powers = (np.arange(8) % 3 - 1).astype(np.int8).reshape(1, 8, 1)
    (result,) = results(opencl_device, graph.model(), [codes, powers])
    assert np.array_equal(result.astype(int) + 128, (codes.astype(int) + 128) ** (powers.astype(int) + 1))


def answer_of_the_cpu(model: Model, inputs: Sequence[Array]) -> Array:
    result = np.zeros(DIMS, np.int8)
    run(prepare(find_device("nnapi-reference").hal, model), request(inputs, [result]))  # type: ignore[arg-type]
    return result


def _of_three_tensors(network: Network) -> int:
    real = network.real
    for _ in range(2):
        other = network.graph.input(DIMS, SIGNED, SCALE, ZERO_POINT)
        real = network.pair(OperationCode.ADD, real, network.dequantized(other))
    return real


def _of_two_types(network: Network) -> int:
    other = network.graph.input(DIMS, UNSIGNED, SCALE, ZERO_POINT)
    return network.pair(OperationCode.ADD, network.real, network.dequantized(other))


def _of_channels(network: Network) -> int:
    weights = network.graph.constant(np.arange(DIMS[-1], dtype=np.float32))
    return network.pair(OperationCode.MUL, network.real, weights)


def _of_more_dimensions(network: Network) -> int:
    made = network.graph.temporary((1, *DIMS))
    one = network.number(1.0, (1, 1, 1, 1))
    network.graph.operation(OperationCode.MUL, [network.real, one, network.graph.integer(FuseCode.NONE)], made)
    return made


def _of_neighbours(network: Network) -> int:
    made = network.graph.temporary(DIMS)
    axis = network.graph.integer(-1)
    network.graph.operation(OperationCode.SOFTMAX, [network.real, network.graph.real(1.0), axis], made)
    return made


def _of_real_input(network: Network) -> int:
    return network.pair(OperationCode.ADD, network.real, network.graph.input(DIMS))


@pytest.mark.parametrize(
    "make", [_of_three_tensors, _of_two_types, _of_channels, _of_more_dimensions, _of_neighbours, _of_real_input],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_what_no_single_byte_decides_has_no_table(make: Callable[[Network], int]) -> None:
    network = Network()
    real = make(network)
    output = network.graph.output(network.graph._operands[real].dimensions, SIGNED, OUT_SCALE, OUT_ZERO_POINT)
    network.graph.operation(OperationCode.QUANTIZE, [real], output)
    assert network.found() == []


def test_sizes_of_a_run_have_tables_too(opencl_device: Device) -> None:
    network = Network(dims=(0, 16))
    network.quantized(network.single(OperationCode.TANH, network.real))
    assert len(network.found()) == 1
    model: Model = network.graph.model()
    fixed = Network(dims=(16, 16))
    fixed.quantized(fixed.single(OperationCode.TANH, fixed.real))
    codes = every_code(SIGNED, (16, 16))
    (wanted,) = results(opencl_device, fixed.graph.model(), [codes])
    operands = tuple(
        replace(one, dimensions=(16, 16)) if at == model.main.output_indexes[0] else one
        for at, one in enumerate(model.main.operands)
    )
    (found,) = results(opencl_device, replace(model, main=replace(model.main, operands=operands)), [codes])
    assert np.array_equal(found, wanted)

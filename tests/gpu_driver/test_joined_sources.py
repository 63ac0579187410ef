# SPDX-License-Identifier: Apache-2.0
"""The CONCATENATION before a GATHER: read in parts where it can be, else made, with the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import commands_of, results
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import discrete

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

FLOAT, INT32 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
CODES = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
SCALE, ZERO = 0.25, -7
LENGTHS = (5, 3)
INDICES = (7, 0, 4, 5, 7, 1, 2)


@dataclass(frozen=True)
class Joined:
    """GATHER(CONCATENATION(parts), indices + 0), or what is as that in all but one thing.

    The addition of a number of the run lies between the two, as what makes indices does.
    """

    code: OperandCode = FLOAT
    dims: tuple[int, ...] = (2, 0, 33)
    """Of a part, whose length takes the place of the 0."""
    lengths: tuple[int, ...] = LENGTHS
    along: int = 1
    gathered_along: int = 1
    known: bool = False
    indices: tuple[int, ...] = INDICES
    scales: tuple[float, ...] = (SCALE, SCALE)
    read_twice: bool = False
    is_output: bool = False
    axis_of_run: bool = False

    def parts(self) -> list[Array]:
        rng, dtype = np.random.default_rng(3), dtype_of(self.code)
        shapes = [tuple(size or length for size in self.dims) for length in self.lengths]
        return [(rng.standard_normal(shape) * 40).astype(dtype) for shape in shapes]

    def wanted(self) -> list[Array]:
        """Return the results, as numpy makes them."""
        whole = np.concatenate(self.parts(), self.along)
        found = np.take(whole, self.indices, self.gathered_along)
        return [found, *([whole] if self.is_output else []), *([np.abs(whole)] if self.read_twice else [])]

    def model(self) -> tuple[Model, list[Array]]:
        """Return the model and its inputs."""
        graph, parts = Graph(), self.parts()
        is_quantised = self.code == CODES
        quantised = [(scale, ZERO) if is_quantised else (0.0, 0) for scale in self.scales]
        operands = [graph.input(part.shape, self.code, *one) for part, one in zip(parts, quantised, strict=False)]
        operands += [graph.input(part.shape, self.code) for part in parts[len(operands) :]]
        indices, added = np.array(self.indices, np.int32), np.zeros(1, np.int32)
        inputs = [*parts, *([] if self.known else [indices, added])]
        whole = np.concatenate(parts, self.along)
        sizes = [*whole.shape]
        sizes[self.gathered_along] = len(indices)
        gathered = graph.output(tuple(sizes), self.code, *quantised[0])
        joined = (graph.output if self.is_output else graph.temporary)(whole.shape, self.code, *quantised[0])
        graph.operation(OperationCode.CONCATENATION, [*operands, graph.integer(self.along)], joined)
        if self.known:
            chosen = graph.constant(indices)
        else:
            chosen = graph.temporary(indices.shape, INT32)
            terms = [graph.input(indices.shape, INT32), graph.input((1,), INT32), graph.integer(FuseCode.NONE)]
            graph.operation(OperationCode.ADD, terms, chosen)
        if self.axis_of_run:
            axis = graph.input((), OperandCode.INT32)
            inputs.append(np.array(self.gathered_along, np.int32))
        else:
            axis = graph.integer(self.gathered_along)
        graph.operation(OperationCode.GATHER, [joined, axis, chosen], gathered)
        if self.read_twice:
            graph.operation(OperationCode.ABS, [joined], graph.output(whole.shape, self.code))
        return graph.model(), inputs


READ_IN_PARTS = {
    "numbers": Joined(),
    "halves": Joined(OperandCode.TENSOR_FLOAT16),
    "bytes": Joined(CODES),
    "rows along the first axis": Joined(dims=(0, 64), along=0, gathered_along=0),
    "single elements": Joined(dims=(3, 0)),
    "single bytes": Joined(CODES, dims=(3, 0)),
    "an axis counted from the end": Joined(dims=(2, 3, 0), along=2, gathered_along=-1),
    "known places that are no block": Joined(known=True),
}
MADE = {
    "along another axis": Joined(along=0, gathered_along=2, dims=(0, 3, 33)),
    "three parts": Joined(lengths=(5, 2, 1)),
    "read by another": Joined(read_twice=True),
    "an output": Joined(is_output=True),
    "known places of a block": Joined(known=True, indices=(1, 3, 5, 7)),
}


@pytest.mark.parametrize("joined", READ_IN_PARTS.values(), ids=READ_IN_PARTS)
def test_parts_are_read_where_they_are(opencl_device: Device, joined: Joined) -> None:
    model, inputs = joined.model()
    assert commands_of(model) == [*([] if joined.known else ["elementwise"]), "gather_rows"]
    (found,) = results(opencl_device, model, inputs)
    np.testing.assert_array_equal(found, joined.wanted()[0])


@pytest.mark.parametrize("joined", MADE.values(), ids=MADE)
def test_others_are_joined_before(opencl_device: Device, joined: Joined) -> None:
    model, inputs = joined.model()
    assert any("copy" in name or "chain" in name for name in commands_of(model))
    for found, wanted in zip(results(opencl_device, model, inputs), joined.wanted(), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_kernel_of_gpus_reads_parts_too(opencl_device: Device) -> None:
    device = discrete(opencl_device)
    for joined in READ_IN_PARTS.values():
        model, inputs = joined.model()
        (found,) = results(device, model, inputs)
        np.testing.assert_array_equal(found, joined.wanted()[0])


def test_a_profile_names_both_operations() -> None:
    lowering = Lowering(Joined(known=True).model()[0], CPU_PROFILE)
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    assert launch.operations == (1, 0)


def test_what_waits_is_joined_before_the_driver_reads_a_value(opencl_device: Device) -> None:
    """The indices get dimensions that an operation between the two makes, so that a lookup is lowered only then."""
    graph, (first, second) = Graph(), Joined().parts()
    operands = [graph.input(first.shape), graph.input(second.shape)]
    joined, dims, chosen = graph.temporary((2, 8, 33)), graph.temporary((2,), INT32), graph.temporary((), INT32)
    graph.operation(OperationCode.CONCATENATION, [*operands, graph.integer(1)], joined)
    terms = [graph.input((2,), INT32), graph.input((2,), INT32), graph.integer(FuseCode.NONE)]
    graph.operation(OperationCode.ADD, terms, dims)
    graph.operation(OperationCode.RESHAPE, [graph.input((6,), INT32), dims], chosen)
    graph.operation(OperationCode.GATHER, [joined, graph.integer(1), chosen], graph.output((2, 2, 3, 33)))
    indices = np.array(INDICES[:6], np.int32)
    inputs = [first, second, np.array([1, 1], np.int32), np.array([1, 2], np.int32), indices]
    (found,) = results(opencl_device, graph.model(), inputs)
    np.testing.assert_array_equal(found, np.take(np.concatenate([first, second], 1), indices.reshape(2, 3), 1))


def test_a_concatenation_that_another_operation_reads_is_made(opencl_device: Device) -> None:
    graph, parts = Graph(), Joined().parts()
    joined = graph.temporary((2, 8, 33))
    graph.operation(OperationCode.CONCATENATION, [*(graph.input(one.shape) for one in parts), graph.integer(1)], joined)
    graph.operation(OperationCode.ABS, [joined], graph.output((2, 8, 33)))
    (found,) = results(opencl_device, graph.model(), parts)
    np.testing.assert_array_equal(found, np.abs(np.concatenate(parts, 1)))


def test_what_lies_along_an_axis_of_its_own_is_no_concatenation(opencl_device: Device) -> None:
    graph, parts = Graph(), [np.random.default_rng(n).random((2, 3)).astype(np.float32) for n in range(2)]
    packed, indices = graph.temporary((2, 2, 3)), np.array([1, 0, 1], np.int32)
    operands = [graph.integer(0), *(graph.input(one.shape) for one in parts)]
    graph.operation(OperationCode.PACK, operands, packed)
    chosen = graph.input((3,), INT32)
    graph.operation(OperationCode.GATHER, [packed, graph.integer(0), chosen], graph.output((3, 2, 3)))
    (found,) = results(opencl_device, graph.model(), [*parts, indices])
    np.testing.assert_array_equal(found, np.stack(parts)[indices])


def test_rows_from_the_end_of_both_are_dequantised(opencl_device: Device) -> None:
    """A lookup that has taken over what comes before and behind it."""
    graph, parts = Graph(), Joined(CODES, dims=(0, 33), along=0).parts()
    indices = np.array([-1, 0, -8, 7, 4, -3], np.int32)
    operands = [graph.input(part.shape, CODES, SCALE, ZERO) for part in parts]
    joined, codes = (graph.temporary((rows, 33), CODES, SCALE, ZERO) for rows in (8, 6))
    given, total, chosen = graph.input((6,), INT32), graph.temporary((6,), INT32), graph.temporary((6,), INT32)
    is_negative = graph.temporary((6,), OperandCode.TENSOR_BOOL8)
    zero, count = (graph.constant(np.array([one], np.int32)) for one in (0, 8))
    graph.operation(OperationCode.CONCATENATION, [*operands, graph.integer(0)], joined)
    graph.operation(OperationCode.LESS, [given, zero], is_negative)
    graph.operation(OperationCode.ADD, [given, count, graph.integer(FuseCode.NONE)], total)
    graph.operation(OperationCode.SELECT, [is_negative, total, given], chosen)
    graph.operation(OperationCode.GATHER, [joined, graph.integer(0), chosen], codes)
    graph.operation(OperationCode.DEQUANTIZE, [codes], graph.output((6, 33)))
    assert commands_of(graph.model()) == ["gather_rows"]
    (found,) = results(opencl_device, graph.model(), [*parts, indices])
    np.testing.assert_array_equal(found, SCALE * (np.concatenate(parts)[indices].astype(np.float32) - ZERO))


@pytest.mark.parametrize("is_first", [False, True])
def test_a_part_without_elements_is_left_out(opencl_device: Device, is_first: bool) -> None:
    """Which only a run tells."""
    graph, dims = Graph(), (2, 8, 33)
    source, empty, joined = graph.input(dims), graph.temporary((0, 0, 0)), graph.temporary(dims)
    begin, size = graph.constant(np.zeros(3, np.int32)), graph.input((3,), INT32)
    graph.operation(OperationCode.SLICE, [source, begin, size], empty)
    parts = [empty, source] if is_first else [source, empty]
    graph.operation(OperationCode.CONCATENATION, [*parts, graph.integer(1)], joined)
    chosen = graph.input((7,), INT32)
    graph.operation(OperationCode.GATHER, [joined, graph.integer(1), chosen], graph.output((2, 7, 33)))
    data = np.random.default_rng(3).random(dims).astype(np.float32)
    inputs = [data, np.array([2, 0, 33], np.int32), np.array(INDICES, np.int32)]
    (found,) = results(opencl_device, graph.model(), inputs)
    np.testing.assert_array_equal(found, np.take(data, INDICES, 1))


def test_parts_of_other_zero_points_are_joined_before(opencl_device: Device) -> None:
    graph, (first, second) = Graph(), Joined(CODES).parts()
    operands = [graph.input(first.shape, CODES, SCALE, ZERO), graph.input(second.shape, CODES, SCALE, ZERO + 5)]
    joined = graph.temporary((2, 8, 33), CODES, SCALE, ZERO)
    graph.operation(OperationCode.CONCATENATION, [*operands, graph.integer(1)], joined)
    chosen = graph.input((7,), INT32)
    output = graph.output((2, 7, 33), CODES, SCALE, ZERO)
    graph.operation(OperationCode.GATHER, [joined, graph.integer(1), chosen], output)
    (found,) = results(opencl_device, graph.model(), [first, second, np.array(INDICES, np.int32)])
    moved = np.clip(second.astype(np.int32) - 5, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(found, np.take(np.concatenate([first, moved], 1), INDICES, 1))


def test_parts_of_other_scales_are_joined_before(opencl_device: Device) -> None:
    joined = Joined(CODES, scales=(SCALE, 2 * SCALE))
    model, inputs = joined.model()
    first, second = joined.parts()
    doubled = np.clip((second.astype(np.int32) - ZERO) * 2 + ZERO, -128, 127).astype(np.int8)
    (found,) = results(opencl_device, model, inputs)
    np.testing.assert_array_equal(found, np.take(np.concatenate([first, doubled], 1), INDICES, 1))


def test_the_axis_comes_with_the_run(opencl_device: Device) -> None:
    joined = Joined(axis_of_run=True)
    model, inputs = joined.model()
    assert "gather_rows" not in commands_of(model)
    (found,) = results(opencl_device, model, inputs)
    np.testing.assert_array_equal(found, joined.wanted()[0])


@pytest.mark.parametrize("wrong", [sum(LENGTHS), -1])
@pytest.mark.parametrize("known", [False, True], ids=["of the run", "known"])
def test_what_is_in_neither_part_is_wrong(opencl_device: Device, known: bool, wrong: int) -> None:
    model, inputs = Joined(known=known, indices=(*INDICES, wrong)).model()
    with pytest.raises(HalError, match=rf"operation {1 if known else 2} GATHER: .*indices.*\b{sum(LENGTHS)}\b"):
        results(opencl_device, model, inputs)

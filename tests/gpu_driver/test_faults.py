# SPDX-License-Identifier: Apache-2.0
"""Values of a run that an operation does not take: both drivers fail with one status, and the next run is right."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
import pytest

import nn_runtime as nn
from cpu_driver.driver import Device as CpuDevice
from gpu_driver.device_profile import DeviceProfile
from gpu_driver.execution.graph_run import Commands
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.fences import FenceStatus, close, wait
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Priority,
    RequestArgument,
)
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import at_once, fresh, prepare, run
from tests.gpu_driver.test_control_flow import Outer, less_than

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.operand import Array, Dimensions

INT32, FLOAT, FLOAT16 = OperandCode.TENSOR_INT32, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, Q16 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT16_ASYMM
NAN = float("nan")
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class Case:
    """A model of one operation, arrays that it takes, and arrays to put in their places that it does not take."""

    name: str
    model: Model
    good: tuple[Array, ...]
    place: int
    bad: tuple[Array, ...]
    output: tuple[Dimensions, type] = ((4,), np.float32)


def gathering(code: OperationCode = OperationCode.GATHER) -> Model:
    """Four rows of five, by index."""
    graph = Graph()
    table, indices = graph.input((5,) if code == OperationCode.GATHER else (5, 1)), graph.input((4,), INT32)
    if code == OperationCode.GATHER:
        graph.operation(code, [table, graph.integer(0), indices], graph.output((4,)))
    else:
        graph.operation(code, [indices, table], graph.output((4, 1)))
    return graph.model()


def pooling(code: OperationCode, types: tuple[int, int] = (FLOAT, FLOAT)) -> Model:
    """Two regions of two images of 4 x 6, at half the pixels."""
    graph = Graph()
    data_type, roi_type = types
    half = data_type == FLOAT16
    scale, zero = (0.5, 3) if data_type == QUANT8 else (0.0, 0)
    image = graph.input((2, 4, 6, 1), data_type, scale, zero)
    rois = graph.input((2, 4), roi_type, 0.125 if roi_type == Q16 else 0.0)
    batches = graph.input((2,), INT32)
    ratio = graph.half(2.0) if half else graph.real(2.0)
    samples = [graph.integer(2), graph.integer(2)] if code == OperationCode.ROI_ALIGN else []
    sides = [graph.integer(1), graph.integer(1)]
    output = graph.output((2, 1, 1, 1), data_type, scale, zero)
    graph.operation(code, [image, rois, batches, *sides, ratio, ratio, *samples, graph.flag(False)], output)
    return graph.model()


def transforming() -> Model:
    """Two boxes and two images."""
    graph = Graph()
    rois, deltas = graph.input((2, 4)), graph.input((2, 4))
    batches, images = graph.input((2,), INT32), graph.input((2, 2))
    code = OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM
    graph.operation(code, [rois, deltas, batches, images], graph.output((2, 4)))
    return graph.model()


def pointing() -> Model:
    graph = Graph()
    heatmaps, boxes = graph.input((1, 3, 3, 1)), graph.input((1, 4))
    outputs = graph.output((1, 1)), graph.output((1, 1, 2))
    graph.operation(OperationCode.HEATMAP_MAX_KEYPOINT, [heatmaps, boxes, graph.flag(False)], *outputs)
    return graph.model()


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


def floats(*values: object) -> Array:
    return np.array(values, np.float32)


ROWS = np.arange(5, dtype=np.float32)
BAD_INDICES = (ints(0, 1, 2, 5), ints(-1, 0, 0, 0), ints(0, 2**31 - 1, 0, 0), ints(0, 0, -(2**31), 1))
IMAGES = np.arange(48, dtype=np.float32).reshape(2, 4, 6, 1)
REGIONS = floats([0, 0, 12, 8], [2, 2, 2, 2])
BAD_BATCHES = (ints(0, 2), ints(-1, 1))
BAD_REGIONS = (
    floats([0, 0, 12, 8], [3, 2, 2, 2]),
    floats([0, 0, 12, 8], [2, 3, 2, 2]),
    floats([0, 0, 12.5, 8], [2, 2, 2, 2]),
    floats([0, 0, 12, 8], [2, -1, 2, 2]),
    floats([NAN, 0, 12, 8], [2, 2, 2, 2]),
    floats([0, 0, 12, NAN], [2, 2, 2, 2]),
)
BOXES = floats([0, 0, 4, 4], [1, 1, 1, 1])
BAD_BOXES = (floats([0, 0, 4, 4], [2, 1, 1, 1]), floats([0, 0, 4, NAN], [1, 1, 1, 1]))
TRANSFORMED = (BOXES, np.zeros((2, 4), np.float32), ints(0, 1), np.full((2, 2), 9, np.float32))
HEAT = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)


def cases() -> list[Case]:
    found = [
        Case("gather", gathering(), (ROWS, ints(0, 4, 2, 2)), 1, BAD_INDICES),
        Case("lookup", gathering(OperationCode.EMBEDDING_LOOKUP), (ROWS.reshape(5, 1), ints(0, 4, 2, 2)), 1,
             BAD_INDICES, ((4, 1), np.float32)),
        Case("transform batch", transforming(), TRANSFORMED, 2, BAD_BATCHES, ((2, 4), np.float32)),
        Case("transform box", transforming(), TRANSFORMED, 0, BAD_BOXES, ((2, 4), np.float32)),
    ]  # fmt: skip
    for code in (OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING):
        for types, dtypes in (
            ((FLOAT, FLOAT), (np.float32, np.float32)),
            ((FLOAT16, FLOAT16), (np.float16, np.float16)),
            ((QUANT8, Q16), (np.uint8, np.uint16)),
        ):
            unit = 8 if types[1] == Q16 else 1
            regions = (REGIONS * unit).astype(dtypes[1])
            wrong = [bad for bad in BAD_REGIONS if unit == 1 or (np.all(np.isfinite(bad)) and np.all(bad >= 0))]
            bad = tuple((one * unit).astype(dtypes[1]) for one in wrong)
            good = IMAGES.astype(dtypes[0]), regions, ints(0, 1)
            shape = (2, 1, 1, 1), dtypes[0]
            name = f"{code.name} {np.dtype(dtypes[0]).name}"
            found.append(Case(f"{name} batch", pooling(code, types), good, 2, BAD_BATCHES, shape))
            found.append(Case(f"{name} region", pooling(code, types), good, 1, bad, shape))
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_both_drivers_refuse_the_same_values(opencl_device: Device, case: Case) -> None:
    shape, dtype = case.output
    on_device, on_cpu = prepare(opencl_device, case.model), prepare(CpuDevice(), case.model)  # type: ignore[arg-type]
    wanted: Array = np.empty(shape, dtype)
    on_cpu.execute_synchronously(request(case.good, [wanted]), False, None, None)
    for bad in case.bad:
        given = [bad if i == case.place else array for i, array in enumerate(case.good)]
        errors = [refusal(one, given, np.empty(shape, dtype)) for one in (on_device, on_cpu)]
        assert errors[0].status == errors[1].status == ErrorStatus.GENERAL_FAILURE
        code = OperationCode(case.model.main.operations[0].type).name
        assert all(f"operation 0 {code}: " in str(error) for error in errors)
        result: Array = np.empty(shape, dtype)
        run(on_device, request(case.good, [result]))
        np.testing.assert_allclose(result.astype(float), wanted.astype(float), rtol=1e-3)
    on_device.close()


def refusal(prepared: PreparedModel, inputs: Sequence[Array], output: Array) -> HalError:
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(request(inputs, [output]), False, None, None)
    return caught.value


def test_keypoints_of_boxes_with_wrong_corners(opencl_device: Device) -> None:
    outputs = [np.empty((1, 1), np.float32), np.empty((1, 1, 2), np.float32)]
    for device in (opencl_device, CpuDevice()):
        prepared = prepare(device, pointing())  # type: ignore[arg-type]
        prepared.execute_synchronously(request([HEAT, floats([0, 0, 0, 1])], outputs), False, None, None)
        with pytest.raises(HalError, match=r"operation 0 HEATMAP_MAX_KEYPOINT: boxes \(input 1\)") as caught:
            prepared.execute_synchronously(request([HEAT, floats([1, 0, 0, 1])], outputs), False, None, None)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
        prepared.close()


def chosen_twice() -> Model:
    """Operation 1 gathers by the first indices, operation 2 of its result by the second."""
    graph = Graph()
    table, first, second = graph.input((5,)), graph.input((3,), INT32), graph.input((2,), INT32)
    doubled, middle, axis = graph.temporary((5,)), graph.temporary((3,)), graph.integer(0)
    graph.operation(OperationCode.ADD, [table, table, graph.integer(FuseCode.NONE)], doubled)
    graph.operation(OperationCode.GATHER, [doubled, axis, first], middle)
    graph.operation(OperationCode.GATHER, [middle, axis, second], graph.output((2,)))
    return graph.model()


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [((0, 5, 0), (0, 0), 1), ((0, 4, 0), (0, 3), 2), ((9, 9, 9), (9, 9), 1)],
    ids=str,
)
def test_the_first_operation_that_fails_is_named(
    opencl_device: Device, first: tuple[int, ...], second: tuple[int, ...], named: int
) -> None:
    prepared = prepare(opencl_device, chosen_twice())
    error = refusal(prepared, [ROWS, ints(*first), ints(*second)], np.empty(2, np.float32))
    assert f"operation {named} GATHER: indices (input 2) must be in [0, " in str(error)
    prepared.close()


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("way", ["synchronous", "burst", "fenced", "profiled"])
def test_every_way_to_execute_fails(opencl_device: Device, way: str, measure: bool) -> None:
    prepared = prepare(opencl_device, gathering())
    result = np.empty(4, np.float32)

    def execute(*indices: int) -> None:
        asked = request([ROWS, ints(*indices)], [result])
        if way == "burst":
            prepared.configure_execution_burst().execute(asked, measure, None, None)
        elif way == "fenced":
            fence, running = prepared.execute_fenced(asked, [], measure, None, None, None)
            status = wait(fence, 60)
            close(fence)
            running.get_execution_info()
            assert status == FenceStatus.SIGNALLED
        elif way == "profiled":
            prepared.execute_profiled(asked, None, None)
        else:
            run(prepared, asked, measure)

    for _ in range(2):
        with pytest.raises(HalError) as caught:
            execute(0, 1, 2, 5)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
        execute(4, 1, 2, 0)
        np.testing.assert_array_equal(result, [4, 1, 2, 0])
    prepared.close()


def test_executions_at_once_do_not_see_each_others_complaints(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, gathering())

    def wrong() -> None:
        for _ in range(20):
            refusal(prepared, [ROWS, ints(0, 1, 2, 5)], np.empty(4, np.float32))

    def right() -> None:
        for _ in range(20):
            result = np.empty(4, np.float32)
            run(prepared, request([ROWS, ints(3, 1, 2, 4)], [result]))
            assert np.array_equal(result, [3, 1, 2, 4])

    assert at_once([wrong, right, wrong, right]) == []
    prepared.close()


def test_a_wrong_turn_of_a_loop_ends_it(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, gathering_loop())
    results = [np.empty(1, np.float32), np.empty(1, np.float32)]
    for _ in range(2):
        with pytest.raises(HalError) as caught:
            prepared.execute_synchronously(request([floats(0), floats(9)], results), False, None, 10**9)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
        assert "operation 1 GATHER" in str(caught.value)
        prepared.execute_synchronously(request([floats(0), floats(1)], results), False, None, 10**9)
        np.testing.assert_array_equal(results, [[3], [1]])
    prepared.close()


def gathering_loop() -> Model:
    """WHILE counter < 3: value = table[int(value)], counter + 1."""
    body = Graph()
    counter, value = body.input((1,)), body.input((1,))
    next_counter, next_value = body.output((1,)), body.output((1,))
    place = body.temporary((1,), INT32)
    table = body.constant(ROWS)
    body.operation(OperationCode.CAST, [value], place)
    body.operation(OperationCode.GATHER, [table, body.integer(0), place], next_value)
    one = body.constant(np.ones(1, np.float32))
    body.operation(OperationCode.ADD, [counter, one, body.integer(FuseCode.NONE)], next_counter)
    graph = Outer()
    inputs = graph.input((1,)), graph.input((1,))
    models = graph.model_operand(0), graph.model_operand(1)
    graph.operation(OperationCode.WHILE, [*models, *inputs], graph.output((1,)), graph.output((1,)))
    return replace(graph.model(), referenced=(less_than(3, (1,)), body.model().main))


def branching() -> Model:
    """IF choose: table[indices], else table."""
    gather, same = Graph(), Graph()
    table, indices = gather.input((4,)), gather.input((4,), INT32)
    gather.operation(OperationCode.GATHER, [table, gather.integer(0), indices], gather.output((4,)))
    table = same.input((4,))
    same.input((4,), INT32)
    zero = same.constant(np.zeros(1, np.float32))
    same.operation(OperationCode.ADD, [table, zero, same.integer(FuseCode.NONE)], same.output((4,)))
    graph = Outer()
    choose, source, places = graph.input((1,), OperandCode.TENSOR_BOOL8), graph.input((4,)), graph.input((4,), INT32)
    branches = graph.model_operand(0), graph.model_operand(1)
    graph.operation(OperationCode.IF, [choose, *branches, source, places], graph.output((4,)))
    return replace(graph.model(), referenced=(gather.model().main, same.model().main))


def test_only_the_branch_that_is_taken_complains(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, branching())
    table, wrong, result = ROWS[:4].copy(), ints(0, 1, 2, 4), np.empty(4, np.float32)
    for _ in range(2):
        assert "operation 0 GATHER" in str(refusal(prepared, [np.array([True]), table, wrong], result))
        run(prepared, request([np.array([False]), table, wrong], [result]))
        np.testing.assert_array_equal(result, table)
    prepared.close()


def test_sizes_that_a_run_brings(opencl_device: Device) -> None:
    graph = Graph()
    table, indices = graph.input((0,)), graph.input((0,), INT32)
    graph.operation(OperationCode.GATHER, [table, graph.integer(0), indices], graph.output((0,)))
    prepared = prepare(opencl_device, graph.model())
    for rows in (5, 7):
        data = np.arange(rows, dtype=np.float32)
        result = np.empty(2, np.float32)
        assert f"must be in [0, {rows})" in str(refusal(prepared, [data, ints(0, rows)], result))
        run(prepared, request([data, ints(0, rows - 1)], [result]))
        np.testing.assert_array_equal(result, [0, rows - 1])
    prepared.close()


@pytest.mark.parametrize("is_cpu", [False, True])
def test_a_buffer_on_the_device_that_was_to_be_written_has_no_value(opencl_device: Device, is_cpu: bool) -> None:
    device = CpuDevice() if is_cpu else opencl_device
    prepared = device.prepare_model(gathering(), ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
    buffer, token = device.allocate(BufferDesc(), [prepared], [], [BufferRole(0, 0, 1.0)])
    there = (RequestArgument(location=DataLocation(pool_index=0)),)
    for indices, fails in ((ints(0, 1, 2, 5), True), (ints(0, 1, 2, 3), False), (ints(0, -1, 2, 3), True)):
        asked = replace(request([ROWS, indices], []), outputs=there, pools=(BufferToken(token),))
        with pytest.raises(HalError, match="GATHER") if fails else nullcontext():
            prepared.execute_synchronously(asked, False, None, None)
        back = SharedMemory.create(16)
        with pytest.raises(HalError) if fails else nullcontext():
            buffer.copy_to(back)
        if not fails:
            np.testing.assert_array_equal(back.array().view(np.float32), indices)
    buffer.close()
    prepared.close()


def behind_page(offset: int, data: Array) -> Array:
    """Return a copy so many bytes behind a page's beginning: at 0 it is used in place where the device can."""
    room = np.zeros(data.nbytes + 2 * _PAGE_BYTES, np.uint8)
    start = -room.ctypes.data % _PAGE_BYTES + offset
    copy = room[start : start + data.nbytes].view(data.dtype)
    copy[:] = data
    return copy


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("offset", [0, 4])
def test_a_bound_request_is_right_after_a_fault(opencl_device: Device, offset: int, measure: bool) -> None:
    prepared = prepare(opencl_device, gathering())
    table, indices, result = (behind_page(offset, one) for one in (ROWS, ints(0, 1, 2, 3), np.zeros(4, np.float32)))
    execution = prepared.create_reusable_execution(request([table, indices], [result]), measure, None)
    assert execution is not None
    for last, fails in ((4, False), (5, True), (3, False), (-1, True), (0, False)):
        indices[3] = last
        with pytest.raises(HalError, match="GATHER") if fails else nullcontext():
            execution.execute_synchronously(None)
        if not fails:
            np.testing.assert_array_equal(result, ROWS[indices])
    prepared.close()


def test_a_device_with_memory_of_its_own_is_right_after_a_fault(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the host does not see what a launch complains of: it is read, and taken back."""
    device = fresh(opencl_device)
    monkeypatch.setattr(DeviceProfile, "uses_host_memory", False)
    prepared = prepare(device, gathering())
    result = np.zeros(4, np.float32)
    for last, fails in ((4, False), (5, True), (3, False)):
        indices = ints(0, 1, 2, last)
        with pytest.raises(HalError, match="GATHER") if fails else nullcontext():
            run(prepared, request([ROWS, indices], [result]))
        if not fails:
            np.testing.assert_array_equal(result, ROWS[indices])
    prepared.close()


def test_known_indices_cost_no_transfer(opencl_device: Device) -> None:
    read = []
    for known in (True, False):
        graph = Graph()
        table = graph.input((5,))
        indices = graph.constant(ints(0, 4)) if known else graph.input((2,), INT32)
        graph.operation(OperationCode.GATHER, [table, graph.integer(0), indices], graph.output((2,)))
        prepared = prepare(opencl_device, graph.model())
        given = [ROWS] if known else [ROWS, ints(0, 4)]
        asked = request(given, [np.empty(2, np.float32)])
        run(prepared, asked)
        before = opencl_device.statistics()["read_bytes"]
        run(prepared, asked)
        read.append(opencl_device.statistics()["read_bytes"] - before)
        prepared.close()
    assert read == [8, 8 if opencl_device.profile.uses_host_memory else 12]


def test_what_is_given_up_is_waited_for_whatever_fails() -> None:
    """Reads into the caller's memory may still run where no more can be enqueued."""
    queue, fault = Mock(), Mock(seen=None)
    fault.buffer.write.side_effect = HalError(ErrorStatus.GENERAL_FAILURE, "out of resources")
    commands = Commands(queue, None, None)
    commands.run(Mock(fault=fault), {})
    with pytest.raises(HalError, match="out of resources"):
        commands.abandon()
    queue.finish.assert_called_once_with()
    fault.forget.assert_called_once_with()


def test_what_complained_before_an_enqueuing_failed_is_known_to_who_gives_up() -> None:
    queue, segment = Mock(), Mock(fault=Mock(seen=np.ones(1, np.int32)))
    segment.enqueue.side_effect = HalError(ErrorStatus.GENERAL_FAILURE, "out of resources")
    commands = Commands(queue, None, None)
    with pytest.raises(HalError, match="out of resources"):
        commands.run(segment, {})
    commands.abandon()
    segment.fault.forget.assert_called_once_with()


@pytest.mark.parametrize("way", ["compute", "start_compute", "start_compute_with_dependencies"])
def test_a_failed_execution_holds_no_memory(opencl_device: Device, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is kept, and so its error; no collection of cycles is needed. The next run finds room and is right."""
    device = fresh(opencl_device)
    side = nn.OperandType(FLOAT, (1 << 20,))
    model = nn.Model()
    sources, results = ([model.add_operand(side) for _ in range(2)] for _ in range(2))
    for source, result in zip(sources, results, strict=True):
        model.add_operation(OperationCode.NEG, [source], [result])
    model.identify_inputs_and_outputs(sources, results)
    model.finish()
    context, data = device.context(), behind_page(4, np.ones(1 << 20, np.float32))
    with nn.Compilation(model, [nn.Device(device)]) as compilation:
        compilation.finish()
        execution = nn.Execution(compilation)
        execution.set_reusable(True)
        outputs = [behind_page(4, np.zeros(1 << 20, np.float32)) for _ in range(2)]
        for at, output in enumerate(outputs):
            execution.set_input(at, data)
            execution.set_output(at, output)
        before, allocate, sizes = context.accounts.stats.allocated_bytes, context.allocate, []

        def allocated(size_bytes: int) -> DeviceBuffer:
            sizes.append(size_bytes)
            if len(sizes) == 2:
                raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "no room for the second")
            return allocate(size_bytes)

        gc.collect()
        gc.disable()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(context, "allocate", allocated)
                with pytest.raises(nn.ResourceExhausted, match="no room for the second") as caught:
                    run_by(execution, way)
            context._release_idle()
            assert context.accounts.stats.allocated_bytes == before, (sizes, caught)
        finally:
            gc.enable()
        run_by(execution, way)
        assert all((output == -1).all() for output in outputs)
    device.close()


def run_by(execution: nn.Execution, way: str) -> None:
    """Run to the end."""
    if way == "compute":
        execution.compute()
    else:
        (execution.start_compute() if way == "start_compute" else execution.start_compute_with_dependencies([])).wait()

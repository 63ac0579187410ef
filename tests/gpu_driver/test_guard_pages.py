# SPDX-License-Identifier: Apache-2.0
"""Memory that is used in place, up to the end of a page behind which there is none: nothing is read beyond a tensor."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.devices import find_device
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

TYPES = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
DEPTHS = 1, 2, 4, 8, 16
CASES = "depthwise 3", "depthwise 5", "convolution 1", "convolution 3", "pool", "sum", "resize", "pad"
CASES_OF_ROWS = (
    *("MEAN 20 256", "REDUCE_SUM 20 256", "REDUCE_MAX 20 256", "MEAN 512 14", "TOPK_V2 1024 9"),
    *("by_rows 4 1024 4 1", "by_rows 3 5 1024 1", "by_columns 4 1024 5 1", "by_columns 3 1024 37 1"),
    *("by_columns 1 1 63 1024", "by_columns 1 1 15 1024"),
)
"""Rows and elements of each; for products then the columns of the right sides, and how many there are."""
ROWS = 16


def guarded(data: Array) -> tuple[mmap.mmap, Array]:
    """Copy data of whole pages to where a page that must not be touched comes next."""
    pages = mmap.mmap(-1, data.nbytes + mmap.PAGESIZE)
    view = np.frombuffer(pages, np.uint8)
    end = ctypes.c_void_p(view.ctypes.data + data.nbytes)
    if ctypes.CDLL(None, use_errno=True).mprotect(end, mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = view[: data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return pages, copy


def check(device: Device, code: OperandCode, depth: int, case: str) -> None:
    """Execute an operation twice on guarded memory, as it is used in place, and compare with memory of its own."""
    dtype = dtype_of(code)
    dims = (1, ROWS, mmap.PAGESIZE // (ROWS * depth * dtype.itemsize), depth)
    source = np.random.default_rng(depth).integers(-8, 8, dims).astype(dtype)
    graph, wanted = model(code, dims, case)
    check_in_place(device, graph, [source], [np.empty(wanted, dtype)])


def check_in_place(device: Device, graph: Graph, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Execute a model twice on what of its memory can be guarded, and compare with memory of its own."""
    kept = []
    in_place: list[list[Array]] = [[], []]
    for place, array in [*((0, one) for one in inputs), *((1, one) for one in outputs)]:
        pages, copy = guarded(array) if array.nbytes % mmap.PAGESIZE == 0 else (None, array)
        kept.append(pages)
        in_place[place].append(copy)
    prepared = prepare(device, graph.model())
    bound = prepared.create_reusable_execution(request(*in_place), False, None)
    assert bound is not None
    for _ in range(2):
        bound.execute_synchronously(None)
    wanted = [np.empty_like(one) for one in outputs]
    prepared.execute_synchronously(request(inputs, wanted), False, None, None)
    for found, own in zip(in_place[1], wanted, strict=True):
        np.testing.assert_array_equal(found, own)


def model(code: OperandCode, dims: tuple[int, int, int, int], case: str) -> tuple[Graph, tuple[int, ...]]:
    """Return a model of one operation, and the dimensions of its output."""
    graph, (n, height, width, depth) = Graph(), dims
    is_real = code != OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    quantisation = (0.0, 0) if is_real else (0.5, 0)
    dtype, output = dtype_of(code), dims
    source = graph.input(dims, code, *quantisation)
    one, two = graph.integer(1), graph.integer(2)
    operands = [source]
    if case[:-2] in ("depthwise", "convolution"):
        is_product, size = case.startswith("convolution"), int(case[-1])
        shape = (depth if is_product else 1, size, size, depth)
        operands.append(graph.constant(np.ones(shape, dtype), code, *quantisation))
        bias = np.zeros(depth, dtype if is_real else np.int32)
        operands.append(graph.constant(bias, code if is_real else OperandCode.TENSOR_INT32, quantisation[0] ** 2))
        padding = two if is_product else one  # VALID: the last window ends where the tensor does
        operands += [padding, one, one, *([] if is_product else [one]), graph.integer(FuseCode.NONE)]
        operation = OperationCode.CONV_2D if is_product else OperationCode.DEPTHWISE_CONV_2D
        output = (n, height - size + 1, width - size + 1, depth) if is_product else dims
    elif case == "pool":
        operation = OperationCode.AVERAGE_POOL_2D
        operands += [one, one, one, two, two, graph.integer(FuseCode.NONE)]
    elif case == "sum":
        operation = OperationCode.ADD
        operands += [graph.constant(np.ones(depth, dtype), code, *quantisation), graph.integer(FuseCode.NONE)]
    elif case == "resize":
        operation, output = OperationCode.RESIZE_BILINEAR, (n, 2 * height, width, depth)
        operands += [graph.integer(width), graph.integer(2 * height)]
    else:
        operation, output = OperationCode.PAD, (n, 2 * height, width, depth)
        operands.append(graph.constant(np.array([[0, 0], [0, height], [0, 0], [0, 0]], np.int32)))
    graph.operation(operation, operands, graph.output(output, code, *quantisation))
    return graph, output


def model_of_rows(case: str) -> tuple[Graph, list[Array], list[Array]]:
    """Return a model whose last vector of rows, or of elements of a row, is a short one; its inputs and outputs."""
    graph, rng = Graph(), np.random.default_rng(0)
    kind, *sizes = case.split()
    rows, depth = map(int, sizes[:2])
    inputs = [rng.random((rows, depth)).astype(np.float32)]
    if kind in ("MEAN", "REDUCE_SUM", "REDUCE_MAX"):
        axes = graph.constant(np.array([1], np.int32))
        keep = graph.integer(0) if kind == "MEAN" else graph.flag(False)
        graph.operation(OperationCode[kind], [graph.input((rows, depth)), axes, keep], graph.output((rows,)))
        return graph, inputs, [np.empty(rows, np.float32)]
    if kind == "TOPK_V2":
        outputs = graph.output((rows, depth)), graph.output((rows, depth), OperandCode.TENSOR_INT32)
        graph.operation(OperationCode.TOPK_V2, [graph.input((rows, depth)), graph.integer(depth)], *outputs)
        return graph, inputs, [np.empty((rows, depth), np.float32), np.empty((rows, depth), np.int32)]
    columns, batches = map(int, sizes[2:])
    by_rows = kind == "by_rows"
    left, right = (batches, rows, depth), (batches, columns, depth) if by_rows else (batches, depth, columns)
    operands = [graph.input(left), graph.input(right), graph.flag(False), graph.flag(by_rows)]
    graph.operation(OperationCode.BATCH_MATMUL, operands, graph.output((batches, rows, columns)))
    inputs = [rng.random(dims).astype(np.float32) for dims in (left, right)]
    return graph, inputs, [np.empty((batches, rows, columns), np.float32)]


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect of Linux")
def test_nothing_is_read_beyond_the_last_row(opencl_device: Device) -> None:
    in_own_process(f"main_of_rows({opencl_device.name!r})")


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect of Linux")
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_nothing_is_read_beyond_a_tensor(opencl_device: Device, code: OperandCode) -> None:
    in_own_process(f"main({opencl_device.name!r}, {int(code)})")


def in_own_process(call: str) -> None:
    """Call a function of this module in a process of its own, which would not survive what it is to find."""
    script = f"from tests.gpu_driver import test_guard_pages as guard; guard.{call}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-200:]} {done.stderr[-2000:]}"


def main(name: str, number: int) -> None:
    """Check all cases of a type; the last one printed is the one that crashed."""
    device = find_device(name).hal
    for depth in DEPTHS:
        for case in CASES:
            print(depth, case, flush=True)
            check(device, OperandCode(number), depth, case)  # type: ignore[arg-type]


def main_of_rows(name: str) -> None:
    """Check all cases of rows; the last one printed is the one that crashed."""
    device = find_device(name).hal
    for case in CASES_OF_ROWS:
        print(case, flush=True)
        check_in_place(device, *model_of_rows(case))  # type: ignore[arg-type]

# SPDX-License-Identifier: Apache-2.0
"""No result depends on what device memory held before: every new buffer is full of 0xFF, NaN or -1 to who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest

from gpu_driver.driver import Device as OpenCLDevice
from nn_runtime.testing.conformance import Through, Verdict, make_runner, run_example
from nn_runtime.testing.corpus import Kind, read_spec, spec_files
from tests.operations.cases import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpu_driver.device.device_memory import DeviceBuffer
    from nn_runtime.device import Device
    from nn_runtime.testing.corpus import Example

POISON = np.uint8(0xFF)
SAMPLE_STEP = 8


@pytest.fixture
def poisoned_device(device: Device) -> Iterator[Device]:
    """Every OpenCL device under test; programs are not warmed up, as that clears the memory."""
    if not isinstance(device.hal, OpenCLDevice):
        pytest.skip("no OpenCL device")
    import pyopencl as cl

    from gpu_driver.device.context import DeviceContext

    original = DeviceContext.allocate

    def allocate(context: DeviceContext, size_bytes: int) -> DeviceBuffer:
        buffer = original(context, size_bytes)
        cl.enqueue_fill_buffer(context.queue, buffer.handle, POISON, 0, buffer.size_bytes)
        context.queue.finish()
        return buffer

    with (
        mock.patch.object(DeviceContext, "allocate", allocate),
        mock.patch("gpu_driver.execution.compiled_graph.warm_up"),
    ):
        yield device


def test_cases(poisoned_device: Device) -> None:
    assert _problems(examples(), poisoned_device) == []


def test_corpus(poisoned_device: Device, corpus_folder: Path, is_long: bool) -> None:
    step = 1 if is_long else SAMPLE_STEP
    assert [
        problem
        for path in spec_files(corpus_folder)
        for problem in _problems(list(read_spec(path))[::step], poisoned_device)
    ] == []


def _problems(cases: Iterable[Example], device: Device) -> list[str]:
    runner = make_runner(device, Through.HAL)
    results = [run_example(example, Kind.PLAIN, runner) for example in cases]
    return [
        f"{result.spec} {result.example}: {result.message}" for result in results if result.verdict == Verdict.FAILED
    ]

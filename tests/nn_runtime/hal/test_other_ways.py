# SPDX-License-Identifier: Apache-2.0
"""Operation examples on drivers in another process, and behind the interfaces of older versions: the same results."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, FuseCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import select
from nn_runtime.errors import DeadObject
from nn_runtime.execution import Execution
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.versions import adapt, serve
from nn_runtime.model import Model
from nn_runtime.testing.conformance import Through, Verdict, make_runner, run_example
from nn_runtime.testing.corpus import Kind, read_spec, spec_files
from tests.conftest import device_selectors
from tests.nn_runtime.graphs import scalar, tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

SAMPLE_STEP = 40
LONG_STEP = 6
ANSWER_S = 1.0
VERSIONS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)


@pytest.fixture(scope="module", params=device_selectors())
def remote(request: pytest.FixtureRequest) -> Iterator[RemoteDevice]:
    """Every device under test, in another process."""
    wanted = select(request.param).devices[0]
    module = "cpu_driver" if wanted.is_reference else "gpu_driver"
    devices = [one for one in hosted(f"{module}.driver:devices") if isinstance(one, RemoteDevice)]
    yield next(one for one in devices if one.name == wanted.name)
    for one in devices:
        one.close()


def check(
    device: Device, through: Through, folder: Path, step: int, kinds: Collection[Kind] = tuple(Kind)
) -> Counter[Verdict]:
    runner = make_runner(device, through)
    counts: Counter[Verdict] = Counter()
    failed = []
    for path in spec_files(folder)[::step]:
        for example in read_spec(path):
            for kind in kinds:
                if kind not in example.kinds:
                    continue
                result = run_example(example, kind, runner)
                counts[result.verdict] += 1
                if result.verdict == Verdict.FAILED:
                    failed.append(f"{result.spec}/{result.example} {kind.value}: {result.message}")
    assert not failed, "\n".join(failed[:20])
    return counts


@pytest.mark.parametrize("through", [Through.HAL, Through.NDK])
def test_examples_in_another_process(
    remote: RemoteDevice, through: Through, corpus_folder: Path, is_long: bool
) -> None:
    counts = check(Device(remote), through, corpus_folder, LONG_STEP if is_long else SAMPLE_STEP)
    assert counts[Verdict.PASSED] > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_examples_behind_older_interfaces(version: FeatureLevel, corpus_folder: Path, is_long: bool) -> None:
    adapted = adapt(serve(select("cpu").devices[0].hal, version), "adapted")
    kinds = tuple(Kind) if version >= FeatureLevel.HAL_1_2 else (Kind.PLAIN,)  # the others need outputs of unknown size
    counts = check(Device(adapted), Through.HAL, corpus_folder, LONG_STEP if is_long else SAMPLE_STEP, kinds)
    assert counts[Verdict.PASSED] > 5
    assert counts[Verdict.UNSUPPORTED]


def large_model(size: int, layers: int) -> Model:
    """Products of large matrices, for seconds of work."""
    model = Model()
    x = first = model.add_operand(tensor(size, size))
    weights = model.add_operand(tensor(size, size))
    model.set_operand_value(weights, np.full((size, size), 1e-3, np.float32))
    bias = model.add_operand(tensor(size))
    model.set_operand_value(bias, np.zeros(size, np.float32))
    for _ in range(layers):
        y = model.add_operand(tensor(size, size))
        model.add_operation(OperationCode.FULLY_CONNECTED, [x, weights, bias, scalar(model, FuseCode.NONE)], [y])
        x = y
    model.identify_inputs_and_outputs([first], [x])
    model.finish()
    return model


def test_a_driver_killed_in_the_middle_of_an_execution(remote: RemoteDevice) -> None:
    """The call fails within a second, the next compilation works."""
    size = 1024
    model = large_model(size, 40)
    data, output = np.ones((size, size), np.float32), np.zeros((size, size), np.float32)

    def compiled() -> Execution:
        compilation = Compilation(model, [Device(remote)])
        compilation.finish()
        execution = Execution(compilation)
        execution.set_reusable(True)
        execution.set_input(0, data)
        execution.set_output(0, output)
        return execution

    execution = compiled()
    started = time.monotonic()
    execution.compute()
    duration_s = time.monotonic() - started
    pid = remote.service.host().pid
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(duration_s / 4, kill)
    timer.start()
    with pytest.raises(DeadObject):
        while True:
            execution.compute()
    assert time.monotonic() - killed[0] < ANSWER_S
    timer.join()
    output[:] = -1
    compiled().compute()
    assert (output >= 0).all()
    assert remote.service.host().pid != pid

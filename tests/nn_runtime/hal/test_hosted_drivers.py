# SPDX-License-Identifier: Apache-2.0
"""The real drivers in processes of their own: what they offer, a death while they work, the operation examples."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import Selection
from nn_runtime.errors import DeadObject, OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal import costs, interfaces
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Priority,
    Request,
    RequestArgument,
)
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.corpus import Kind
from tests.nn_runtime.graphs import scalar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER_S = 1.0
"""Within so many seconds a dead driver must be seen."""
SIZE, PRODUCTS = 512, 40
SAMPLE = ("ADD", "SOFTMAX", "GATHER")
SAMPLE_LONG = (*SAMPLE, "CONV_2D", "LSTM", "PAD_V2", "TOPK_V2", "CONCATENATION", "FULLY_CONNECTED", "SPACE_TO_DEPTH",
               "RESIZE_BILINEAR", "QUANTIZE", "TRANSPOSE", "IF", "WHILE", "DETECTION_POSTPROCESSING", "SVDF",
               "ROI_ALIGN", "AVERAGE_POOL_2D")  # fmt: skip


def entry_of(device: Device) -> str:
    return f"{type(device.hal).__module__}:devices"


def start(device: Device) -> RemoteDevice:
    """Host the driver of a device, and return the stand-in of that device."""
    found = [other for other in hosted(entry_of(device)) if isinstance(other, RemoteDevice)]
    for other in found:
        if other.name != device.name:
            other.close()
    return next(other for other in found if other.name == device.name)


@pytest.fixture
def remote(device: Device) -> Iterator[RemoteDevice]:
    made = start(device)
    yield made
    made.close()


def product(remote: RemoteDevice) -> tuple[Compilation, np.ndarray, np.ndarray]:
    """Products of large matrices, one after the other."""
    model = Model()
    first = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (SIZE, SIZE)))
    weights = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (SIZE, SIZE)))
    bias = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (SIZE,)))
    model.set_operand_value(weights, np.eye(SIZE, dtype=np.float32))
    model.set_operand_value(bias, np.zeros(SIZE, np.float32))
    activation = scalar(model, FuseCode.NONE)
    last = first
    for _ in range(PRODUCTS):
        result = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (SIZE, SIZE)))
        model.add_operation(OperationCode.FULLY_CONNECTED, [last, weights, bias, activation], [result])
        last = result
    model.identify_inputs_and_outputs([first], [last])
    model.finish()
    compilation = Compilation.for_selection(model, Selection((Device(remote),), True))
    compilation.finish()
    x = np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
    return compilation, x, np.zeros_like(x)


def computing(compilation: Compilation, x: np.ndarray, y: np.ndarray) -> Execution:
    execution = Execution(compilation)
    execution.set_input(0, x)
    execution.set_output(0, y)
    return execution


def test_a_hosted_device_offers_what_the_driver_offers(device: Device, remote: RemoteDevice) -> None:
    found = [item for module in (interfaces, costs) for item in vars(module).values()]
    optional = [item for item in found if getattr(item, "_is_runtime_protocol", False)]
    assert len(optional) >= 8
    for protocol in optional:
        if protocol not in (interfaces.ExplainsOperations, interfaces.ReportsProfile):
            assert isinstance(remote, protocol) == isinstance(device.hal, protocol), protocol
    assert remote.get_capabilities() == device.hal.get_capabilities()
    if isinstance(device.hal, costs.HasCosts):
        assert isinstance(remote, costs.HasCosts)
        assert remote.cost_table() == device.hal.cost_table()


def test_killed_in_the_middle_of_an_execution(remote: RemoteDevice) -> None:
    """The call ends with its error within a second; the same compilation works again, and so does a new one."""
    compilation, x, y = product(remote)
    killed: list[float] = []
    host = remote.service.host()

    def kill() -> None:
        killed.append(time.monotonic())
        os.kill(host.pid, signal.SIGKILL)

    timer = threading.Timer(0.05, kill)
    timer.start()
    with pytest.raises((DeadObject, OperationFailed)):
        for _ in range(1000):  # until it is killed, be the device ever so fast
            computing(compilation, x, y).compute()
    assert time.monotonic() - killed[0] < ANSWER_S
    timer.join()
    computing(compilation, x, y).compute()
    np.testing.assert_array_equal(y, x)
    again, x, y = product(remote)
    computing(again, x, y).compute()
    np.testing.assert_array_equal(y, x)
    assert remote.service.starts == 2
    compilation.close()
    again.close()


def test_a_token_of_another_process_is_refused(device: Device, remote: RemoteDevice) -> None:
    """Each of two processes has a buffer of the same use; neither takes the other's token, nor the driver's own one."""
    other = start(device)
    prepared = []
    tokens = []
    buffers = []
    for owner in (remote, other):
        made = owner.prepare_model(
            product_model().hal, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
        )
        buffer, token = owner.allocate(BufferDesc(), [made], [BufferRole(0, 0, 1.0)], [])
        prepared.append(made)
        buffers.append(buffer)
        tokens.append(token)
    assert tokens[0] != tokens[1]
    y = np.zeros(4, np.float32)
    for made, foreign in ((prepared[0], tokens[1]), (prepared[1], tokens[0]), (prepared[0], 1)):
        request = Request(
            (RequestArgument(location=DataLocation()),),
            (RequestArgument(location=DataLocation(length=16, pointer=y)),),
            (BufferToken(foreign),),
        )
        with pytest.raises(HalError, match="no buffer has the token") as caught:
            made.execute_synchronously(request, False, None, None)
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    for buffer in buffers:
        buffer.close()
    other.close()


def product_model() -> Model:
    model = Model()
    x, y = (model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (4,))) for _ in range(2))
    model.add_operation(OperationCode.RELU, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def test_operation_examples(device: Device, corpus_folder: Path, is_long: bool) -> None:
    """A sample of the examples, all four kinds, by `nnrt conformance` with drivers in other processes."""
    names = ",".join(SAMPLE_LONG if is_long else SAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "nn_runtime", "conformance", str(corpus_folder), "--device", device.name,
         "--operations", names, "--json"],
        env={**os.environ, "NNRT_DRIVER_HOST": "process", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["device"] == device.name
    assert report["counts"]["failed"] == report["counts"]["unsupported"] == 0
    assert report["counts"]["passed"] >= (4000 if is_long else 300)
    assert {result["kind"] for result in report["results"]} == {kind.value for kind in Kind}

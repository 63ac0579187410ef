# SPDX-License-Identifier: Apache-2.0
"""What the runtime adds to a driver's own time: a run with MobileNet V2's signature, and each step of a compound plan.

    python benchmarks/overhead.py [--runs N] [--json FILE]

The devices compute nothing, so that what is left is the runtime. Time in the driver is taken inside it and subtracted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.execution import Execution
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.validation import validate_model
from nn_runtime.model import Model
from nn_runtime.network import Network
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import NullDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import CacheRequest, IPreparedModel
    from nn_runtime.hal.types import ExecutionPreference, ExecutionResult, Priority, Request
    from nn_runtime.hal.types import Model as HalModel

STEPS = (2, 11, 21)
IMAGE = OperandType(OperandCode.TENSOR_FLOAT32, (1, 224, 224, 3))
CLASSES = OperandType(OperandCode.TENSOR_FLOAT32, (1, 1001))
ROW = OperandType(OperandCode.TENSOR_FLOAT32, (1, 16))
ALTERNATING = (OperationCode.RELU, OperationCode.TANH)


class Clock:
    """Adds up the time spent in prepared models."""

    def __init__(self) -> None:
        """Start at zero."""
        self.ns = 0


class TimedModel:
    """A prepared model that computes nothing and says how long that took."""

    def __init__(self, prepared: IPreparedModel, clock: Clock) -> None:
        """Wrap a null device's prepared model."""
        self._prepared = prepared
        self._clock = clock

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute and add the time."""
        start = time.perf_counter_ns()
        result = self._prepared.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        self._clock.ns += time.perf_counter_ns() - start
        return result

    def close(self) -> None:
        """Close the prepared model."""
        self._prepared.close()


class TimedDevice(NullDevice):
    """A null device for some operations (None: all) that tells the time spent in it."""

    def __init__(self, name: str, clock: Clock, codes: Sequence[int] | None = None) -> None:
        """Take the operations of `codes`."""
        super().__init__(name)
        self._clock = clock
        self._codes = codes

    def explain_operations(self, model: HalModel) -> Sequence[OperationSupport]:
        """Take the operations of `codes`."""
        validate_model(model)
        return [OperationSupport(self._codes is None or one.type in self._codes, "") for one in model.main.operations]

    def prepare_model(  # type: ignore[override]
        self,
        model: HalModel,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> IPreparedModel:
        """Prepare nothing."""
        prepared = super().prepare_model(model, preference, priority, deadline_ns, cache)
        return TimedModel(prepared, self._clock)  # type: ignore[return-value]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {
        "compute_us": compute_us(arguments.runs),
        "session_us": session_us(arguments.runs),
        "input_copy_us": copy_us(arguments.runs),
        "step_us": step_us(arguments.runs),
    }
    print(f"Execution.compute, MobileNet V2's signature: {found['compute_us']:.1f} us above the driver (limit 50)")
    print(
        f"Session.run, the same: {found['session_us']:.1f} us above the driver (limit 50), "
        f"of which copying the picture in takes {found['input_copy_us']:.1f}"
    )
    print(f"compound plan: {found['step_us']:.1f} us a step (limit 30)")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def compute_us(runs: int) -> float:
    """Return the overhead of a reusable execution with arrays bound."""
    clock = Clock()
    with Compilation(picture_model(), [Device(TimedDevice("null", clock))]) as compilation:
        compilation.finish()
        execution = Execution(compilation)
        execution.set_reusable(True)
        execution.set_input(0, np.zeros(IMAGE.dims, np.float32))
        execution.set_output(0, np.zeros(CLASSES.dims, np.float32))
        return overhead_us(execution.compute, clock, runs)


def session_us(runs: int) -> float:
    """Return the overhead of Session.run, which copies the picture in and the classes out."""
    clock = Clock()
    image = np.zeros(IMAGE.dims, np.float32)
    device = Device(TimedDevice("null", clock))
    with Network.from_model(picture_model()) as network, network.compile([device]) as session:
        return overhead_us(lambda: session.run(image), clock, runs)


def copy_us(runs: int) -> float:
    """Return the time of copying one picture between arrays."""
    source, target = np.zeros(IMAGE.dims, np.float32), np.zeros(IMAGE.dims, np.float32)
    return overhead_us(lambda: np.copyto(target, source), Clock(), runs)


def step_us(runs: int) -> float:
    """Return what a step more costs above the driver: the slope over plans of different lengths."""
    times = []
    for steps in STEPS:
        clock = Clock()
        devices = [Device(TimedDevice(f"null{at}", clock, [code])) for at, code in enumerate(ALTERNATING)]
        with Compilation(alternating_model(steps), devices) as compilation:
            compilation.finish()
            if compilation.plan is None or len(compilation.plan.steps) != steps:
                raise SystemExit(f"wanted a plan of {steps} steps")
            execution = Execution(compilation)
            execution.set_reusable(True)
            execution.set_input(0, np.zeros(ROW.dims, np.float32))
            execution.set_output(0, np.zeros(ROW.dims, np.float32))
            times.append(overhead_us(execution.compute, clock, runs))
    return float(np.polyfit(STEPS, times, 1)[0])


def overhead_us(run: Callable[[], object], clock: Clock, runs: int) -> float:
    """Return the median time of a run less the time in the driver."""
    found: list[float] = []
    for _ in range(runs):
        clock.ns = 0
        start = time.perf_counter_ns()
        run()
        found.append((time.perf_counter_ns() - start - clock.ns) / 1e3)
    return statistics.median(found)


def picture_model() -> Model:
    """Return a model with MobileNet V2's input and output; what is between does not matter to the runtime."""
    model = Model()
    image, classes = model.add_operand(IMAGE), model.add_operand(CLASSES)
    begin, size = (model.add_operand(OperandType(OperandCode.TENSOR_INT32, (4,))) for _ in range(2))
    part = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (1, 1001, 1, 1)))
    flat = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (1, 224 * 224 * 3, 1, 1)))
    shapes = [model.add_operand(OperandType(OperandCode.TENSOR_INT32, (count,))) for count in (4, 2)]
    model.set_operand_value(begin, np.zeros(4, np.int32))
    model.set_operand_value(size, np.array([1, 1001, 1, 1], np.int32))
    model.set_operand_value(shapes[0], np.array([1, 224 * 224 * 3, 1, 1], np.int32))
    model.set_operand_value(shapes[1], np.array([1, 1001], np.int32))
    model.add_operation(OperationCode.RESHAPE, [image, shapes[0]], [flat])
    model.add_operation(OperationCode.SLICE, [flat, begin, size], [part])
    model.add_operation(OperationCode.RESHAPE, [part, shapes[1]], [classes])
    model.identify_inputs_and_outputs([image], [classes])
    model.finish()
    return model


def alternating_model(steps: int) -> Model:
    """Return a chain of operations that two devices take in turn."""
    model = Model()
    value = source = model.add_operand(ROW)
    for at in range(steps):
        result = model.add_operand(ROW)
        model.add_operation(ALTERNATING[at % 2], [value], [result])
        value = result
    model.identify_inputs_and_outputs([source], [value])
    model.finish()
    return model


if __name__ == "__main__":
    main()

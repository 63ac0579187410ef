# SPDX-License-Identifier: Apache-2.0
"""Random graphs over random devices (AOSP TestPartitioningRandom): cut into parts they compute what they do whole.

The devices have disjoint operations and any version of the HAL; what none takes is the CPU's. Sizes and ranks of some
temporaries and outputs are known only at run time. `--long` runs all 225 graphs.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import FeatureLevel, FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.execution import Execution
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.testing.aosp_samples import fake
from tests.nn_runtime.graphs import scalar, tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.testing.aosp_samples import Fake

GRAPHS = 225
QUICK_SHARE = 6
SIZE = 3
DIMS = (SIZE, SIZE)
OP = OperationCode
VERSIONS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)

# Operations on square matrices by what follows their tensor inputs: of HAL 1.0, 1.1, 1.2 and 1.3.
UNARY = (OP.FLOOR, OP.LOGISTIC, OP.RELU, OP.RELU1, OP.RELU6, OP.TANH, OP.ABS, OP.NEG, OP.SIN, OP.HARD_SWISH)
BINARY = (OP.MAXIMUM, OP.MINIMUM, OP.PRELU)
FUSED = (OP.ADD, OP.MUL, OP.SUB)
OTHERS = (OP.SOFTMAX, OP.TRANSPOSE, OP.ELU, OP.CONCATENATION)
CODES = (*UNARY, *BINARY, *FUSED, *OTHERS)


@dataclass
class Graph:
    """A model with the number of its inputs and of its outputs."""

    model: Model
    input_count: int
    output_count: int
    operations: list[OperationCode] = field(default_factory=list)


class Builder:
    """Draws one model."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.model = Model()
        self.unknown = generator.choice((0.0, 0.0, 0.3))
        self.codes: list[OperationCode] = []

    def build(self) -> Graph:
        inputs = [self.model.add_operand(tensor(*DIMS)) for _ in range(self.generator.randint(1, 4))]
        values, made, read = list(inputs), [], set()
        for _ in range(self.generator.randint(1, 24)):
            code = self.generator.choice(CODES)
            count = 2 if code in (*BINARY, *FUSED) else 1
            sources = [self.generator.choice(values[-6:] + inputs) for _ in range(count)]
            read.update(sources)
            result = self.model.add_operand(tensor(*self.dims()))
            self.model.add_operation(code, [*sources, *self.parameters(code)], [result])
            self.codes.append(code)
            values.append(result)
            made.append(result)
        outputs = [value for value in made if value not in read or self.generator.random() < 0.1]
        self.model.identify_inputs_and_outputs(inputs, outputs)
        self.model.finish()
        return Graph(self.model, len(inputs), len(outputs), self.codes)

    def dims(self) -> tuple[int, ...]:
        if self.generator.random() >= self.unknown:
            return DIMS
        return self.generator.choice(((0, SIZE), (SIZE, 0), (0, 0), ()))

    def parameters(self, code: OperationCode) -> list[int]:
        if code in FUSED:
            return [scalar(self.model, self.generator.choice((FuseCode.NONE, FuseCode.RELU)))]
        if code == OP.SOFTMAX:
            return [scalar(self.model, 0.5, OperandCode.FLOAT32)]
        if code == OP.ELU:
            return [scalar(self.model, 1.5, OperandCode.FLOAT32)]
        if code == OP.CONCATENATION:
            return [scalar(self.model, 0)]
        if code == OP.TRANSPOSE:
            order = self.model.add_operand(tensor(2, code=OperandCode.TENSOR_INT32))
            self.model.set_operand_value(order, np.array([1, 0], np.int32))
            return [order]
        return []


def random_fakes(generator: random.Random) -> list[Fake]:
    """Up to five devices with disjoint operations, some codes being no device's."""
    codes = list(CODES)
    generator.shuffle(codes)
    count = generator.randint(1, 5)
    newest = generator.choice((False, True))
    parts = [codes[start::6] for start in range(count)]
    return [
        fake(f"device{at}", VERSIONS[-1] if newest else generator.choice(VERSIONS), set(part))
        for at, part in enumerate(parts)
    ]


def execute(
    generator: random.Random, graph: Graph, compilation: Compilation, inputs: Sequence[np.ndarray], plain: bool
) -> list[np.ndarray]:
    """Compute once: in arrays and synchronously, or with arrays and memories mixed, in one of the four ways."""
    execution = Execution(compilation)
    results: list[Callable[[], np.ndarray]] = []
    for at, array in enumerate(inputs):
        if plain or generator.random() < 0.5:
            execution.set_input(at, array)
        else:
            execution.set_input_from_memory(at, Memory.from_array(array), 0, array.nbytes)
    known = tensor(*DIMS)
    for at in range(graph.output_count):
        array = np.full(DIMS, np.nan, np.float32)
        if plain or generator.random() < 0.5:
            execution.set_output(at, array, known)
            results.append(lambda array=array: array)  # type: ignore[misc]
        else:
            memory = Memory.from_array(array)
            execution.set_output_from_memory(at, memory, 0, array.nbytes, known)
            results.append(lambda memory=memory: memory.to_array(np.float32, DIMS))  # type: ignore[misc]
    ways = (execution.compute, lambda: execution.start_compute().wait(),
            lambda: execution.burst_compute(Burst(compilation)),
            lambda: execution.start_compute_with_dependencies([]).wait())  # fmt: skip
    (ways[0] if plain else generator.choice(ways))()
    assert all(execution.get_output_operand_dimensions(at) == DIMS for at in range(graph.output_count))
    return [result() for result in results]


def steps_of(compilation: Compilation) -> int:
    assert compilation.plan is not None
    return len(compilation.plan.steps)


@pytest.mark.parametrize("share", range(QUICK_SHARE))
def test_partitioned_equals_unpartitioned(share: int, is_long: bool) -> None:
    if share and not is_long:
        pytest.skip("one graph in six without --long")
    steps: Counter[bool] = Counter()
    for seed in range(share, GRAPHS, QUICK_SHARE):
        generator = random.Random(seed)
        graph = Builder(generator).build()
        inputs = [np.float32(at + 1) * np.linspace(-2, 2, SIZE * SIZE, dtype=np.float32).reshape(DIMS)
                  for at in range(graph.input_count)]  # fmt: skip
        whole = Compilation(graph.model, [reference_device()])
        whole.finish()
        wanted = execute(generator, graph, whole, inputs, plain=True)
        devices = [Device(one.device) for one in random_fakes(generator)]
        divided = Compilation.for_selection(graph.model, Selection((*devices, reference_device()), False))
        divided.finish()
        steps[steps_of(divided) > 1] += 1
        for at, array in enumerate(execute(generator, graph, divided, inputs, plain=False)):
            names = ", ".join(code.name for code in graph.operations)
            np.testing.assert_array_equal(array, wanted[at], f"seed {seed}, output {at}: {names}")
        divided.close()
        whole.close()
    assert steps[True] > sum(steps.values()) // 2

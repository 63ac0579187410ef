# SPDX-License-Identifier: Apache-2.0
"""Random IF and WHILE inside each other over random devices: interpreted they compute what the CPU driver does whole.

No device takes control flow itself, and none may take over: a plan that fails does so here. `--long` runs more models.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import reference_device
from nn_runtime.model import Model
from nn_runtime.program import IfStep, WhileStep
from tests.nn_runtime.graphs import add, flag, numbers, refer, scalar, tensor
from tests.nn_runtime.test_partition import plan_of
from tests.nn_runtime.testing.test_partitioning_random import DIMS, Graph, execute, random_fakes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import OperandType

MODELS = 40
MODELS_LONG = 400
DEPTH = 2
"""How deep control flow lies in other control flow."""
OP = OperationCode
UNARY = (OP.ABS, OP.FLOOR, OP.NEG, OP.RELU, OP.TANH)
BINARY = (OP.MAXIMUM, OP.MINIMUM)
MATRIX, COUNT = tensor(*DIMS), tensor(1, code=OperandCode.TENSOR_INT32)


class Builder:
    """Draws one model; all its values are matrices, but for what counts the turns of loops."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator

    def build(self) -> Graph:
        model = Model()
        inputs = [model.add_operand(MATRIX) for _ in range(2)]
        output_count = self.generator.randint(1, 3)
        self.finish(model, inputs, self.results(model, inputs, output_count, DEPTH))
        return Graph(model, len(inputs), output_count)

    def results(self, model: Model, values: Sequence[int], count: int, depth: int) -> list[int]:
        """Append operations on some values; return the sum of their results, which uses all, and others of them."""
        known, made = list(values), list[int]()
        wanted = count + self.generator.randint(1, 2)
        while len(made) < wanted:
            kind = self.generator.random()
            if depth == 0 or kind < 0.6:
                new = [self.computed(model, known)]
            else:
                new = (self.branching if kind < 0.8 else self.looping)(model, known, depth - 1)
            known += new
            made += new
        total = made[0]
        for value in made[1:]:
            before, total = total, model.add_operand(MATRIX)
            add(model, before, value, total)
        return [total, *self.generator.sample(made, count - 1)]

    def computed(self, model: Model, values: Sequence[int]) -> int:
        code = self.generator.choice((*UNARY, *BINARY))
        sources = self.generator.choices(values, k=2 if code in BINARY else 1)
        result = model.add_operand(MATRIX)
        model.add_operation(code, sources, [result])
        return result

    def branching(self, model: Model, values: Sequence[int], depth: int) -> list[int]:
        """Append an IF of whether the maximum of a value is greater than a constant."""
        axes = constant(model, tensor(2, code=OperandCode.TENSOR_INT32), [0, 1])
        greatest, condition = model.add_operand(tensor(1)), flag(model)
        keeps = scalar(model, False, OperandCode.BOOL)
        model.add_operation(OP.REDUCE_MAX, [self.generator.choice(values), axes, keeps], [greatest])
        limit = constant(model, tensor(1), [self.generator.choice((-0.5, 0.5, 1.5))])
        model.add_operation(OP.GREATER, [greatest, limit], [condition])
        arguments = self.generator.choices(values, k=self.generator.randint(1, 3))
        output_count = self.generator.randint(1, 2)
        branches = []
        for _ in range(2):
            branch = Model()
            inputs = [branch.add_operand(MATRIX) for _ in arguments]
            branches.append(self.finish(branch, inputs, self.results(branch, inputs, output_count, depth)))
        outputs = [model.add_operand(MATRIX) for _ in range(output_count)]
        model.add_operation(OP.IF, [condition, *(refer(model, branch) for branch in branches), *arguments], outputs)
        return outputs

    def looping(self, model: Model, values: Sequence[int], depth: int) -> list[int]:
        """Append a WHILE of up to four turns, with values that it changes and others that it only reads."""
        state_count = self.generator.randint(1, 3)
        arguments = self.generator.choices(values, k=state_count + self.generator.randint(0, 2))
        condition, body = Model(), Model()
        count, *rest = (condition.add_operand(kind) for kind in (COUNT, *[MATRIX] * len(arguments)))
        goes_on = flag(condition)
        condition.add_operation(OP.LESS, [count, constant(condition, COUNT, [self.generator.randint(0, 4)])], [goes_on])
        self.finish(condition, [count, *rest], [goes_on])
        count, *rest = (body.add_operand(kind) for kind in (COUNT, *[MATRIX] * len(arguments)))
        next_count = body.add_operand(COUNT)
        add(body, count, constant(body, COUNT, [1]), next_count)
        self.finish(body, [count, *rest], [next_count, *self.results(body, rest, state_count, depth)])
        start = constant(model, COUNT, [0])
        outputs = [model.add_operand(kind) for kind in (COUNT, *[MATRIX] * state_count)]
        model.add_operation(OP.WHILE, [refer(model, condition), refer(model, body), start, *arguments], outputs)
        return outputs[1:]

    @staticmethod
    def finish(model: Model, inputs: Sequence[int], outputs: Sequence[int]) -> Model:
        model.identify_inputs_and_outputs(inputs, outputs)
        model.finish()
        return model


def constant(model: Model, kind: OperandType, values: Sequence[float]) -> int:
    index = model.add_operand(kind)
    model.set_operand_value(index, np.array(values, np.float32 if kind.type == tensor().type else np.int32))
    return index


def test_interpreted_equals_whole(is_long: bool) -> None:
    interpreted = 0
    for seed in range(MODELS_LONG if is_long else MODELS):
        generator = random.Random(seed)
        graph = Builder(generator).build()
        inputs = [numbers(*DIMS), numbers(*DIMS)[::-1].copy()]
        whole = Compilation(graph.model, [reference_device()])
        whole.set_partition("cost")
        whole.finish()
        assert plan_of(whole).is_simple
        wanted = execute(generator, graph, whole, inputs, plain=True)
        devices = [Device(one.device) for one in random_fakes(generator)]
        divided = Compilation(graph.model, [*devices, reference_device()])
        divided.finish()
        interpreted += any(isinstance(step, IfStep | WhileStep) for step in plan_of(divided).program)
        for at, array in enumerate(execute(generator, graph, divided, inputs, plain=False)):
            np.testing.assert_array_equal(array, wanted[at], f"seed {seed}, output {at}")
        divided.close()
        whole.close()
    assert interpreted > 20

# SPDX-License-Identifier: Apache-2.0
"""Operators whose inputs and options make no sense are converted or refused, and never anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import NNError
from tests.nn_runtime.tflite.operator_file import Tensor, constant, int8, real
from tests.nn_runtime.tflite.test_converter import CASES

if TYPE_CHECKING:
    from tests.nn_runtime.tflite.operator_cases import Case

MUTATIONS, LONG_MUTATIONS = 3, 40
NUMBERS = [-(2**31), -5, -1, 0, 1, 2, 3, 4, 7, 100, 2**31 - 1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_mutated_operator_is_converted_or_refused(case: Case, is_long: bool) -> None:
    rng = np.random.default_rng(len(str(case)))
    for _ in range(LONG_MUTATIONS if is_long else MUTATIONS):
        mutated = case
        for _ in range(rng.integers(1, 3)):
            mutated = mutate(mutated, rng)
        try:
            nn.load(mutated.file()[0])
        except NNError:
            continue


def mutate(case: Case, rng: np.random.Generator) -> Case:
    """Return a case with one thing changed: an input's shape, content, place or presence, an option, an output."""
    inputs = list(case.inputs)
    if not inputs:
        return case
    at = int(rng.integers(len(inputs)))
    kind = int(rng.integers(7))
    if kind == 0:
        inputs[at] = None
    elif kind == 1:
        other = int(rng.integers(len(inputs)))
        inputs[at], inputs[other] = inputs[other], inputs[at]
    elif kind == 2:
        inputs = inputs[:at]
    elif kind == 3:
        inputs[at] = mutated_tensor(inputs[at], rng)
    elif kind == 4:
        inputs[at] = [real(), real(2, 3), int8(0.1, 3, 4), constant([3]), constant(np.zeros((0,), np.int32))][at % 5]
    elif kind == 5 and case.values:
        name = str(rng.choice(list(case.values)))
        return replace(case, values={**case.values, name: mutated_option(case.values[name], rng)})
    else:
        outputs = [mutated_tensor(output, rng) or output for output in case.outputs]
        return replace(case, outputs=outputs)
    return replace(case, inputs=inputs)


def mutated_option(value: object, rng: np.random.Generator) -> Any:
    if isinstance(value, bool | tuple):
        return value
    if isinstance(value, list) and value:
        at = int(rng.integers(len(value)))
        return [*value[:at], type(value[at])(rng.choice(NUMBERS)), *value[at + 1 :]]
    return float(rng.choice(NUMBERS)) if isinstance(value, float) else int(rng.choice([-1, 0, 1, 2, 3, 5, 100]))


def mutated_tensor(tensor: Tensor | None, rng: np.random.Generator) -> Tensor | None:
    """Return a tensor of another shape, or a constant with another element."""
    if tensor is None:
        return None
    if tensor.data is not None and tensor.data.size:
        data = tensor.data.copy()
        data.reshape(-1)[rng.integers(data.size)] = np.array(rng.choice(NUMBERS)).astype(data.dtype)
        return replace(tensor, data=data)
    shape = list(tensor.shape)
    if shape and rng.integers(2):
        shape[rng.integers(len(shape))] = int(rng.choice([0, 1, 2, 3, 9]))
    else:
        shape = shape[1:] if rng.integers(2) else [*shape, 2]
    return replace(tensor, shape=tuple(shape), data=None)

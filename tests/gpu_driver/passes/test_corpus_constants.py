# SPDX-License-Identifier: Apache-2.0
"""Examples of the corpus whose inputs the model holds: computed at preparation, with the results that are expected."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import DataLocation, HalError, Model, Operand, OperandLifeTime, Operation, Subgraph
from nn_runtime.operand import dtype_of
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.corpus import judge, read_spec, spec_files
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpu_driver.driver import Device
    from nn_runtime.testing.corpus import Example

FILE_STEP, SAMPLE_STEP = 7, 5
"""The quick suite takes one file in so many, and one example in so many of those."""
TILED = {
    OperandCode.TENSOR_FLOAT16,
    OperandCode.TENSOR_FLOAT32,
    OperandCode.TENSOR_INT32,
    OperandCode.TENSOR_QUANT8_ASYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
}
"""Types that TILE takes."""


def examples(folder: Path, file_step: int) -> Iterator[Example]:
    """Give the examples that can be written with constants alone, and copies of their outputs."""
    for path in spec_files(folder)[::file_step]:
        for example in read_spec(path):
            graph = example.main
            inputs_known = all(data is not None and data.size for data in example.inputs)
            outputs = [graph.operands[i] for i in graph.outputs]
            sizes = (0 not in expected.dimensions and expected.values.size for expected in example.outputs)
            if (
                inputs_known
                and not (example.expect_failure or example.infinite_loop or example.referenced)
                and all(operand.type in TILED for operand in outputs)
                and all(sizes)
            ):
                yield example


def with_constants(example: Example) -> Model:
    """Return the example with constants for inputs, and each output read by a TILE that copies it."""
    model = hal_model(example)
    operands, operations = list(model.main.operands), list(model.main.operations)
    for i, data in zip(model.main.input_indexes, example.inputs, strict=True):
        if data is None:
            raise ValueError(f"{example.name}: input {i} has no value")
        array = np.ascontiguousarray(data).reshape(operands[i].dimensions)
        location = DataLocation(length=array.nbytes, pointer=array)
        operands[i] = replace(operands[i], lifetime=OperandLifeTime.POINTER, location=location)
    outputs = []
    for i, expected in zip(model.main.output_indexes, example.outputs, strict=True):
        rank = len(expected.dimensions)
        ones = np.ones(rank, np.int32)
        location = DataLocation(length=ones.nbytes, pointer=ones)
        operands.append(Operand(OperandCode.TENSOR_INT32, (rank,), lifetime=OperandLifeTime.POINTER, location=location))
        operands.append(replace(operands[i], dimensions=expected.dimensions))
        operands[i] = replace(operands[i], lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
        operations.append(Operation(OperationCode.TILE, (i, len(operands) - 2), (len(operands) - 1,)))
        outputs.append(len(operands) - 1)
    return replace(model, main=Subgraph(tuple(operands), tuple(operations), (), tuple(outputs)))


def test_the_corpus_on_constants(opencl_device: Device, corpus_folder: Path, is_long: bool) -> None:
    problems: list[str] = []
    tried = folded = 0
    sample = examples(corpus_folder, 1) if is_long else islice(examples(corpus_folder, FILE_STEP), 0, None, SAMPLE_STEP)
    for example in sample:
        model = with_constants(example)
        try:
            if not all(opencl_device.get_supported_operations(model)):
                continue
        except HalError:
            continue  # what such an operation takes only as an input, or a signature without the type
        prepared = prepare(opencl_device, model)
        outputs = [
            np.zeros(expected.dimensions, dtype_of(model.main.operands[i].type))
            for i, expected in zip(model.main.output_indexes, example.outputs, strict=True)
        ]
        run(prepared, request([], outputs))
        tried += 1
        folded += len(prepared._graph.subgraph.operations) == len(outputs)
        for i, (output, expected) in enumerate(zip(outputs, example.outputs, strict=True)):
            problem = judge(example, i, expected.dimensions, output.reshape(-1))
            if problem:
                problems.append(f"{example.name}: {problem}")
        prepared.close()
    assert not problems
    assert tried > 20
    assert folded > 0.9 * tried

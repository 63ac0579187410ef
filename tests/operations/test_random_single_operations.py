# SPDX-License-Identifier: Apache-2.0
"""Random single operations as each version of the HAL knows them (AOSP SingleOperationTest of TestRandomGraph).

The CPU is compared with its functions in float64, every other device with the CPU. `--long` draws 50 of each case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.hal.versions.defaults import without_default_arguments
from nn_runtime.operations import OperationView, validate
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.random_graph import Size, compare, example_of, execute, generate, judged
from tests.operations.wide import execute_wide, float64_functions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.device import Device
    from nn_runtime.testing.random_graph import Node, RandomGraph

OPERATIONS = {
    FeatureLevel.HAL_1_0: """
        ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
        FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC MAX_POOL_2D
        MUL RELU RELU1 RELU6 RESHAPE RESIZE_BILINEAR SOFTMAX SPACE_TO_DEPTH TANH
    """,
    FeatureLevel.HAL_1_1: "BATCH_TO_SPACE_ND DIV MEAN PAD SPACE_TO_BATCH_ND SQUEEZE STRIDED_SLICE SUB TRANSPOSE",
    FeatureLevel.HAL_1_2: """
        ABS ADD ARGMAX ARGMIN AVERAGE_POOL_2D BATCH_TO_SPACE_ND CAST CHANNEL_SHUFFLE CONCATENATION CONV_2D
        DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV EMBEDDING_LOOKUP EQUAL EXP EXPAND_DIMS FLOOR FULLY_CONNECTED
        GATHER GREATER GREATER_EQUAL GROUPED_CONV_2D HEATMAP_MAX_KEYPOINT INSTANCE_NORMALIZATION L2_NORMALIZATION
        L2_POOL_2D LESS LESS_EQUAL LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC
        LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NEG NOT_EQUAL PAD PAD_V2 POW PRELU QUANTIZE REDUCE_ALL
        REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM RELU RELU1 RELU6 RESHAPE RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR ROI_ALIGN ROI_POOLING RSQRT SELECT SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH
        SPLIT SQRT SQUEEZE STRIDED_SLICE SUB TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV_2D
    """,
    FeatureLevel.HAL_1_3: """
        ABS ADD ARGMAX ARGMIN AVERAGE_POOL_2D BATCH_TO_SPACE_ND CAST CHANNEL_SHUFFLE CONCATENATION CONV_2D
        DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV ELU EMBEDDING_LOOKUP EQUAL EXPAND_DIMS FILL FULLY_CONNECTED
        GATHER GREATER GREATER_EQUAL GROUPED_CONV_2D HARD_SWISH HEATMAP_MAX_KEYPOINT L2_NORMALIZATION LESS LESS_EQUAL
        LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NOT_EQUAL PAD PAD_V2 PRELU QUANTIZE RANK REDUCE_MAX REDUCE_MIN
        RELU RELU1 RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR ROI_ALIGN ROI_POOLING SELECT SLICE SOFTMAX
        SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SQUEEZE STRIDED_SLICE SUB TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV_2D
    """,
}
"""The operations with something that the version brought: themselves, a type, a rank or an argument."""
CASES = [(OperationCode[name], level) for level, names in OPERATIONS.items() for name in names.split()]
"""Android's 179 cases."""
SEEDS_PER_GRAPH = 1000
"""So many seeds are tried for each graph of the version."""


def _without_defaults(graph: RandomGraph) -> RandomGraph:
    """Return a graph of one operation without the trailing arguments that an older version lacks."""
    (node,) = graph.nodes
    model = without_default_arguments(hal_model(example_of(replace(graph, dynamic=False))))
    kept = len(model.main.operations[0].inputs)
    return replace(graph, nodes=(replace(node, inputs=node.inputs[:kept]),))


def _level(node: Node) -> FeatureLevel:
    return validate(OperationView(node.code, node.inputs, node.outputs))


def _graphs(code: OperationCode, level: FeatureLevel, count: int, device: Device) -> Iterator[RandomGraph]:
    """Yield graphs of one operation that need the version and no more."""
    found = 0
    for seed in range(count * SEEDS_PER_GRAPH):
        graph = _without_defaults(generate(seed, Size.SINGLE, device.hal, codes=[code]))
        if _level(graph.nodes[0]) == level:
            yield graph
            found += 1
            if found == count:
                return
    raise RuntimeError(f"{code.name}: {found} graphs of {level.name} in {count * SEEDS_PER_GRAPH} seeds")


@pytest.mark.parametrize(("code", "level"), CASES, ids=[f"{code.name}-{level.name}" for code, level in CASES])
def test_operation_of_a_version(
    code: OperationCode, level: FeatureLevel, device: Device, reference_device: Device, is_long: bool
) -> None:
    for graph in _graphs(code, level, 50 if is_long else 1, reference_device):
        if device.is_reference:
            with float64_functions(), np.errstate(all="ignore"):
                wanted = execute_wide(graph)
            problem = judged(graph, wanted, execute(graph, device.hal))
        else:
            problem = compare(graph, reference_device.hal, device.hal)
        assert not problem, f"seed {graph.seed}: {problem}"


@pytest.mark.parametrize("size", [Size.SMALL, Size.LARGE], ids=lambda size: size.value)
def test_graphs_reach_every_type_and_rank(size: Size, reference_device: Device) -> None:
    """The graphs of `test_random_graphs.py` join operations on each of Android's pairs of type and rank."""
    joined: dict[tuple[int, int], int] = {}
    for seed in range(150 if size == Size.SMALL else 25):
        graph = generate(seed, size, reference_device.hal)
        made = {id(value) for node in graph.nodes for value in node.outputs}
        read = [value for node in graph.nodes for value in node.inputs if id(value) in made]
        for pair in {(value.type, len(value.dimensions)) for value in read}:
            joined[pair] = joined.get(pair, 0) + 1
    types = ("TENSOR_FLOAT32", "TENSOR_FLOAT16", "TENSOR_INT32", "TENSOR_BOOL8")
    missing = [(name, rank) for name in types for rank in range(1, 5) if not joined.get((OperandCode[name], rank))]
    assert not missing

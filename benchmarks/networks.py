# SPDX-License-Identifier: Apache-2.0
"""The networks: where they are, inputs with the right answers, and the same networks for other sizes of the input.

They are found in NNRT_MODEL_DIR (default: ../shared/models beside the checkout).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import Builder

if TYPE_CHECKING:
    from collections.abc import Iterator

Array: TypeAlias = npt.NDArray[Any]
Graph: TypeAlias = "schema.SubGraphT"

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[2] / "shared" / "models"))
FLOAT, QUANT, PER_CHANNEL = "mobilenet_v2_1.0_224_float", "mobilenet_v2_1.0_224_quant", "tf2_mobilenet_v2_1.0_224_ptq"
DEEPLAB = "deeplabv3_mnv2_pascal_quant"
RECURRENT = ("trained_lstm", "keras_lstm_mnist_ptq", "dtln_noise_suppression")
TITLES = {
    FLOAT: "MobileNet V2 float32",
    QUANT: "MobileNet V2 8-bit per tensor",
    PER_CHANNEL: "MobileNet V2 8-bit per channel",
    DEEPLAB: "deeplab 8-bit",
    "trained_lstm": "LSTM float32 (28 steps)",
    "keras_lstm_mnist_ptq": "LSTM 8-bit (28 steps)",
    "dtln_noise_suppression": "noise suppression (2 LSTM) 8-bit",
}
MOBILENETS = (FLOAT, PER_CHANNEL, QUANT)
"""What is compared with other engines over OpenCL, and looked into: slowest runs, what the driver adds."""
SCALED = (FLOAT, QUANT)
"""What is measured with other inputs too."""
OPERATORS = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}


def missing() -> list[str]:
    """Return the files of the networks, and of their right answers, that are not there."""
    wanted = [path for name in TITLES for path in (f"{name}.tflite", f"golden/{name}.npz")]
    return [path for path in wanted if not (MODELS / path).is_file()]


def model_bytes(name: str) -> bytes:
    """Return a network's file."""
    return (MODELS / f"{name}.tflite").read_bytes()


def golden(name: str) -> tuple[Array, Array]:
    """Return the first case of a network: input, and output of LiteRT's reference kernels."""
    with np.load(MODELS / "golden" / f"{name}.npz") as arrays:
        return arrays["in0_0"], arrays["ref0_0"]


@contextlib.contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """Put a network into a file, for engines that read nothing else."""
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        yield file.name


def parse(data: bytes) -> schema.ModelT:
    """Return a network as objects that can be changed."""
    return schema.ModelT.InitFromPackedBuf(data, 0)


def operator_name(model: schema.ModelT, operator: schema.OperatorT) -> str:
    """Return the name of an operator: CONV_2D."""
    code = model.operatorCodes[operator.opcodeIndex]
    name: str = OPERATORS[max(code.builtinCode, code.deprecatedBuiltinCode)]
    return name


def rescaled(data: bytes, batches: int, size: int) -> bytes:
    """Return a MobileNet for other pictures: [batches, size, size, 3]; its weights stay."""
    model = parse(data)
    graph = model.subgraphs[0]
    graph.tensors[graph.inputs[0]].shape = [batches, size, size, 3]
    for operator in graph.operators:
        kind = operator_name(model, operator)
        source, result = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
        _, height, width, depth = (*source.shape, 1, 1)[:4]
        options = operator.builtinOptions
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            if options.padding != schema.Padding.SAME and options.strideW * options.strideH != 1:
                raise ValueError(f"{kind} with padding VALID and a stride")
            height, width = -(-height // options.strideH), -(-width // options.strideW)
            result.shape = [batches, height, width, int(result.shape[3])]
        elif kind == "AVERAGE_POOL_2D":
            options.filterHeight, options.filterWidth = height, width
            result.shape = [batches, 1, 1, depth]
        elif kind == "RESHAPE":
            result.shape = [batches, *(int(one) for one in result.shape[1:])]
            constant = model.buffers[graph.tensors[operator.inputs[1]].buffer]
            constant.data = np.array(result.shape, np.int32).view(np.uint8)
        elif kind == "MEAN":
            result.shape = [batches, 1, 1, depth]
        elif kind in ("ADD", "SOFTMAX", "QUANTIZE"):
            result.shape = [int(one) for one in source.shape]
        else:
            raise ValueError(f"{kind}: how its output grows is not known here")
    return serialized(model)


def halved(data: bytes) -> bytes:
    """Return a float32 network with all tensors, and what they hold, in float16."""
    model = parse(data)
    for tensor in model.subgraphs[0].tensors:
        if tensor.type != schema.TensorType.FLOAT32:
            continue
        tensor.type = schema.TensorType.FLOAT16
        constant = model.buffers[tensor.buffer]
        if constant.data is not None:
            numbers = np.asarray(constant.data, np.uint8).view(np.float32)
            constant.data = numbers.astype(np.float16).view(np.uint8)
    return serialized(model)


def multiply_adds(data: bytes) -> int:
    """Return how many products a network of convolutions sums."""
    model = parse(data)
    graph = model.subgraphs[0]
    total = 0
    for operator in graph.operators:
        kind = operator_name(model, operator)
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            weights, result = graph.tensors[operator.inputs[1]], graph.tensors[operator.outputs[0]]
            of_output = weights.shape[1:] if kind == "CONV_2D" else weights.shape[1:3]
            total += int(np.prod(result.shape)) * int(np.prod(of_output))
    return total


def largest_live_bytes(data: bytes) -> int:
    """Return the largest sum of tensors alive at once while a network runs in file order, inputs and outputs apart."""
    graph = parse(data).subgraphs[0]
    ends = {*graph.inputs, *graph.outputs}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, operator in enumerate(graph.operators):
        for tensor in operator.outputs:
            first[int(tensor)] = at
        for tensor in (*operator.inputs, *operator.outputs):
            last[int(tensor)] = at
    sizes = {tensor: _size_bytes(graph.tensors[tensor]) for tensor in first if tensor not in ends}
    return max(
        sum(size for tensor, size in sizes.items() if first[tensor] <= at <= last[tensor])
        for at in range(len(graph.operators))
    )


def serialized(model: schema.ModelT) -> bytes:
    """Return the file of a network."""
    builder = Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _size_bytes(tensor: schema.TensorT) -> int:
    wide = (schema.TensorType.FLOAT32, schema.TensorType.INT32)
    return int(np.prod(tensor.shape)) * (4 if tensor.type in wide else 1)

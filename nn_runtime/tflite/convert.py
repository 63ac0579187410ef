# SPDX-License-Identifier: Apache-2.0
"""From a .tflite subgraph to a Network: one function per builtin operator, found by its code.

A function checks what its operator needs and emits NNAPI operations; their own validation does the rest. An operator
that nothing converts, or that NNAPI cannot express, is a BadData that names it, its index and the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from tflite.BuiltinOperator import BuiltinOperator

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.errors import BadData, NNError
from nn_runtime.network import Interface, Network, State, TensorInfo
from nn_runtime.operand import QUANT8_TYPES, ChannelQuant
from nn_runtime.tflite.folding import fold, strided_slices
from nn_runtime.tflite.graph_builder import (
    GraphBuilder,
    Operator,
    Value,
    Variable,
    constant,
    identity,
    int32,
    int32_vector,
    real,
    scalar,
    tensor_value,
)
from nn_runtime.tflite.mean import fits_mean_filter, mean_filter
from nn_runtime.tflite.reader import quoted
from nn_runtime.tflite.types import TensorType

if TYPE_CHECKING:
    from nn_runtime.tflite.types import TfliteModel, TfliteSubgraph

Conversion: TypeAlias = Callable[[Operator], None]
Shapes: TypeAlias = Mapping[str | int, Sequence[int]]
"""Shapes of inputs by tensor name, signature name or position."""

_CONVERSIONS: dict[int, Conversion] = {}
_ARITHMETIC = frozenset({TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT32, TensorType.UINT8, TensorType.INT8})
_LSTM_INPUTS = 20


def convert(
    model: TfliteModel, shapes: Shapes | None = None, subgraph_index: int = 0, preserve_all: bool = False
) -> Network:
    """Convert one subgraph of a file; raises BadData naming operator, index and reason.

    `shapes` gives inputs other shapes than the file's, by tensor name, signature name or position. Sizes that the file
    leaves open (-1) are otherwise those of the shape in the file, which is 1 from the usual exporters. `preserve_all`
    makes every tensor that an operator computes an output, after the file's own.
    """
    subgraph = model.subgraphs[subgraph_index]
    where = f"subgraph {subgraph_index}: " if subgraph_index else ""
    names = _signature_names(model, subgraph_index)
    builder = GraphBuilder()
    values = _inputs(subgraph, names, shapes or {})
    variables: dict[int, Variable] = {}
    for operator in subgraph.operators:
        try:
            _convert_operator(Operator(operator, subgraph, builder, values, variables))
        except NNError as error:
            reason = str(error).removeprefix(f"{operator.name}: ")
            raise BadData(f"{where}operator {operator.index} {operator.name}: {reason}") from error
    outputs = list(subgraph.outputs)
    if preserve_all:
        computed = {index for operator in subgraph.operators for index in operator.outputs}
        outputs += sorted(index for index in computed.difference(outputs) if values[index].data is None)
    return _finished(subgraph, outputs, names, builder, values, variables)


def supported_operators() -> list[int]:
    """Return the codes of the builtin operators that can be converted."""
    return sorted(_CONVERSIONS)


def _convert_operator(op: Operator) -> None:
    folded = fold(op)
    if folded is not None:
        op.result(constant(folded))
        return
    conversion = _CONVERSIONS.get(op.code)
    if conversion is None:
        op.fail("no NNAPI operation, nor a composition of some, is known for it")
    conversion(op)


def _signature_names(model: TfliteModel, subgraph_index: int) -> dict[int, str]:
    """Return the names that the subgraph's first signature gives to tensors."""
    signature = next((found for found in model.signatures if found.subgraph_index == subgraph_index), None)
    if signature is None:
        return {}
    return {index: name for names in (signature.outputs, signature.inputs) for name, index in names.items()}


def _inputs(subgraph: TfliteSubgraph, names: Mapping[int, str], shapes: Shapes) -> dict[int, Value]:
    """Return the values of the inputs; raises BadData for a shape that names no input or cannot be."""
    values: dict[int, Value] = {}
    left = dict(shapes)
    for position, index in enumerate(subgraph.inputs):
        tensor = subgraph.tensors[index]
        keys = [key for key in (tensor.name, names.get(index, tensor.name), position) if key in left]
        wanted = tuple(int(size) for size in left[keys[0]]) if keys else tensor.shape
        for key in keys:
            left.pop(key, None)
        if any(size <= 0 for size in wanted):
            raise BadData(f"input {position} {quoted(tensor.name)}: every size must be > 0, got {list(wanted)}")
        values[index] = tensor_value(tensor, wanted)
    if left:
        known = ", ".join(quoted(subgraph.tensors[index].name) for index in subgraph.inputs)
        raise BadData(f"shapes: no input is called {next(iter(left))!r}; the inputs are {known}")
    return values


def _finished(
    subgraph: TfliteSubgraph,
    output_indices: Sequence[int],
    names: Mapping[int, str],
    builder: GraphBuilder,
    values: dict[int, Value],
    variables: Mapping[int, Variable],
) -> Network:
    """Name the model's inputs and outputs, variables last, and finish it."""
    inputs = [values[index] for index in subgraph.inputs]
    sources = inputs + [variable.source for variable in variables.values()]
    outputs: list[Value] = []
    positions: dict[int, int] = {}
    for index in output_indices:
        if index not in positions:
            positions[index] = len(outputs)
            outputs.append(_own(builder, values.get(index) or tensor_value(subgraph.tensors[index]), sources, outputs))
            values[index] = outputs[-1]
    states: list[State] = []
    for variable in variables.values():
        source = len(inputs) + len(states)
        changed = variable.current is not variable.source
        states.append(State(source, len(outputs) if changed else None))
        if changed:
            outputs.append(_own(builder, variable.current, sources, outputs))
    model = builder.model
    model.identify_inputs_and_outputs(
        [builder.index(value) for value in sources], [builder.index(value) for value in outputs]
    )
    model.finish()
    infos = {index: _info(subgraph, names, values, index) for index in (*subgraph.inputs, *output_indices)}
    interface = Interface(
        tuple(infos[index] for index in subgraph.inputs),
        tuple(infos[index] for index in output_indices),
        tuple(positions[index] for index in output_indices),
        tuple(states),
    )
    return Network(model, interface)


def _own(builder: GraphBuilder, value: Value, sources: Sequence[Value], outputs: Sequence[Value]) -> Value:
    """Return a value that may be an output: written by an operation, and no other output."""
    taken = {builder.index(other) for other in (*sources, *outputs)}
    return identity(builder, value) if value.data is not None or builder.index(value) in taken else value


def _info(subgraph: TfliteSubgraph, names: Mapping[int, str], values: Mapping[int, Value], index: int) -> TensorInfo:
    tensor, value = subgraph.tensors[index], values[index]
    dtype = np.dtype(np.float32) if tensor.type.dtype is None else tensor.type.dtype.newbyteorder("=")
    scale, zero_point = (value.scale, value.zero_point) if tensor.quantization is not None else (0.0, 0)
    return TensorInfo(tensor.name, dtype, value.shape or (), scale, zero_point, names.get(index, ""), index)


def _converts(*codes: int) -> Callable[[Conversion], Conversion]:
    """Register a conversion for operator codes."""

    def register(conversion: Conversion) -> Conversion:
        _CONVERSIONS.update(dict.fromkeys(codes, conversion))
        return conversion

    return register


# Element-wise


def _arithmetic(op: Operator, code: OperationCode) -> None:
    """ADD, SUB, MUL, DIV: (input0, input1)."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    if op.output_tensor().type not in _ARITHMETIC:
        op.fail(f"type {op.output_tensor().type.name} is not supported")
    activation = int32(op.activation())
    if first.type in QUANT8_TYPES and _through_float(code, first, second, op.prototype()):
        op.result(op.through_float(code, [first, second], [activation]))
        return
    if code == OperationCode.DIV and first.type == OperandCode.TENSOR_INT32:
        op.fail("INT32 is not supported: NNAPI rounds the quotient down, TFLite towards zero")
    op.result(op.emit(code, [op.matched(first, second), op.matched(second, first), activation]))


def _through_float(code: OperationCode, first: Value, second: Value, output: Value) -> bool:
    """Tell whether NNAPI has no quantised form: DIV, and MUL into a scale that is not above the inputs' product."""
    return code == OperationCode.DIV or (code == OperationCode.MUL and output.scale <= first.scale * second.scale)


@_converts(BuiltinOperator.ADD)
def _add(op: Operator) -> None:
    _arithmetic(op, OperationCode.ADD)


@_converts(BuiltinOperator.SUB)
def _sub(op: Operator) -> None:
    _arithmetic(op, OperationCode.SUB)


@_converts(BuiltinOperator.MUL)
def _mul(op: Operator) -> None:
    _arithmetic(op, OperationCode.MUL)


@_converts(BuiltinOperator.DIV)
def _div(op: Operator) -> None:
    _arithmetic(op, OperationCode.DIV)


# Convolution, fully connected, pooling


def _padding(op: Operator) -> Value:
    """Padding option 0 SAME, 1 VALID, as a scalar."""
    number = op.option("padding")
    if number not in (0, 1):
        op.fail(f"padding must be 0 (SAME) or 1 (VALID), got {number}")
    return int32(PaddingCode.VALID if number else PaddingCode.SAME)


def _window(op: Operator, *extra: Value) -> list[Value]:
    """Inputs of a convolution from the padding on; dilations only where there are any."""
    rest = [_padding(op), int32(op.option("stride_w")), int32(op.option("stride_h")), *extra, int32(op.activation())]
    dilations = [op.option("dilation_w_factor"), op.option("dilation_h_factor")]
    if dilations == [1, 1]:
        return rest
    return [*rest, scalar(OperandCode.BOOL, False), *(int32(dilation) for dilation in dilations)]


@_converts(BuiltinOperator.CONV_2D)
def _conv_2d(op: Operator) -> None:
    """(input, filter [depth_out, height, width, depth_in], bias or none)."""
    source = op.input(0, "input", rank=4)
    weights = op.matched(op.input(1, "filter", rank=4), source)
    bias = op.bias(2, source, weights, (weights.shape or (0,))[0])
    op.result(op.emit(OperationCode.CONV_2D, [source, weights, bias, *_window(op)]))


@_converts(BuiltinOperator.DEPTHWISE_CONV_2D)
def _depthwise_conv_2d(op: Operator) -> None:
    """(input, filter [1, height, width, depth_out], bias or none); the multiplier follows from the shapes."""
    source = op.input(0, "input", rank=4)
    weights = op.matched(op.input(1, "filter", rank=4), source)
    depth_in, depth_out = (source.shape or (1,))[-1], (weights.shape or (0,))[-1]
    bias = op.bias(2, source, weights, depth_out)
    window = _window(op, int32(depth_out // depth_in))
    op.result(op.emit(OperationCode.DEPTHWISE_CONV_2D, [source, weights, bias, *window]))


@_converts(BuiltinOperator.FULLY_CONNECTED)
def _fully_connected(op: Operator) -> None:
    """(input, weights [units, input_size], bias or none); the result is 2-D unless keep_num_dims."""
    if op.option("weights_format"):
        op.fail("shuffled weights are not supported")
    source = op.input(0, "input")
    weights = op.matched(op.input(1, "weights", rank=2), source)
    units, size = weights.shape or (0, 0)
    shape = source.shape or ()
    bias = op.bias(2, source, weights, units)
    if size == 0 or math.prod(shape) % size:
        op.fail(f"input (input 0) must have whole rows of {size} elements, got {list(shape)}")
    if weights.channel_quant is None:
        rows = source if 2 <= len(shape) <= 4 else op.reshape(source, (-1, size))
        result = op.emit(OperationCode.FULLY_CONNECTED, [rows, weights, bias, int32(op.activation())])
    else:
        result = _per_channel_product(op, source, weights, bias)
    op.result(op.reshape(result, (*shape[:-1], units)) if op.option("keep_num_dims") else result)


def _per_channel_product(op: Operator, source: Value, weights: Value, bias: Value) -> Value:
    """Return a FULLY_CONNECTED with per-channel weights, as a convolution of 1 x 1 pixels."""
    units, size = weights.shape or (0, 0)
    if weights.data is None or weights.channel_quant is None or weights.channel_quant.channel_dim != 0:
        op.fail("weights (input 1) must have their channels in dimension 0")
    filters = Value(
        weights.type,
        (units, 1, 1, size),
        channel_quant=ChannelQuant(weights.channel_quant.scales, 0),
        data=weights.data.reshape(units, 1, 1, size),
    )
    rows = op.reshape(source, (math.prod(source.shape or ()) // size, 1, 1, size))
    window = [int32(PaddingCode.VALID), int32(1), int32(1), int32(op.activation())]
    return op.reshape(op.emit(OperationCode.CONV_2D, [rows, filters, bias, *window]), (-1, units))


def _pool(op: Operator, code: OperationCode) -> None:
    """AVERAGE_POOL_2D, MAX_POOL_2D: (input)."""
    source = op.input(0, "input", rank=4)
    sizes = [int32(op.option(name)) for name in ("stride_w", "stride_h", "filter_width", "filter_height")]
    inputs = [source, _padding(op), *sizes, int32(op.activation())]
    op.result_of_same_quantization(op.emit(code, inputs, source))


@_converts(BuiltinOperator.AVERAGE_POOL_2D)
def _average_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.AVERAGE_POOL_2D)


@_converts(BuiltinOperator.MAX_POOL_2D)
def _max_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.MAX_POOL_2D)


# Activations


def _relu(op: Operator, code: OperationCode, activation: FuseCode) -> None:
    """RELU and its kin: (input); a quantised one may rescale."""
    source, wanted = op.input(0, "input"), op.prototype()
    if source.is_quantized and not source.same_quantization(wanted):
        op.result(op.requantize(source, wanted, activation))
    else:
        op.result(op.emit(code, [source], source))


@_converts(BuiltinOperator.RELU)
def _relu_0(op: Operator) -> None:
    _relu(op, OperationCode.RELU, FuseCode.RELU)


@_converts(BuiltinOperator.RELU_N1_TO_1)
def _relu_1(op: Operator) -> None:
    _relu(op, OperationCode.RELU1, FuseCode.RELU1)


@_converts(BuiltinOperator.RELU6)
def _relu_6(op: Operator) -> None:
    _relu(op, OperationCode.RELU6, FuseCode.RELU6)


def _fixed_scale(op: Operator, code: OperationCode, scale: float, zero_point: int, *rest: Value) -> None:
    """Emit an operation whose quantised output has one scale and (unsigned) zero point, or go through float32."""
    source, wanted = op.input(0, "input"), op.prototype()
    shifted = wanted.zero_point + (128 if wanted.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0)
    if source.is_quantized and (source.type != wanted.type or (wanted.scale, shifted) != (scale, zero_point)):
        op.result(op.through_float(code, [source], rest))
    else:
        op.result(op.emit(code, [source, *rest]))


@_converts(BuiltinOperator.LOGISTIC)
def _logistic(op: Operator) -> None:
    _fixed_scale(op, OperationCode.LOGISTIC, 1 / 256, 0)


@_converts(BuiltinOperator.TANH)
def _tanh(op: Operator) -> None:
    _fixed_scale(op, OperationCode.TANH, 1 / 128, 128)


@_converts(BuiltinOperator.SOFTMAX)
def _softmax(op: Operator) -> None:
    _fixed_scale(op, OperationCode.SOFTMAX, 1 / 256, 0, scalar(OperandCode.FLOAT32, op.real_option("beta")))


@_converts(BuiltinOperator.HARD_SWISH)
def _hard_swish(op: Operator) -> None:
    op.result(op.emit(OperationCode.HARD_SWISH, [op.input(0, "input")]))


# Shape and movement


@_converts(BuiltinOperator.RESHAPE)
def _reshape(op: Operator) -> None:
    """(input, new shape or none): the shape is a constant, or an option."""
    source = op.input(0, "input")
    shape = op.integers(1, "shape") if op.optional(1) is not None else op.integer_options("new_shape")
    _reshaped(op, source, shape)


def _reshaped(op: Operator, source: Value, shape: Sequence[int]) -> None:
    if source.channel_quant is not None:
        op.fail("a per-channel quantised input is not supported")
    op.result_of_same_quantization(op.emit(OperationCode.RESHAPE, [source, int32_vector(shape or [1])], source))


@_converts(BuiltinOperator.SQUEEZE)
def _squeeze(op: Operator) -> None:
    """(input); no dimensions means every one of size 1."""
    source = op.input(0, "input")
    shape = source.shape or ()
    axes = {op.axis(axis, len(shape)) for axis in op.integer_options("squeeze_dims")}
    if any(shape[axis] != 1 for axis in axes):
        op.fail(f"squeeze_dims must name sizes 1 of {list(shape)}, got {sorted(axes)}")
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    _reshaped(op, source, [size for axis, size in enumerate(shape) if axis not in axes])


@_converts(BuiltinOperator.EXPAND_DIMS)
def _expand_dims(op: Operator) -> None:
    """(input, axis)."""
    source = op.input(0, "input")
    shape = list(source.shape or ())
    shape.insert(op.axis(op.integer(1, "axis"), len(shape) + 1), 1)
    _reshaped(op, source, shape)


@_converts(BuiltinOperator.TRANSPOSE)
def _transpose(op: Operator) -> None:
    """(input, permutation)."""
    source = op.input(0, "input")
    order = int32_vector(op.integers(1, "perm"))
    op.result_of_same_quantization(op.emit(OperationCode.TRANSPOSE, [source, order], source))


@_converts(BuiltinOperator.CONCATENATION)
def _concatenation(op: Operator) -> None:
    """(inputs ...)."""
    if op.activation() != FuseCode.NONE:
        op.fail("a fused activation is not supported")
    tensors = [op.input(position, "values") for position in range(op.input_count)]
    axis = op.axis(op.option("axis"), len(op.input(0, "values").shape or ()))
    op.result(op.emit(OperationCode.CONCATENATION, [*tensors, int32(axis)]))


@_converts(BuiltinOperator.PACK)
def _pack(op: Operator) -> None:
    """(inputs ...) of one shape: each gets an axis of size 1, then they are concatenated."""
    shape = op.input(0, "values").shape or ()
    axis = op.axis(op.option("axis"), len(shape) + 1)
    expanded = (*shape[:axis], 1, *shape[axis:])
    tensors = [op.reshape(op.input(position, "values"), expanded) for position in range(op.input_count)]
    op.result(op.emit(OperationCode.CONCATENATION, [*tensors, int32(axis)]))


def _split_evenly(op: Operator, source: Value, axis: int) -> list[Value]:
    count = op.output_count
    return op.emit_many(OperationCode.SPLIT, [source, int32(axis), int32(count)], [source] * count)


@_converts(BuiltinOperator.SPLIT)
def _split(op: Operator) -> None:
    """(axis, input)."""
    source = op.input(1, "value")
    axis = op.axis(op.integer(0, "axis"), len(source.shape or ()))
    for position, part in enumerate(_split_evenly(op, source, axis)):
        op.result_of_same_quantization(part, position)


@_converts(BuiltinOperator.UNPACK)
def _unpack(op: Operator) -> None:
    """(input): split along an axis, which is then dropped."""
    source = op.input(0, "value")
    shape = source.shape or ()
    axis = op.axis(op.option("axis"), len(shape))
    if shape[axis] != op.output_count:
        op.fail(f"needs {shape[axis]} outputs, one for each index of axis {axis}, got {op.output_count}")
    rest = (*shape[:axis], *shape[axis + 1 :])
    for position, part in enumerate(_split_evenly(op, source, axis)):
        op.result_of_same_quantization(op.reshape(part, rest or (1,)), position)


@_converts(BuiltinOperator.SPLIT_V)
def _split_v(op: Operator) -> None:
    """(input, sizes, axis): one SLICE an output; one size may be -1."""
    source = op.input(0, "value")
    shape = source.shape or ()
    axis = op.axis(op.integer(2, "axis"), len(shape))
    sizes = op.integers(1, "size_splits")
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    if len(sizes) != op.output_count or min(sizes) < 0 or sum(sizes) != shape[axis]:
        op.fail(f"size_splits must be {op.output_count} sizes of sum {shape[axis]}, got {sizes}")
    begin = 0
    for position, size in enumerate(sizes):
        begins, taken = [0] * len(shape), list(shape)
        begins[axis], taken[axis] = begin, size
        part = op.emit(OperationCode.SLICE, [source, int32_vector(begins), int32_vector(taken)], source)
        op.result_of_same_quantization(part, position)
        begin += size


@_converts(BuiltinOperator.SLICE)
def _slice(op: Operator) -> None:
    """(input, begin, size); a size -1 goes to the end."""
    source = op.input(0, "input")
    bounds = [int32_vector(op.integers(1, "begin")), int32_vector(op.integers(2, "size"))]
    op.result_of_same_quantization(op.emit(OperationCode.SLICE, [source, *bounds], source))


@_converts(BuiltinOperator.STRIDED_SLICE)
def _strided_slice(op: Operator) -> None:
    """(input, begin, end, strides)."""
    source = op.input(0, "input")
    slices, dropped = strided_slices(op, source.shape or ())
    # Past the front there is no end to name: a mask says so.
    end_mask = sum(1 << axis for axis, (_, end, _) in enumerate(slices) if end < 0)
    shrink_mask = sum(1 << axis for axis in dropped)
    bounds = [int32_vector(values) for values in zip(*slices, strict=True)]
    masks = [int32(0), int32(end_mask), int32(shrink_mask)]
    op.result_of_same_quantization(op.emit(OperationCode.STRIDED_SLICE, [source, *bounds, *masks], source))


@_converts(BuiltinOperator.PAD)
def _pad(op: Operator) -> None:
    """(input, paddings [rank, 2])."""
    source = op.input(0, "input")
    op.result_of_same_quantization(op.emit(OperationCode.PAD, [source, _paddings(op)], source))


@_converts(BuiltinOperator.PADV2)
def _pad_v2(op: Operator) -> None:
    """(input, paddings [rank, 2], value): a quantised value is given in the input's integers."""
    source = op.input(0, "input")
    value = op.array(2, "constant_values").reshape(-1)
    if value.size != 1:
        op.fail(f"constant_values (input 2) must have one element, got {value.size}")
    pad_value = int32(int(value[0])) if source.is_quantized else scalar(OperandCode.FLOAT32, float(value[0]))
    op.result_of_same_quantization(op.emit(OperationCode.PAD_V2, [source, _paddings(op), pad_value], source))


def _paddings(op: Operator) -> Value:
    array = op.array(1, "paddings")
    op.integers(1, "paddings")
    return constant(array)


# Reductions


@_converts(BuiltinOperator.MEAN)
def _mean(op: Operator) -> None:
    """(input, axes). TFLite's quantised mean rounds and may rescale, which NNAPI's does not."""
    source = op.input(0, "input")
    shape = source.shape or ()
    axes = sorted({op.axis(axis, len(shape)) for axis in op.integers(1, "axes")})
    wanted = op.prototype()
    if source.type != wanted.type:
        op.fail(f"the output must have the type of the input, got {op.output_tensor().type.name}")
    if not source.is_quantized:
        op.result(op.emit(OperationCode.MEAN, [source, *_reduction(op, axes)]))
    elif axes == [1, 2] and len(shape) == 4 and fits_mean_filter(source, wanted):
        op.result(_mean_by_convolution(op, source))
    else:
        op.result(op.through_float(OperationCode.MEAN, [source], _reduction(op, axes)))


def _reduction(op: Operator, axes: Sequence[int]) -> list[Value]:
    return [int32_vector(axes), int32(op.option("keep_dims"))]


def _mean_by_convolution(op: Operator, source: Value) -> Value:
    batches, _, _, depth = source.shape or (1, 1, 1, 1)
    window = [int32(PaddingCode.VALID), int32(1), int32(1), int32(1), int32(FuseCode.NONE)]
    weights, bias = mean_filter(source, op.prototype())
    result = op.emit(OperationCode.DEPTHWISE_CONV_2D, [source, weights, bias, *window])
    return result if op.option("keep_dims") else op.reshape(result, (batches, depth))


@_converts(BuiltinOperator.ARG_MAX)
def _arg_max(op: Operator) -> None:
    """(input, axis); an INT64 result is computed in 32 bits."""
    source = op.input(0, "input")
    if op.output_tensor().type not in (TensorType.INT32, TensorType.INT64):
        op.fail(f"the output must be INT32 or INT64, got {op.output_tensor().type.name}")
    axis = op.axis(op.integer(1, "axis"), len(source.shape or ()))
    op.result(op.emit(OperationCode.ARGMAX, [source, int32(axis)]))


# Resizing


def _resize(op: Operator, code: OperationCode) -> None:
    """(input, size [height, width])."""
    source = op.input(0, "input", rank=4)
    size = op.integers(1, "size")
    if len(size) != 2:
        op.fail(f"size (input 1) must be height and width, got {size}")
    flags = [op.option("align_corners"), op.option("half_pixel_centers")]
    inputs = [source, int32(size[1]), int32(size[0]), scalar(OperandCode.BOOL, False)]
    if any(flags):
        inputs += [scalar(OperandCode.BOOL, bool(flag)) for flag in flags]
    op.result_of_same_quantization(op.emit(code, inputs, source))


@_converts(BuiltinOperator.RESIZE_BILINEAR)
def _resize_bilinear(op: Operator) -> None:
    _resize(op, OperationCode.RESIZE_BILINEAR)


@_converts(BuiltinOperator.RESIZE_NEAREST_NEIGHBOR)
def _resize_nearest_neighbor(op: Operator) -> None:
    _resize(op, OperationCode.RESIZE_NEAREST_NEIGHBOR)


# Types


@_converts(BuiltinOperator.QUANTIZE)
def _quantize(op: Operator) -> None:
    """(input): real numbers become quantised, or quantised ones get another scale or signedness."""
    source, wanted = op.input(0, "input"), op.prototype()
    if wanted.type not in QUANT8_TYPES:
        op.fail(f"the output must be UINT8 or INT8, got {op.output_tensor().type.name}")
    if source.is_quantized:
        if source.type not in QUANT8_TYPES:
            op.fail("the input must be FLOAT32, UINT8 or INT8")
        op.result(op.requantize(source, wanted))
    else:
        op.result(op.emit(OperationCode.QUANTIZE, [source]))


@_converts(BuiltinOperator.DEQUANTIZE)
def _dequantize(op: Operator) -> None:
    """(input): constants become real at once, float16 ones too."""
    source = op.input(0, "input")
    if source.data is not None:
        op.result(real(source))
    elif source.type == OperandCode.TENSOR_FLOAT16:
        op.result(op.emit(OperationCode.CAST, [source]))
    else:
        op.result(op.emit(OperationCode.DEQUANTIZE, [source]))


@_converts(BuiltinOperator.CAST)
def _cast(op: Operator) -> None:
    """(input): raw numbers, whatever their scale; INT32 and INT64 are one here."""
    source, wanted = op.input(0, "input"), op.prototype()
    if source.type == wanted.type and not source.is_quantized:
        op.result(source)
    else:
        op.result(op.emit(OperationCode.CAST, [source]))


# Recurrent networks


@_converts(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM)
def _unidirectional_sequence_lstm(op: Operator) -> None:
    """20 inputs as NNAPI's, or 24 with layer normalisation; the states are variable tensors."""
    source = op.input(0, "input", rank=3)
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"only FLOAT32 data is supported, got {OperandCode(source.type).name}")
    time_major = op.option("time_major")
    batches = (source.shape or (0, 0))[1 if time_major else 0]
    weights = [op.or_omitted(position, source) for position in range(1, _LSTM_INPUTS - 2)]
    units = (op.input(2, "input_to_forget_weights", rank=2).shape or (0,))[0]
    projection = op.optional(16)
    outputs = units if projection is None else (projection.shape or (0,))[0]
    states = [
        op.variable(18, "output_state", (batches, outputs)),
        op.variable(19, "cell_state", (batches, units)),
    ]
    settings = [
        int32(op.option("fused_activation_function")),
        scalar(OperandCode.FLOAT32, op.real_option("cell_clip")),
        scalar(OperandCode.FLOAT32, op.real_option("proj_clip")),
        scalar(OperandCode.BOOL, bool(time_major)),
    ]
    normalisation = [op.or_omitted(position, source) for position in range(_LSTM_INPUTS, _LSTM_INPUTS + 4)]
    result, *next_states = op.emit_many(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        [source, *weights, *states, *settings, *normalisation],
        [op.prototype(), *states],
    )
    op.result(result)
    for position, state in enumerate(next_states, start=18):
        op.set_variable(position, state)

# SPDX-License-Identifier: Apache-2.0
"""What a conversion function sees of its operator: checked inputs and options, and the means to emit operations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import Dimensions, dtype_of
from nn_runtime.quantization import fixed_point_multiplier
from nn_runtime.tflite.booleans import as_booleans, as_integers, booleans_of, reshaped
from nn_runtime.tflite.operator_inputs import OperatorInputs
from nn_runtime.tflite.saturation import exceeded
from nn_runtime.tflite.values import ReferencedModel, Spectrum, Value, constant, int32, int32_vector, real, tensor_value
from nn_runtime.tflite.variables import resource_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from nn_runtime.operand import Array
    from nn_runtime.tflite.graph_builder import GraphBuilder
    from nn_runtime.tflite.terms import Term
    from nn_runtime.tflite.types import TfliteOperator, TfliteSubgraph, TfliteTensor
    from nn_runtime.tflite.variables import Resource, Variables

_MAX_FILLED = 1 << 24
_MAX_INDICES = 1 << 20
_SIGNED_BYTES = frozenset({OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL})
_GREATEST_MULTIPLE_EXPONENT = 6
_INTEGERS = Value(OperandCode.TENSOR_INT32)


class Subgraphs(Protocol):
    """The other subgraphs of the file, for operators that call one."""

    def of_file(self, subgraph_index: int) -> TfliteSubgraph:
        """Return a subgraph as the file has it."""

    def refer(self, subgraph_index: int, arguments: Sequence[Value], same: Collection[int]) -> ReferencedModel:
        """Convert a subgraph for given arguments, some of which are the same in all calls; raises BadData."""

    def rounds(self, condition: int, body: int, arguments: Sequence[Value]) -> int | None:
        """Return how often a WHILE goes round, None where that is not known."""

    def unroll(self, body: int, arguments: Sequence[Value], rounds: int) -> list[Value]:
        """Convert a loop's body so many times as a part of this graph, and return its outputs; raises BadData."""

    def inline(self, subgraph_index: int, arguments: Sequence[Value]) -> list[Value]:
        """Convert a subgraph as a part of this graph, and return its outputs; raises BadData."""

    def choose(self, subgraph_indices: Sequence[int], index: Value, arguments: Sequence[Value]) -> list[Value]:
        """Call the one of several subgraphs that an index says, and return its outputs; raises BadData."""

    def initialise(self, subgraph_index: int) -> None:
        """Take the variables' first values from a subgraph; raises BadData."""


class Operator(OperatorInputs):
    """One operator of the file and the values it may use. Every check that fails raises BadData."""

    def __init__(
        self,
        operator: TfliteOperator,
        subgraph: TfliteSubgraph,
        builder: GraphBuilder,
        values: dict[int, Value],
        variables: Variables,
        spectra: dict[int, Spectrum],
        subgraphs: Subgraphs,
    ) -> None:
        """`values` and `spectra` (of complex tensors) go by tensor index; results are added to them."""
        super().__init__(operator, subgraph, builder, values, variables)
        self._subgraphs = subgraphs
        self._spectra = spectra

    def with_item(self, value: Value, index: int, item: Value) -> Value:
        """Return what stands for a list with another item."""
        return self._builder.lists.with_item(value, index, item)

    def made(self, value: Value) -> Value:
        """Return a value that anybody can read, not a list to which items are added."""
        return self._builder.made(value)

    def or_omitted(self, position: int, like: Value) -> Value:
        """Return an input converted to what goes with `like`, or a value that stands for an omitted one."""
        value = self.optional(position)
        return Value(like.type, (0,), omitted=True) if value is None else self.matched(value, like)

    def prototype(self, position: int = 0) -> Value:
        """Return type and quantisation that an output shall have, its shape open."""
        return replace(tensor_value(self.output_tensor(position)), shape=None, data=None)

    def emit(self, code: OperationCode, inputs: Sequence[Value], like: Value | None = None) -> Value:
        """Append an operation with one output, typed as the file's first output or as `like`."""
        result = self.prototype() if like is None else replace(like, shape=None, data=None)
        return self._builder.emit(code, inputs, [result])[0]

    def emit_many(self, code: OperationCode, inputs: Sequence[Value], like: Sequence[Value]) -> list[Value]:
        """Append an operation with several outputs."""
        return self._builder.emit(code, inputs, [replace(value, shape=None, data=None) for value in like])

    def call(self, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        """Append an operation whose outputs have the shapes of `results`."""
        return self._builder.emit(code, inputs, results)

    def subgraph(self, option: str) -> TfliteSubgraph:
        """Return the subgraph that an option names as the file has it."""
        return self._subgraphs.of_file(self.option(option))

    def rounds(self, arguments: Sequence[Value]) -> int | None:
        """Return how often a WHILE with these arguments goes round, None where that is not known."""
        condition, body = (self.option(f"{name}_subgraph_index") for name in ("cond", "body"))
        return self._subgraphs.rounds(condition, body, arguments)

    def unroll(self, arguments: Sequence[Value], rounds: int) -> list[Value]:
        """Convert the body of a WHILE so many times as a part of this graph; return its outputs."""
        return self._subgraphs.unroll(self.option("body_subgraph_index"), arguments, rounds)

    def inline(self, option: str, arguments: Sequence[Value]) -> list[Value]:
        """Convert the subgraph that an option names as a part of this graph; return its outputs."""
        return self._subgraphs.inline(self.option(option), arguments)

    def choose(self, option: str, index: Value, arguments: Sequence[Value]) -> list[Value]:
        """Call the one of an option's subgraphs that an index says, which one has; return its outputs."""
        return self._subgraphs.choose(self.integer_options(option), index, arguments)

    def unrolled_steps(self, operations: int, wanted: int) -> int:
        """Take steps of so many operations from what may be unrolled: as many as wanted, or as are left."""
        steps = min(wanted, self._builder.budget.operators // operations)
        self._builder.budget.operators -= steps * operations
        return steps

    def refer(self, option: str, arguments: Sequence[Value], same: Collection[int]) -> Value:
        """Return the subgraph that an option names, converted for these arguments, as an operand.

        same: numbers of arguments that all calls are given alike; what is known of these the subgraph knows, too.
        """
        return Value(OperandCode.MODEL, (), referenced=self._subgraphs.refer(self.option(option), arguments, same))

    def intermediate(self, position: int) -> TfliteTensor | None:
        """Return what the file says of an intermediate tensor, None where it lists none."""
        indices = self._operator.intermediates
        return self._tensors[indices[position]] if position < len(indices) and indices[position] >= 0 else None

    def output_value(self) -> Value:
        """Return what was made the first output."""
        return self._values[self._operator.outputs[0]]

    def keep_terms(self, terms: Sequence[Term]) -> None:
        """Take down what is known of the first output's integers, which the run computes."""
        self._builder.terms.keep(self.output_value(), terms)

    def term(self, term: Term) -> Value:
        """Return an integer that the run computes, as a vector of one element."""
        if term.source is None:
            return int32_vector([term.number])
        flat = self.reshape(term.source, (-1,))
        if math.prod(term.source.shape or ()) > 1:
            flat = self.emit(OperationCode.SLICE, [flat, int32_vector([term.element]), int32_vector([1])], _INTEGERS)
        if not term.number:
            return flat
        return self.emit(OperationCode.ADD, [flat, int32_vector([term.number]), int32(FuseCode.NONE)], _INTEGERS)

    def result(self, value: Value, position: int = 0) -> None:
        """Make a value the operator's output, and a variable tensor's next value where that is one."""
        tensor = self.output_tensor(position)
        if tensor.bounds is not None and value.data is None:
            value = self._saturated(value, tensor)
        if tensor.shape == () and value.shape == (1,):
            value = self._as_scalar(value)
        index = self._operator.outputs[position]
        self._values[index] = value
        if tensor.is_variable:
            self._variables.assign(index, value)

    def first_result(self, value: Value) -> None:
        """Make a constant that LiteRT computes once the output; a variable tensor has it before the first run alone."""
        if self.output_tensor().is_variable:
            self._variables.begin(self._operator.outputs[0], value)
        else:
            self.result(value)

    def empty_result(self, shape: Dimensions, position: int = 0) -> None:
        """Make the output one without elements: a constant, which few operators may read."""
        wanted = self.prototype(position)
        self.result(replace(wanted, shape=shape, data=np.empty(shape, dtype_of(wanted.type))), position)

    def _saturated(self, value: Value, tensor: TfliteTensor) -> Value:
        """Return real numbers that stand for 16-bit integers within the bounds of these."""
        for code, bound in zip((OperationCode.MAXIMUM, OperationCode.MINIMUM), exceeded(self, tensor), strict=True):
            if math.isfinite(bound):
                value = self.emit(code, [value, constant(np.full(1, bound, np.float32))], value)
        return value

    def _as_scalar(self, value: Value) -> Value:
        """Return the same operand as a tensor of rank 0."""
        renamed = replace(value, shape=(), data=None if value.data is None else value.data.reshape(()))
        if value.data is None:
            self._builder.alias(value, renamed)
        return renamed

    def result_of_same_quantization(self, value: Value, position: int = 0) -> None:
        """Make a value the output; where the file gives the output another quantisation, its integers are kept."""
        wanted = self.prototype(position)
        if wanted.type != value.type:
            given = self.output_tensor(position).type.name
            self.fail(f"output {position} must have the type of the input, got {given}")
        self.result(self.same_integers(value, wanted), position)

    def same_integers(self, value: Value, wanted: Value) -> Value:
        """Return a value with the quantisation of another of its type: its integers stay, other types are left."""
        if value.type != wanted.type or not value.is_quantized or value.same_quantization(wanted):
            return value
        return self.emit(OperationCode.CAST, [value], wanted)

    def matched(self, value: Value, source: Value) -> Value:
        """Return weights as they go with the data: constants of another type than float32 data are made real."""
        real_data = source.type == OperandCode.TENSOR_FLOAT32
        return real(value) if real_data and value.type != source.type and value.data is not None else value

    def weights(self, position: int, name: str, rank: int, source: Value) -> Value:
        """Return weights of a product as `matched` gives them; the network is told of those of 8 bits for real data."""
        given = self.input(position, name, rank=rank)
        is_real = source.type == OperandCode.TENSOR_FLOAT32
        self._builder.has_weights_of_bytes |= is_real and given.type in _SIGNED_BYTES
        return self.matched(given, source)

    def bias(self, position: int, source: Value, weights: Value, units: int) -> Value:
        """Return a bias [units] as NNAPI wants it: zeros where there is none, scale input * weights."""
        given = self.optional(position)
        quantized = source.is_quantized
        if given is None:
            if units > _MAX_FILLED:
                self.fail(f"without a bias at most {_MAX_FILLED} output channels are supported, got {units}")
            self.spend(units)
            given = constant(np.zeros(units, np.int32 if quantized else np.float32))
        if given.rank != 1 and math.prod(given.shape or ()) == units:  # all that TFLite asks
            given = self.reshape(given, (units,))
        if not quantized:
            return self.matched(given, source)
        if given.type != OperandCode.TENSOR_INT32:
            self.fail(f"bias (input {position}) must be INT32 for quantised data")
        scale = float(np.float32(source.scale) * np.float32(weights.scale))
        return given if weights.channel_quant is not None else self._rescaled(given, scale)

    def _rescaled(self, bias: Value, scale: float) -> Value:
        if bias.data is None:
            self.fail("a quantised bias must be a constant")
        return replace(bias, scale=scale)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value under another shape, of the same type and quantisation."""
        if value.data is not None and value.channel_quant is None:
            try:
                moved = value.data.reshape(shape)
            except ValueError:
                self.fail(f"{list(value.shape or ())} cannot have the shape {list(shape)}")
            return replace(value, shape=moved.shape, data=moved)
        known = value.dimensions if value.shape is None else value.shape
        if tuple(shape) == known:
            return value
        if known == () and tuple(shape) == (1,):
            return reshaped(self._builder, value, (1,))
        return self.moved(OperationCode.RESHAPE, value, int32_vector(shape))

    def moved(self, code: OperationCode, value: Value, *rest: Value) -> Value:
        """Return the result of an operation that only moves elements; NNAPI has none for booleans.

        A scalar whose parameter is of no axis stays as it is: NNAPI would ask for that of a vector of one element.
        """
        if value.shape == () and rest and 0 in (rest[0].shape or ()):
            return value
        if value.type != OperandCode.TENSOR_BOOL8:
            return self.emit(code, [value, *rest], value)
        moved = self.as_integers(value)
        return self.booleans_of(self.emit(code, [moved, *rest], moved))

    def rearranged(self, value: Value, indices: Array) -> Value:
        """Return elements of a value by their numbers in row-major order, for types that other operations refuse."""
        if indices.size > _MAX_INDICES:
            self.fail(f"more than {_MAX_INDICES} elements of {OperandCode(value.type).name} are not supported")
        self.spend(indices.size)
        flat = self.reshape(value, (-1,))
        return self.moved(OperationCode.GATHER, flat, int32(0), constant(indices.astype(np.int32)))

    def numbers(self, value: Value) -> Array:
        """Return the numbers of a value's elements in row-major order, in its shape, for `rearranged`."""
        shape = value.shape or (1,)
        if math.prod(shape) > _MAX_INDICES:
            self.fail(f"more than {_MAX_INDICES} elements of {OperandCode(value.type).name} are not supported")
        return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)

    def as_integers(self, value: Value) -> Value:
        """Return a boolean value as bytes 0 and 1; any other as it is."""
        return as_integers(self._builder, value)

    def has_bytes(self, value: Value) -> bool:
        """Whether `as_integers` has bytes for a value already."""
        return self._builder.bytes_of(value) is not None

    def as_booleans(self, value: Value) -> Value:
        """Return where a value is not 0."""
        return as_booleans(self._builder, value)

    def booleans_of(self, bytes_: Value) -> Value:
        """Return the booleans of bytes 0 and 1 that `as_integers` gave, moved since then."""
        return booleans_of(self._builder, bytes_)

    def zeros_like(self, value: Value) -> Value:
        """Return zeros of a real value's shape."""
        return constant(self.filled(value, 0, np.float32))

    def filled(self, like: Value, number: float, dtype: npt.DTypeLike) -> Array:
        """Return an array of one number in the shape of a value."""
        shape = like.shape or ()
        if math.prod(shape) > _MAX_FILLED:
            self.fail(f"at most {_MAX_FILLED} elements are supported, got {list(shape)}")
        self.spend(math.prod(shape))
        return np.full(shape, number, dtype)

    def common_shape(self, *values: Value) -> Dimensions:
        """Return the shape to which values are broadcast together."""
        shapes = [value.shape or () for value in values]
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            self.fail(f"shapes must go together, got {', '.join(str(list(shape)) for shape in shapes)}")

    def broadcast(self, value: Value, shape: Dimensions) -> Value:
        """Return a value repeated to a shape by the rules of broadcasting."""
        aligned = (1,) * (len(shape) - value.rank) + (value.shape or ())
        is_possible = len(aligned) == len(shape) and all(size >= 0 for size in shape)
        if not is_possible or any(a not in (1, b) for a, b in zip(aligned, shape, strict=True)):
            self.fail(f"{list(value.shape or ())} cannot be broadcast to {list(shape)}")
        if value.shape == shape:
            return value
        value = self.reshape(value, aligned)
        if value.data is not None and value.channel_quant is None and math.prod(shape) <= _MAX_FILLED:
            self.spend(math.prod(shape))
            return replace(value, shape=shape, data=np.ascontiguousarray(np.broadcast_to(value.data, shape)))
        if aligned == shape:
            return value
        if value.type == OperandCode.TENSOR_BOOL8:
            return self._builder.repeated(value, shape, lambda: self._repeated_booleans(value, shape))
        multiples = int32_vector([size // own for own, size in zip(aligned, shape, strict=True)])
        return self._builder.repeated(value, shape, lambda: self.emit(OperationCode.TILE, [value, multiples], value))

    def _repeated_booleans(self, value: Value, shape: Dimensions) -> Value:
        """Return booleans repeated to a shape of the same rank: compared with zeros, by NOT_EQUAL's broadcasting."""
        bytes_ = self.as_integers(value)
        missing = tuple(size if own == 1 else 1 for own, size in zip(value.shape or (), shape, strict=True))
        self.spend(math.prod(missing))
        zeros = replace(bytes_, shape=missing, data=np.zeros(missing, np.uint8))
        return self.emit(OperationCode.NOT_EQUAL, [bytes_, zeros], Value(OperandCode.TENSOR_BOOL8))

    def requantize(self, value: Value, wanted: Value, activation: FuseCode = FuseCode.NONE) -> Value:
        """Return an 8-bit value in another 8-bit type and scale, with the bits of TFLite's reference kernel.

        The kernel multiplies by a fixed-point ratio, rounding twice; MUL by a constant 1 does the same. The type alone
        is changed through float32, where equal scales are exact.
        """
        if value.type != wanted.type:
            offset = 128 if wanted.type == OperandCode.TENSOR_QUANT8_ASYMM else -128
            twin = replace(value, type=wanted.type, zero_point=value.zero_point + offset)
            value = self.emit(OperationCode.QUANTIZE, [self.dequantize(value)], twin)
        same = (value.scale, value.zero_point) == (wanted.scale, wanted.zero_point)
        if same and activation == FuseCode.NONE:
            return value
        # One, as 2^shift * 2^-shift: the product's ratio must stay below 1.
        shift = max(fixed_point_multiplier(value.scale / wanted.scale).exponent, 0)
        if shift > _GREATEST_MULTIPLE_EXPONENT:
            return self.emit(OperationCode.QUANTIZE, [self.dequantize(value)], wanted)
        multiple = np.array([1 << shift], dtype_of(wanted.type))
        one = Value(wanted.type, (1,), 2.0**-shift, data=multiple)
        return self.emit(OperationCode.MUL, [value, one, int32(activation)], wanted)

    def dequantize(self, value: Value) -> Value:
        """Return a quantised value as float32; a float32 one as it is."""
        if value.type == OperandCode.TENSOR_FLOAT32:
            return value
        if value.data is not None:
            return real(value)
        return self.emit(OperationCode.DEQUANTIZE, [value], Value(OperandCode.TENSOR_FLOAT32))

    def through_float(self, code: OperationCode, tensors: Sequence[Value], rest: Sequence[Value] = ()) -> Value:
        """Return a quantised operation computed in float32 and quantised as the file's first output.

        An output of 16-bit integers is of real numbers already (sixteen_bit.py).
        """
        inputs = [*(self.dequantize(value) for value in tensors), *rest]
        computed = self.emit(code, inputs, Value(OperandCode.TENSOR_FLOAT32))
        return self.emit(OperationCode.QUANTIZE, [computed]) if self.prototype().is_quantized else computed

    def spectrum(self, position: int) -> Spectrum | None:
        """Return the transform that an input is, None where it is none."""
        return self._spectra.get(self._operator.inputs[position] if position < self.input_count else -1)

    def spectrum_result(self, spectrum: Spectrum) -> None:
        """Make a transform the operator's output."""
        self._spectra[self._operator.outputs[0]] = spectrum

    def variable(self, position: int, name: str, shape: Dimensions, least_scale: float = 0.0) -> Value:
        """Return the current value of a variable tensor, which gets this shape and scale at its first use."""
        index = self._operator.inputs[position] if position < self.input_count else -1
        if index < 0 or not self._tensors[index].is_variable:
            self.fail(f"{name} (input {position}) must be a variable tensor")
        fresh = tensor_value(self._tensors[index], shape)
        return self._variables.tensor(index, replace(fresh, scale=max(fresh.scale, least_scale)))

    def set_variable(self, position: int, value: Value) -> None:
        """Give a variable tensor its next value."""
        self._variables.assign(self._operator.inputs[position], value)

    def initialise(self, option: str) -> None:
        """Take the variables' first values from the subgraph that an option names."""
        self._subgraphs.initialise(self.option(option))

    def make_handle(self) -> None:
        """Make the output a handle of the variable that the options name."""
        self._variables.add_handle(self._operator.outputs[0], resource_of(self._operator))

    def read_resource(self, position: int) -> Value:
        """Return the present value of the variable that an input is the handle of."""
        return self._variables.read(self._resource(position))

    def assign_resource(self, position: int, value: Value) -> None:
        """Give the variable that an input is the handle of a value of its type and shape; its integers are kept."""
        resource = self._resource(position)
        present = self._variables.present(resource)
        if present is not None and (value.type, value.shape) != (present.type, present.shape):
            wanted, given = (f"{OperandCode(one.type).name} {list(one.shape or ())}" for one in (present, value))
            self.fail(f"variable {resource} must stay {wanted}, got {given}")
        self._variables.assign(resource, value)

    def _resource(self, position: int) -> Resource:
        index = self._operator.inputs[position] if position < self.input_count else -1
        resource = self._variables.resource(index)
        if resource is None:
            self.fail(f"resource_id (input {position}) must be a variable's handle")
        return resource

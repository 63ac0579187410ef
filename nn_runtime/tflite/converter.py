# SPDX-License-Identifier: Apache-2.0
"""From a .tflite subgraph to a Network. How each operator is converted is in the folder `operators`.

An operator that nothing converts, or that NNAPI cannot express, is a BadData that names it, its index and the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData, NNError, ShapesError
from nn_runtime.interface import Interface, State, TensorInfo
from nn_runtime.network import Network
from nn_runtime.numeric import whole_numbers
from nn_runtime.tflite.folding import FOLDED_KINDS, fold
from nn_runtime.tflite.graph_builder import GraphBuilder, identity
from nn_runtime.tflite.list_items import with_list_items
from nn_runtime.tflite.loops import rounds_of
from nn_runtime.tflite.model_builder import Budget
from nn_runtime.tflite.operator import Operator
from nn_runtime.tflite.operators import conversion_of, converted_operators, kind_of
from nn_runtime.tflite.sixteen_bit import with_real_numbers
from nn_runtime.tflite.tensor_reader import MAX_RANK, quoted
from nn_runtime.tflite.term_rules import note_terms
from nn_runtime.tflite.types import TensorType, TfliteSignature
from nn_runtime.tflite.values import ReferencedModel, Spectrum, Value, constant, int32_vector, tensor_value
from nn_runtime.tflite.variables import Variables

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.types import TfliteModel, TfliteOperator, TfliteSubgraph
    from nn_runtime.tflite.variables import Variable

_MOST_NAMED = 20
"""Of the operators of a file that nothing is known of."""
_MAX_EXPANSION = 256
_Call: TypeAlias = tuple[object, ...]
"""A subgraph's index, type, shape and quantisation of each argument, and number and value of those that it knows."""
Shapes: TypeAlias = Mapping[str | int, Sequence[int]]
"""Shapes of inputs by tensor name, signature name or position."""


def convert(
    model: TfliteModel, shapes: Shapes | None = None, subgraph_index: int = 0, preserve_all: bool = False
) -> Network:
    """Convert one subgraph of a file; raises BadData naming operator, index and reason.

    `shapes` gives inputs other shapes than the file's, by tensor name, signature name or position. Sizes that the file
    leaves open (-1) are otherwise those of the shape in the file, which is 1 from the usual exporters. `preserve_all`
    makes every tensor that an operator computes an output, after the file's own.
    """
    of_file = model.subgraphs[subgraph_index]
    signature = _signature(model, subgraph_index)
    model = with_list_items(with_real_numbers(model))
    subgraph = model.subgraphs[subgraph_index]
    graph = _Graph(model, subgraph_index, _inputs(subgraph, signature, shapes or {}))
    try:
        graph.convert_operators()
    except BadData as error:
        raise BadData(f"{error}{_on_shapes(subgraph, graph.values)}") from error
    outputs = list(subgraph.outputs)
    if preserve_all:
        computed = {index for operator in subgraph.operators for index in operator.outputs}
        known = computed.intersection(graph.values).difference(outputs)
        outputs += sorted(index for index in known if graph.values[index].data is None)
    return _finished(graph, of_file, outputs, signature)


def supported_operators() -> list[int]:
    """Return the codes of the builtin operators that can be converted."""
    return converted_operators()


class _Graph:
    """A subgraph being converted: its builder, the values of its tensors by index, its variables."""

    def __init__(
        self,
        model: TfliteModel,
        subgraph_index: int,
        values: dict[int, Value],
        caller: _Graph | None = None,
        builder: GraphBuilder | None = None,
        known: Mapping[int, Value] | None = None,
    ) -> None:
        """`values` are those of the inputs; the operators' results are added. The main subgraph has no caller.

        builder: of the caller, for a subgraph that becomes part of it. known: results that operators need not make.
        """
        self.subgraph = model.subgraphs[subgraph_index]
        self.builder: GraphBuilder = builder or GraphBuilder(Budget() if caller is None else caller.builder.budget)
        self.values = {**(known or {}), **values}
        self._known = frozenset(known or ())
        self.variables = Variables()
        self.spectra: dict[int, Spectrum] = {}
        self._model = model
        self._referenced: dict[_Call, ReferencedModel] = {} if caller is None else caller._referenced
        self._is_main = caller is None
        self._initialised: set[int] = set()
        self._expansion = 1
        self._where = f"subgraph {subgraph_index}: " if subgraph_index else ""

    def convert_operators(self) -> None:
        """Convert the operators whose results are not known, in order; raises BadData naming the one that cannot be."""
        for operator in self.subgraph.operators:
            if operator.outputs and self._known.issuperset(operator.outputs):
                continue
            try:
                _convert_operator(
                    Operator(operator, self.subgraph, self.builder, self.values, self.variables, self.spectra, self)
                )
            except NNError as error:
                reason = str(error).removeprefix(f"{operator.name}: ")
                if _is_unknown(operator):
                    reason += self._others_unknown(operator.name)
                raise BadData(f"{self._where}operator {operator.index} {operator.name}: {reason}") from error

    def _others_unknown(self, name: str) -> str:
        """Return the names of other operators of the file that nothing is known of, so that they are seen at once."""
        every = (operator for subgraph in self._model.subgraphs for operator in subgraph.operators)
        others = list(dict.fromkeys(one.name for one in every if one.name != name and _is_unknown(one)))
        more = [f"{len(others) - _MOST_NAMED} more"] if len(others) > _MOST_NAMED else []
        return f"; nor for others of the file: {', '.join(others[:_MOST_NAMED] + more)}" if others else ""

    def read_variables(self, indices: Sequence[int]) -> None:
        """Take the present values of the variable tensors among the outputs."""
        for index in indices:
            tensor = self.subgraph.tensors[index]
            if tensor.is_variable and index not in self.values:
                self.values[index] = self.variables.tensor(index, tensor_value(tensor))

    def outputs(self, indices: Sequence[int], sources: Sequence[Value]) -> dict[int, Value]:
        """Return values that may be the model's outputs, by tensor index; each is written by an operation."""
        found: dict[int, Value] = {}
        for index in dict.fromkeys(indices):
            value = self.values.get(index)
            if value is None:
                value = tensor_value(self.subgraph.tensors[index])
            if 0 in (shape := value.shape or ()):
                raise BadData(f"{self._maker(index)}: an empty result of shape {list(shape)} is not supported")
            found[index] = self.values[index] = self.own(value, [*sources, *found.values()])
        return found

    def _maker(self, index: int) -> str:
        """Return what a message calls an output by: the operator that makes it, or a constant tensor."""
        made_by = (operator for operator in self.subgraph.operators if index in operator.outputs)
        named = next((f"operator {operator.index} {operator.name}" for operator in made_by), None)
        return self._where + (named or f"output {quoted(self.subgraph.tensors[index].name)}, a constant")

    def own(self, value: Value, others: Sequence[Value]) -> Value:
        """Return a value that may be an output: written by an operation, and none of the others."""
        taken = {self.builder.index(other) for other in others}
        is_taken = value.data is not None or self.builder.index(value) in taken
        return identity(self.builder, value) if is_taken else value

    def of_file(self, subgraph_index: int) -> TfliteSubgraph:
        """Return a subgraph as the file has it."""
        return self._model.subgraphs[subgraph_index]

    def refer(self, subgraph_index: int, arguments: Sequence[Value], same: Collection[int]) -> ReferencedModel:
        """Convert a subgraph that IF or WHILE calls with these arguments, some of which are the same in all calls."""
        known = {at: numbers for at in same if (numbers := _few_integers(arguments[at])) is not None}
        kinds = ((value.type, value.shape, value.scale, value.zero_point) for value in arguments)
        call = (subgraph_index, *kinds, *known.items())
        if call not in self._referenced:
            self._referenced[call] = self._converted(subgraph_index, arguments, known=known)
        found = self._referenced[call]
        self._expand(found.expansion)
        return found

    def choose(self, subgraph_indices: Sequence[int], index: Value, arguments: Sequence[Value]) -> list[Value]:
        """Call the subgraph of this index by an IF, whose branches call what is below and above the middle."""
        if len(subgraph_indices) == 1:
            return self.inline(subgraph_indices[0], arguments)
        return self._chosen(self.builder, subgraph_indices, 0, [index, *arguments])

    def _chosen(
        self, builder: GraphBuilder, subgraph_indices: Sequence[int], first: int, given: Sequence[Value]
    ) -> list[Value]:
        """Append the IF of (index, arguments ...) for subgraphs from `first` on; return its outputs."""
        middle = len(subgraph_indices) // 2
        parts = [
            self._branch(subgraph_indices[:middle], first, given),
            self._branch(subgraph_indices[middle:], first + middle, given),
        ]
        is_below = [given[0], int32_vector([first + middle])], [Value(OperandCode.TENSOR_BOOL8)]
        models = [Value(OperandCode.MODEL, (), referenced=part) for part in parts]
        results = [replace(output, data=None) for output in parts[0].outputs]
        inputs = [*builder.emit(OperationCode.LESS, *is_below), *models, *given]
        return builder.emit(OperationCode.IF, inputs, results)

    def _branch(self, subgraph_indices: Sequence[int], first: int, given: Sequence[Value]) -> ReferencedModel:
        """Return a model of (index, arguments ...) for some subgraphs, one of which needs no index."""
        if len(subgraph_indices) == 1:
            found = self._converted(subgraph_indices[0], given[1:], given[:1])
            self._expand(found.expansion)
            return found
        before = self._expansion
        self._expand(1)
        builder, sources = GraphBuilder(self.builder.budget), [replace(value, data=None) for value in given]
        outputs = self._chosen(builder, subgraph_indices, first, sources)
        builder.finish(sources, outputs)
        return ReferencedModel(builder.model, tuple(sources), tuple(outputs), self._expansion - before)

    def _expand(self, count: int) -> None:
        self._expansion += count
        if self._expansion > _MAX_EXPANSION:
            raise BadData(f"more than {_MAX_EXPANSION} subgraphs are called, counted by call")

    def rounds(self, condition: int, body: int, arguments: Sequence[Value]) -> int | None:
        """Return how often a WHILE goes round, None where that is not known, or more than may be unrolled."""
        subgraph = self._model.subgraphs[body]
        same = _same_in_every_round(subgraph)
        operators = max(1, sum(not same.issuperset(operator.outputs) for operator in subgraph.operators))
        most = self.builder.budget.operators // operators
        found = rounds_of(self._model, condition, body, [_number(value) for value in arguments], most)
        self.builder.budget.operators -= (found or 0) * operators
        return found

    def unroll(self, body: int, arguments: Sequence[Value], rounds: int) -> list[Value]:
        """Convert a loop's body as parts of this graph; return its outputs. What constants make is made once."""
        subgraph = self._called(body, arguments)
        same = _same_in_every_round(subgraph)
        known: dict[int, Value] = {}
        outputs = list(arguments)
        for _ in range(rounds):
            inner = self._part(body, outputs, known)
            known = {index: inner.values[index] for index in same.intersection(inner.values)}
            outputs = inner.results()
        return outputs

    def inline(self, subgraph_index: int, arguments: Sequence[Value]) -> list[Value]:
        """Convert a subgraph that a composite stands for as a part of this graph; return its outputs."""
        self.builder.budget.inline(len(self._called(subgraph_index, arguments).operators))
        return self._part(subgraph_index, arguments, {}).results()

    def _part(self, subgraph_index: int, arguments: Sequence[Value], known: Mapping[int, Value]) -> _Graph:
        """Return a subgraph converted for these arguments as a part of this graph."""
        values = dict(zip(self._model.subgraphs[subgraph_index].inputs, arguments, strict=True))
        inner = _Graph(self._model, subgraph_index, values, self, self.builder, known)
        inner.convert_operators()
        inner.check_no_variables()
        return inner

    def results(self) -> list[Value]:
        """Return the values of the subgraph's outputs."""
        return [self.values.get(at) or tensor_value(self.subgraph.tensors[at]) for at in self.subgraph.outputs]

    def check_no_variables(self) -> None:
        """Raise BadData for a called subgraph that has any."""
        if self.variables:
            raise BadData(f"{self._where}has variable tensors, which only the main subgraph can have")

    def initialise(self, subgraph_index: int) -> None:
        """Take the variables' first values from a subgraph that CALL_ONCE calls."""
        if not self._is_main:
            raise BadData("only the main subgraph can initialise variables")
        subgraph = self._model.subgraphs[subgraph_index]
        if subgraph.inputs or subgraph.outputs:
            raise BadData(f"subgraph {subgraph_index} must have neither inputs nor outputs")
        if subgraph_index not in self._initialised:
            inner = _Graph(self._model, subgraph_index, {}, self)
            inner.convert_operators()
            self.variables.initialise(inner.variables)
        self._initialised.add(subgraph_index)

    def _called(self, subgraph_index: int, arguments: Sequence[Value]) -> TfliteSubgraph:
        """Return a subgraph that can be called with so many arguments; raises BadData."""
        subgraph = self._model.subgraphs[subgraph_index]
        if len(subgraph.inputs) != len(arguments):
            raise BadData(f"subgraph {subgraph_index} has {len(subgraph.inputs)} inputs, got {len(arguments)}")
        if any(tensor.type is TensorType.RESOURCE for tensor in subgraph.tensors):
            raise BadData(f"subgraph {subgraph_index} has variables, which only the main subgraph can have")
        return subgraph

    def _converted(
        self,
        subgraph_index: int,
        arguments: Sequence[Value],
        unread: Sequence[Value] = (),
        known: Collection[int] = (),
    ) -> ReferencedModel:
        """Return the model of a subgraph for these arguments; it may have other inputs before them.

        known: numbers of arguments whose values it need not read.
        """
        subgraph = self._called(subgraph_index, arguments)
        sources = [replace(argument, data=None) for argument in arguments]
        unread = [replace(value, data=None) for value in unread]
        values = [arguments[at] if at in known else source for at, source in enumerate(sources)]
        inner = _Graph(self._model, subgraph_index, dict(zip(subgraph.inputs, values, strict=True)), self)
        inner.convert_operators()
        inner.check_no_variables()
        found = inner.outputs(subgraph.outputs, sources)
        outputs: list[Value] = []
        for index in subgraph.outputs:
            outputs.append(inner.own(found[index], [*sources, *outputs]))
        inner.builder.finish([*unread, *sources], outputs)
        self.builder.has_weights_of_bytes |= inner.builder.has_weights_of_bytes
        return ReferencedModel(inner.builder.model, (*unread, *sources), tuple(outputs), inner._expansion)


def _same_in_every_round(subgraph: TfliteSubgraph) -> frozenset[int]:
    """Return the tensors of a loop's body that operators make of constants alone."""
    made: set[int] = set()
    for operator in subgraph.operators:
        inputs = [index for index in operator.inputs if index >= 0]
        if all(index in made or subgraph.tensors[index].data is not None for index in inputs):
            made.update(operator.outputs)
    return frozenset(made)


def _number(value: Value) -> int | bool | None:
    """Return a known integer or boolean, None for anything else."""
    if value.data is None or value.data.size != 1 or value.data.dtype.kind not in "ib" or value.is_quantized:
        return None
    number: int | bool = value.data.reshape(-1)[0].item()
    return number


def _few_integers(value: Value) -> tuple[int, ...] | None:
    """Return known integers, of which there are as few as a tensor has dimensions, None for anything else."""
    if value.data is None or value.type != OperandCode.TENSOR_INT32 or value.data.size > MAX_RANK:
        return None
    return tuple(int(number) for number in value.data.reshape(-1))


def _is_unknown(operator: TfliteOperator) -> bool:
    code = operator.code if operator.custom_code is None else operator.custom_code
    return conversion_of(code) is None and operator.code not in FOLDED_KINDS


def _convert_operator(op: Operator) -> None:
    code = op.custom_code if op.custom_code is not None else op.code
    kind = kind_of(code) or FOLDED_KINDS.get(op.code)
    if kind is not None:
        op.check_version(kind.version)
        op.check_input_count(kind.inputs)
        op.check_output_count(kind.outputs)
    folded = fold(op)
    if folded is not None:
        for position, array in enumerate(folded):
            op.result(constant(array), position)
        return
    conversion = conversion_of(code)
    if conversion is None:
        op.fail("no NNAPI operation, nor a composition of some, is known for it")
    conversion(op)
    note_terms(op)


def _signature(model: TfliteModel, subgraph_index: int) -> TfliteSignature:
    """Return the first signature of a subgraph, one without names where it has none."""
    own = (signature for signature in model.signatures if signature.subgraph_index == subgraph_index)
    return next(own, TfliteSignature("", subgraph_index, {}, {}))


def _names(named: Mapping[str, int], indices: Sequence[int]) -> list[str]:
    """Return the name that a signature gives to each tensor, its next one where it comes again, "" without any."""
    left: dict[int, list[str]] = {}
    for name, index in named.items():
        left.setdefault(index, []).append(name)
    return [own.pop(0) if len(own := left.get(index, [""])) > 1 else own[0] for index in indices]


def _inputs(subgraph: TfliteSubgraph, signature: TfliteSignature, shapes: Shapes) -> dict[int, Value]:
    """Return the values of the inputs; raises ShapesError where a shape is of no input, BadData where one cannot be."""
    if not isinstance(shapes, Mapping):
        raise ShapesError(f"wanted a dict of shapes by input name or position, got {type(shapes).__name__}")
    values: dict[int, Value] = {}
    left = dict(shapes)
    names = _names(signature.inputs, subgraph.inputs)
    for position, (index, name) in enumerate(zip(subgraph.inputs, names, strict=True)):
        tensor = subgraph.tensors[index]
        keys = [key for key in dict.fromkeys((tensor.name, name or tensor.name, position)) if key in left]
        what = f"input {position} {quoted(tensor.name)}"
        if keys[1:]:
            raise ShapesError(f"{what} is given by {keys[0]!r} and by {keys[1]!r}")
        wanted = whole_numbers(f"{what}: shape", left[keys[0]]) if keys else tensor.shape
        for key in keys:
            del left[key]
        if any(size <= 0 for size in wanted):
            raise BadData(f"{what}: every size must be > 0, got {list(wanted)}")
        values[index] = tensor_value(tensor, wanted)
    if left:
        known = ", ".join(quoted(subgraph.tensors[index].name) for index in subgraph.inputs)
        key = next(iter(left))
        what = f"there is no input {key}" if isinstance(key, int) else f"no input is called {key!r}"
        raise ShapesError(f"{what}; the inputs are {known}")
    return values


def _on_shapes(subgraph: TfliteSubgraph, values: Mapping[int, Value]) -> str:
    """Return which inputs have other shapes than in the file, or sizes that it leaves open: they may be to blame."""
    inputs = [(subgraph.tensors[index], values[index].shape) for index in subgraph.inputs]
    reshaped = [
        f"{list(tensor.shape_signature or tensor.shape)} of {quoted(tensor.name)}"
        for tensor, shape in inputs
        if shape != tensor.shape
    ]
    if reshaped:
        return f" (in the file, inputs have other shapes: {', '.join(reshaped)})"
    opened = [
        f"{list(tensor.shape_signature)} of {quoted(tensor.name)}, here {list(tensor.shape)}"
        for tensor, _ in inputs
        if tensor.shape_signature is not None and -1 in tensor.shape_signature
    ]
    given_by = "`shapes`, `--shape` or `resize_tensor_input` give"
    return f" (the file leaves sizes open, which {given_by}: {', '.join(opened)})" if opened else ""


def _finished(
    graph: _Graph, of_file: TfliteSubgraph, output_indices: Sequence[int], signature: TfliteSignature
) -> Network:
    """Name the model's inputs and outputs as the file has them, variables last, and finish it."""
    subgraph = graph.subgraph
    inputs = [graph.values[index] for index in subgraph.inputs]
    graph.read_variables(output_indices)
    variables = graph.variables.kept()
    sources = inputs + [variable.source for _, variable in variables if variable.source is not None]
    by_index = graph.outputs(output_indices, sources)
    positions = {index: position for position, index in enumerate(by_index)}
    outputs = list(by_index.values())
    states: list[State] = []
    for key, variable in variables:
        source = len(inputs) + len(states)
        changed = variable.current is not variable.source
        tensor = key if isinstance(key, int) else -1
        states.append(State(source, len(outputs) if changed else None, _initial(variable), tensor))
        if changed:
            outputs.append(graph.own(variable.current, [*sources, *outputs]))
    graph.builder.finish(sources, outputs)
    interface = Interface(
        _infos(of_file, graph.values, subgraph.inputs, signature.inputs),
        _infos(of_file, graph.values, output_indices, signature.outputs),
        tuple(positions[index] for index in output_indices),
        tuple(states),
    )
    return Network(graph.builder.model, interface, dynamic_quantization=graph.builder.has_weights_of_bytes)


def _initial(variable: Variable) -> Array | None:
    """Return what a variable is at first, None for the real number 0; without a first value, LiteRT has bytes 0."""
    if variable.initial is not None:
        return variable.initial.value()
    source = variable.source
    if source is None or source.type != OperandCode.TENSOR_QUANT8_ASYMM:
        return None  # of signed bytes LiteRT, too, has the zero point
    return np.zeros(source.dimensions or (), np.uint8)


def _infos(
    subgraph: TfliteSubgraph, values: Mapping[int, Value], indices: Sequence[int], named: Mapping[str, int]
) -> tuple[TensorInfo, ...]:
    pairs = zip(indices, _names(named, indices), strict=True)
    return tuple(_info(subgraph, values, index, name) for index, name in pairs)


def _info(subgraph: TfliteSubgraph, values: Mapping[int, Value], index: int, name: str) -> TensorInfo:
    tensor, value = subgraph.tensors[index], values[index]
    dtype = np.dtype(np.float32) if tensor.type.dtype is None else tensor.type.dtype.newbyteorder("=")
    scale, zero_point = (value.scale, value.zero_point) if tensor.quantization is not None else (0.0, 0)
    if tensor.quantization is not None and tensor.type is TensorType.INT16 and not value.is_quantized:
        scale, zero_point = float(tensor.quantization.scales[0]), int(tensor.quantization.zero_points[0])
    return TensorInfo(tensor.name, dtype, value.shape or (), scale, zero_point, name, index)

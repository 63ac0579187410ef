# SPDX-License-Identifier: Apache-2.0
"""Random graphs: drawn from the signatures, run on two devices, compared by AOSP's tolerances.

`generate` builds a graph operation by operation and evaluates each on a reference device at once, so that values that
an operation is not defined for, and values that grow without bounds, never arise. Where one rounding could decide a
result (comparisons, FLOOR, positions of maxima), only values are taken that every correct device has bit for bit.
`compare` runs it whole; `nn_runtime.testing.graph_reduction` makes a failing one small and prints it as a script.

    graph = generate(7, Size.SMALL, reference=cpu, others=[gpu])
    problem = compare(graph, cpu, gpu)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode, operand_type_name
from nn_runtime.errors import BadData
from nn_runtime.hal.types import HalError, OperandLifeTime
from nn_runtime.operand import FLOAT_TYPES, element_count, is_tensor
from nn_runtime.operations import OperationView, definition, definitions, output_dimensions, validate
from nn_runtime.testing.conformance import HalRunner, Unsupported, hal_model
from nn_runtime.testing.corpus import Example, ExampleGraph, ExampleOperand, ExampleOperation, Expected, Kind
from nn_runtime.testing.corpus import result_buffer as buffer_of
from nn_runtime.testing.drawing import REPEATED, Drawing, Limit, Rejected, Value, rules
from nn_runtime.testing.tolerances import LARGE_GRAPH, SMALL_GRAPH, disagreement
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.operand import Array
    from nn_runtime.operations.signature import Input
    from nn_runtime.testing.drawing import Argument, Drawn, Result
    from nn_runtime.testing.tolerances import Criterion

_GREATEST_RESULT = 1000.0
_GREATEST_INTEGER = 1e6
_ATTEMPTS_PER_OPERATION = 100
_MAIN_TYPE_SHARE = 0.85
_EXTRA_OUTPUT_SHARE = 0.15
_DYNAMIC_SHARE = 0.3
_INLINE_BYTES = 128
"""Constants up to this size are copied into the model, greater ones lie in a pool, as the NDK has it."""
_WHOLE_NUMBERS = (OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8)


class Size(Enum):
    """How many operations a graph has, and how large its tensors may be."""

    SINGLE = "single"
    SMALL = "small"
    LARGE = "large"

    @property
    def operations(self) -> int:
        """Number of operations."""
        return {Size.SINGLE: 1, Size.SMALL: 5, Size.LARGE: 40}[self]

    @property
    def limit(self) -> Limit:
        """Greatest dimension and tensor."""
        wide = 1000
        return {Size.SINGLE: Limit(wide, 2**15), Size.SMALL: Limit(wide, 2**13), Size.LARGE: Limit(10, 2**13)}[self]


@dataclass(frozen=True, eq=False)
class Node:
    """One operation with its values."""

    code: OperationCode
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True)
class RandomGraph:
    """Operations in run order and the values that are the model's outputs.

    A value that no operation makes is a constant, left out, or an input with its `array`. `dynamic`: constants are
    inputs too, parameters and scalars included, and the model does not know the sizes of what operations make.
    """

    seed: int
    size: Size
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    dynamic: bool = False

    @property
    def sources(self) -> list[Value]:
        """Values that no operation makes, each once."""
        made = {id(value) for node in self.nodes for value in node.outputs}
        read = {id(value): value for node in self.nodes for value in node.inputs}
        return [value for key, value in read.items() if key not in made]

    @property
    def inputs(self) -> list[Value]:
        """Values that an execution has to bring."""
        return [value for value in self.sources if not value.omitted and (self.dynamic or not value.constant)]

    @property
    def criterion(self) -> Criterion:
        """How far results may lie apart: a graph of several operations has limits of its own."""
        if self.size == Size.SINGLE:
            return rules()[self.nodes[0].code].criterion
        return SMALL_GRAPH if self.size == Size.SMALL else LARGE_GRAPH

    @property
    def operation_names(self) -> list[str]:
        """Names of the operations in run order."""
        return [node.code.name for node in self.nodes]


def generate(
    seed: int,
    size: Size,
    reference: IDevice,
    others: Sequence[IDevice] = (),
    codes: Collection[int] | None = None,
) -> RandomGraph:
    """Draw the graph of a seed from operations that every device supports (`codes`: from these alone).

    The same arguments give the same graph. Raises RuntimeError where a seed finds too few valid operations.
    """
    return _Generator(seed, size, reference, others, codes).generate()


def draw_node(rng: np.random.Generator, code: int, data_type: int, values: Sequence[Value], limit: Limit) -> Node:
    """Draw one operation with the dimensions of its outputs, but without their data.

    Raises Rejected where the rule finds nothing to draw from, BadData where it drew something that is not valid.
    """
    drawn = rules()[code].draw(Drawing(rng, code, data_type, values, limit))
    inputs = _arguments(code, data_type, drawn)
    outputs = tuple(Value(result.type, (), result.scale, result.zero_point) for result in _results(code, drawn, inputs))
    view = OperationView(code, inputs, outputs)
    validate(view)
    shapes = output_dimensions(view)
    made = tuple(replace(value, dimensions=dims) for value, dims in zip(outputs, shapes, strict=True))
    return Node(OperationCode(code), inputs, made)


def evaluated(node: Node, device: IDevice) -> Node:
    """Return an operation with the data of its outputs as a device computes it; raises Unsupported, HalError."""
    graph = RandomGraph(0, Size.SINGLE, (node,), node.outputs)
    outputs = [
        replace(value, array=array.reshape(value.dimensions), exact=_is_exact(node, value))
        for value, array in zip(node.outputs, execute(graph, device), strict=True)
    ]
    return Node(node.code, node.inputs, tuple(outputs))


def execute(graph: RandomGraph, device: IDevice) -> list[Array]:
    """Return the flat data of every output on a device; raises Unsupported, HalError."""
    executions = HalRunner(device).run(example_of(graph), Kind.PLAIN)
    outcomes = next(executions)
    # A generator that is closed closes its prepared model.
    executions.close()  # type: ignore[attr-defined]
    return [outcome.data for outcome in outcomes]


def compare(graph: RandomGraph, first: IDevice, second: IDevice) -> str:
    """Run a graph on two devices and return where the second breaks the tolerances against the first ("": nowhere)."""
    return judged(graph, execute(graph, first), _executed(graph, second))


def judged(graph: RandomGraph, wanted: Sequence[Array], got: Sequence[Array] | str) -> str:
    """Return the first output of `got` that breaks the tolerances against `wanted`; a string is a failure already."""
    if isinstance(got, str):
        return got
    makers = {id(value): node.code.name for node in graph.nodes for value in node.outputs}
    for i, (value, a, b) in enumerate(zip(graph.outputs, wanted, got, strict=True)):
        problem = disagreement(graph.criterion, value.type, a, b)
        if problem:
            what = f"{operand_type_name(value.type)} {list(value.dimensions)} of {makers[id(value)]}"
            return f"output {i}, {what}: {problem}"
    return ""


def example_of(graph: RandomGraph) -> Example:
    """Return a graph as an example of the corpus' form."""
    index: dict[int, int] = {}
    operands: list[ExampleOperand] = []
    made = {id(value) for node in graph.nodes for value in node.outputs}
    outputs = {id(value) for value in graph.outputs}
    for node in graph.nodes:
        for value in (*node.inputs, *node.outputs):
            if id(value) not in index:
                index[id(value)] = len(operands)
                lifetime = _lifetime(value, id(value) in made, id(value) in outputs, graph.dynamic)
                unknown = graph.dynamic and id(value) in made
                operands.append(_operand(value, f"op{len(operands)}", lifetime, unknown))
    operations = tuple(
        ExampleOperation(node.code, tuple(index[id(v)] for v in node.inputs), tuple(index[id(v)] for v in node.outputs))
        for node in graph.nodes
    )
    inputs = graph.inputs
    main = ExampleGraph(
        tuple(operands),
        operations,
        tuple(index[id(value)] for value in inputs),
        tuple(index[id(value)] for value in graph.outputs),
    )
    return Example(
        name=f"{graph.size.value}_{graph.seed}",
        spec="random",
        main_op=graph.nodes[0].code.name,
        relaxed=False,
        expect_failure=False,
        infinite_loop=False,
        kinds=(Kind.PLAIN,),
        main=main,
        referenced=(),
        inputs=tuple(value.array for value in inputs),
        outputs=tuple(_expected(value) for value in graph.outputs),
    )


def unread(nodes: Sequence[Node]) -> list[Value]:
    """Return the values that operations make and none reads."""
    read = {id(value) for node in nodes for value in node.inputs}
    return [value for node in nodes for value in node.outputs if id(value) not in read]


class _Generator:
    """State while one graph is drawn."""

    def __init__(
        self, seed: int, size: Size, reference: IDevice, others: Sequence[IDevice], codes: Collection[int] | None
    ) -> None:
        self._seed = seed
        self._size = size
        self._rng = np.random.default_rng([seed, list(Size).index(size)])
        self._reference = reference
        self._others = others
        known = definitions()
        self._codes = sorted(code for code in rules() if code in known and (codes is None or code in codes))
        self._main_type = self._pick([*FLOAT_TYPES, *FLOAT_TYPES, *_WHOLE_NUMBERS, *_quantized_types()])
        self._nodes: list[Node] = []
        self._values: list[Value] = []
        self._rejected: Counter[str] = Counter()

    def generate(self) -> RandomGraph:
        """Draw until the graph has its size."""
        for _ in range(_ATTEMPTS_PER_OPERATION * self._size.operations):
            if len(self._nodes) == self._size.operations:
                outputs = unread(self._nodes)
                inner = [value for node in self._nodes for value in node.outputs if value not in outputs]
                outputs += [value for value in inner if self._rng.random() < _EXTRA_OUTPUT_SHARE]
                dynamic = bool(self._rng.random() < _DYNAMIC_SHARE)
                return RandomGraph(self._seed, self._size, tuple(self._nodes), tuple(outputs), dynamic)
            self._try_one()
        raise RuntimeError(f"seed {self._seed}: too few valid operations, rejected {dict(self._rejected)}")

    def _try_one(self) -> None:
        code, data_type = self._operation()
        try:
            node = draw_node(self._rng, code, data_type, self._values, self._size.limit)
            most = self._size.limit.elements
            if any(not 0 < element_count(value.dimensions) <= most for value in node.outputs):
                raise Rejected
            if not self._supported(node):
                raise Rejected
            node = evaluated(node, self._reference)
        except (Rejected, Unsupported):
            self._rejected[OperationCode(code).name] += 1
            return
        except BadData as error:
            raise RuntimeError(f"seed {self._seed}: the rule drew an operation that is not valid: {error}") from error
        if not all(_is_tame(value) for value in node.outputs):
            self._rejected[OperationCode(code).name] += 1
            return
        self._nodes.append(node)
        known = {id(value) for value in self._values}
        self._values += [v for v in (*node.inputs, *node.outputs) if id(v) not in known and is_tensor(v.type)]

    def _operation(self) -> tuple[int, int]:
        """Pick an operation and a data type for it, mostly the graph's main type."""
        code = self._pick(self._codes)
        if self._size != Size.SINGLE and self._rng.random() < _MAIN_TYPE_SHARE:
            code = self._pick([c for c in self._codes if self._main_type in definition(c).data_types] or self._codes)
        types = sorted(definition(code).data_types)
        if self._size != Size.SINGLE and self._main_type in types:
            return code, self._main_type
        return code, self._pick(types)

    def _pick(self, items: Sequence[int]) -> int:
        return int(items[int(self._rng.integers(len(items)))])

    def _supported(self, node: Node) -> bool:
        if not self._others:
            return True
        model = hal_model(example_of(RandomGraph(0, Size.SINGLE, (node,), node.outputs)))
        return all(all(device.get_supported_operations(model)) for device in self._others)


def _quantized_types() -> tuple[int, int]:
    return OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def _executed(graph: RandomGraph, device: IDevice) -> list[Array] | str:
    try:
        return execute(graph, device)
    except Unsupported as error:
        return f"{device.name} does not support it: {error}"
    except HalError as error:
        return f"{device.name} failed: {error.status.name}: {error}"
    except Exception as error:
        return f"{device.name} crashed: {type(error).__name__}: {error}"


def _arguments(code: int, data_type: int, drawn: Drawn) -> tuple[Value, ...]:
    """Lay out named arguments in the order of the variant that has them all."""
    for variant in definition(code).variants:
        values: list[Value] = []
        given = set(drawn.inputs)
        for argument in variant.inputs:
            name = REPEATED if argument.name == variant.repeated and REPEATED in given else argument.name
            if name not in drawn.inputs:
                if not argument.optional and not argument.omittable:
                    break
                if argument.optional:
                    continue
            given.discard(name)
            values += _values(argument, data_type, drawn.inputs.get(name))
        else:
            if not given:
                return tuple(values)
    raise BadData(f"{OperationCode(code).name}: no input list takes exactly {sorted(drawn.inputs)}")


def _values(argument: Input, data_type: int, given: Argument | None) -> list[Value]:
    """Return the operands of one argument; a number becomes a constant scalar of the type the signature asks for."""
    if isinstance(given, Value):
        return [given]
    types = [code for code in argument.types(data_type)]
    if given is None:
        return [Value(types[0])]
    if isinstance(given, (int, float)):
        array = buffer_of(types[0], ()).reshape(())
        array[...] = given
        return [Value(types[0], array=array, constant=True)]
    return list(given)


def _results(code: int, drawn: Drawn, inputs: Sequence[Value]) -> Sequence[Result]:
    from nn_runtime.testing.drawing import Result

    if drawn.outputs:
        return drawn.outputs
    entry = definition(code)
    return [Result(next(iter(row.types(inputs[entry.data_input].type)))) for row in entry.outputs]


def _is_exact(node: Node, output: Value) -> bool:
    """Tell whether every correct device computes the same bits, given that the inputs are so."""
    if not all(value.exact for value in node.inputs):
        return False
    whole = output.type in _WHOLE_NUMBERS and all(value.type not in FLOAT_TYPES for value in node.inputs)
    if whole:
        return True
    data = node.inputs[definition(node.code).data_input]
    requantized = output.scale > 0 and (output.scale, output.zero_point) != (data.scale, data.zero_point)
    return rules()[node.code].exact and not requantized


def _is_tame(value: Value) -> bool:
    """Tell whether results can be compared: finite and of moderate size."""
    if value.array is None or value.array.dtype.kind == "b":
        return True
    limit = _GREATEST_INTEGER if value.type in _WHOLE_NUMBERS else _GREATEST_RESULT
    low, high = value.span
    return max(abs(low), abs(high)) <= limit


def _lifetime(value: Value, is_made: bool, is_output: bool, dynamic: bool) -> OperandLifeTime:
    if is_made:
        return OperandLifeTime.SUBGRAPH_OUTPUT if is_output else OperandLifeTime.TEMPORARY_VARIABLE
    if value.array is None:
        return OperandLifeTime.NO_VALUE
    if dynamic or not value.constant:
        return OperandLifeTime.SUBGRAPH_INPUT
    inline = value.array.nbytes <= _INLINE_BYTES
    return OperandLifeTime.CONSTANT_COPY if inline else OperandLifeTime.CONSTANT_REFERENCE


def _operand(value: Value, name: str, lifetime: OperandLifeTime, unknown: bool) -> ExampleOperand:
    constant = lifetime in (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_REFERENCE)
    return ExampleOperand(
        name=name,
        type=OperandCode(value.type),
        dimensions=(0,) * len(value.dimensions) if unknown else value.dimensions,
        scale=value.scale,
        zero_point=value.zero_point,
        lifetime=lifetime,
        value=value.array if constant else None,
        channel_quant=value.channel_quant,
    )


def _expected(value: Value) -> Expected:
    """Return the form of an output: dimensions and element type; its data is not known yet."""
    return Expected(buffer_of(value.type, ()), value.dimensions, "ignored", 0.0, 0.0)

# SPDX-License-Identifier: Apache-2.0
"""Loops that write a list of tensors item by item, as TensorFlow's converter leaves them of recurrent layers.

For `list[i] = item` it writes a concatenation: of a slice up to i, the item, and a slice from i + 1 on. The slices have
sizes that only the run knows, the whole has not; so the five or more operators are found here, and become one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import contains
from typing import TYPE_CHECKING

from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.tensor_reader import MAX_RANK
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.tflite.types import TfliteModel, TfliteOperator, TfliteSubgraph
    from nn_runtime.tflite.values import Value

SET_ITEM = "TensorListSetItem"
"""What the operators become: (list, index, item), by TensorFlow's name."""
_SLICE, _ADD = {BuiltinOperator.SLICE: range(3, 4)}, {BuiltinOperator.ADD: range(2, 3)}
_VECTORS = dict.fromkeys((BuiltinOperator.CONCATENATION, BuiltinOperator.PACK), range(2, MAX_RANK + 1))
_RESHAPING = dict.fromkeys((BuiltinOperator.RESHAPE, BuiltinOperator.EXPAND_DIMS), range(1, 3))
"""Operators, and how many inputs they may have."""


def with_list_items(model: TfliteModel) -> TfliteModel:
    """Return a model in which each assignment to an item of a list is one operator; others stay."""
    subgraphs = tuple(_with_list_items(subgraph) for subgraph in model.subgraphs)
    changed = any(new is not old for new, old in zip(subgraphs, model.subgraphs, strict=True))
    return replace(model, subgraphs=subgraphs) if changed else model


def _with_list_items(subgraph: TfliteSubgraph) -> TfliteSubgraph:
    finder = _Finder(subgraph)
    found = {operator.index: finder.assignment(operator) for operator in subgraph.operators}
    if not any(found.values()):
        return subgraph
    operators = [found[operator.index] or operator for operator in subgraph.operators]
    unread = {index for made in finder.matched for index in made.outputs}
    return replace(subgraph, operators=_without_unread(operators, unread, subgraph.outputs))


@dataclass(frozen=True)
class Items:
    """A list as it was, and the items that it was given since then, by index."""

    base: Value
    items: Mapping[int, Value]


class Lists:
    """Lists that are not made yet: all items of a loop that is unrolled are put together at once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pending: dict[Value, Items] = {}
        self._made: dict[Value, Value] = {}

    def with_item(self, value: Value, index: int, item: Value) -> Value:
        """Return what stands for a list with another item."""
        before = self._pending.get(value, Items(value, {}))
        result = replace(value, data=None)
        self._pending[result] = Items(before.base, {**before.items, index: item})
        return result

    def made(self, value: Value, make: Callable[[Items], Value]) -> Value:
        """Return a value that can be read: a list is made at the first time, any other is one."""
        if value in self._pending and value not in self._made:
            self._made[value] = make(self._pending[value])
        return self._made.get(value, value)


@dataclass
class _Finder:
    """Finds assignments in a subgraph; `matched`: the operators that they consist of."""

    subgraph: TfliteSubgraph

    def __post_init__(self) -> None:
        self.makers = {index: operator for operator in self.subgraph.operators for index in operator.outputs}
        self.matched: list[TfliteOperator] = []

    def assignment(self, operator: TfliteOperator) -> TfliteOperator | None:
        """Return the one operator for a concatenation that is an assignment; None for any other operator."""
        if operator.code != BuiltinOperator.CONCATENATION or len(operator.inputs) != 3:
            return None
        head, item, tail = operator.inputs
        before, after = self._made_by(head, _SLICE), self._made_by(tail, _SLICE)
        if before is None or after is None or operator.options.get("fused_activation_function"):
            return None
        source = before.inputs[0]
        shape, rank = self._shape(source), len(self._shape(source))
        whole = [[-1, size] for size in shape]
        if (
            after.inputs[0] != source
            or operator.options.get("axis") not in (0, -rank)
            or self._shape(item) != (1, *shape[1:])
            or self._constants(before.inputs[1]) != [0] * rank
            or not self._are(after.inputs[2], [[-1], *whole[1:]])
        ):
            return None
        sizes, begins = self._vector(before.inputs[2]), self._vector(after.inputs[1])
        if sizes is None or begins is None or begins[1] != [0] * (rank - 1):
            return None
        if not _are_of(sizes[1], whole[1:]) or not self._follows(begins[0], sizes[0]):
            return None
        self.matched += [before, after]
        return replace(
            operator, name=SET_ITEM, custom_code=SET_ITEM, version=1, options={}, inputs=(source, sizes[0], item)
        )

    def _made_by(self, index: int, counts: Mapping[int, range]) -> TfliteOperator | None:
        """Return what makes a tensor, if it is one of these operators, with as many inputs as they have."""
        maker = self.makers.get(index)
        return maker if maker is not None and len(maker.inputs) in counts.get(maker.code, ()) else None

    def _shape(self, index: int) -> tuple[int, ...]:
        return self.subgraph.tensors[index].shape if index >= 0 else ()

    def _constants(self, index: int) -> list[int] | None:
        """Return the integers of a constant, None for what is none."""
        data = self.subgraph.tensors[index].data if index >= 0 else None
        return None if data is None or data.dtype.kind != "i" else [int(number) for number in data.reshape(-1)]

    def _are(self, index: int, allowed: Sequence[Sequence[int]]) -> bool:
        numbers = self._constants(index)
        return numbers is not None and _are_of(numbers, allowed)

    def _vector(self, index: int) -> tuple[int, list[int]] | None:
        """Return of a vector the tensor of its first element, as it was computed, and the other elements."""
        maker = self._made_by(index, _VECTORS)
        if maker is None:
            return None
        rest: list[int] = []
        for other in maker.inputs[1:]:
            numbers = self._constants(other)
            if numbers is None:
                return None
            rest += numbers
        return self._scalar(maker.inputs[0]), rest

    def _scalar(self, index: int) -> int:
        """Return the tensor that a number comes from, under whatever shape."""
        while (maker := self._made_by(index, _RESHAPING)) is not None:
            index = maker.inputs[0]
        return index

    def _follows(self, second: int, first: int) -> bool:
        """Whether a number is another plus one."""
        maker = self._made_by(second, _ADD)
        if maker is None or maker.options.get("fused_activation_function"):
            return False
        a, b = (self._scalar(index) for index in maker.inputs)
        return (a == first and self._constants(b) == [1]) or (b == first and self._constants(a) == [1])


def _are_of(numbers: Sequence[int], allowed: Sequence[Sequence[int]]) -> bool:
    """Whether each number is one of those that its place allows."""
    return len(numbers) == len(allowed) and all(map(contains, allowed, numbers))


def _without_unread(
    operators: Sequence[TfliteOperator], unread: set[int], outputs: Sequence[int]
) -> tuple[TfliteOperator, ...]:
    """Leave out operators whose results nobody reads any more, those that made these tensors and what they read."""
    left = list(operators)
    read = Counter(index for operator in left for index in operator.inputs) + Counter(outputs)
    for operator in reversed(operators):
        if unread.issuperset(operator.outputs) and not any(read[index] for index in operator.outputs):
            left.remove(operator)
            read.subtract(operator.inputs)
            unread |= set(operator.inputs)
    return tuple(left)

# SPDX-License-Identifier: Apache-2.0
"""A notation for the operand lists of an operation, ways to change one list slightly, and what the model says to it.

A list is written `T[2,4] i32 S*2 -> T[2,4]; 0:1-4`: operands (`*2` twice), the outputs after the arrow, then for each
group of inputs (`0` or `0,1`) the ranks it may have. A name with brackets is a tensor, `[]` one of unknown rank.
`@0.5,3` is a scale with a zero point, `/0` the channel dimension where the type is quantised per channel.
Names that depend on the data type of the case: T the data, S a float scalar, B a bias, W a filter, R boxes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import NNError
from nn_runtime.model import Model
from nn_runtime.operand import ELEMENT_TYPES, ChannelQuant, OperandType, is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

QUANTISED_SCALES = {8: 1 / 256, 16: 1 / 8}
"""Scale of every quantised operand that does not name one, by its bits; boxes of 16 bits have no other."""

_TENSORS = {
    "f16": OperandCode.TENSOR_FLOAT16,
    "f32": OperandCode.TENSOR_FLOAT32,
    "i32": OperandCode.TENSOR_INT32,
    "bool": OperandCode.TENSOR_BOOL8,
    "q8": OperandCode.TENSOR_QUANT8_ASYMM,
    "q8s": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "q8sym": OperandCode.TENSOR_QUANT8_SYMM,
    "q8pc": OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    "q16sym": OperandCode.TENSOR_QUANT16_SYMM,
    "q16": OperandCode.TENSOR_QUANT16_ASYMM,
}
_SCALARS = {
    "f16": OperandCode.FLOAT16,
    "f32": OperandCode.FLOAT32,
    "i32": OperandCode.INT32,
    "bool": OperandCode.BOOL,
    "model": OperandCode.MODEL,
}
_OPERAND = re.compile(
    r"(?P<name>\w+)(?P<dims>\[[\d,]*\])?(?:@(?P<scale>[\d.e+-]+)(?:,(?P<zero>-?\d+))?)?(?:/(?P<channel>\d))?(?:\*(?P<times>\d+))?"
)


@dataclass(frozen=True)
class Operand:
    """One operand of a list, with the model that a MODEL operand refers to."""

    kind: OperandType
    model: Model | None = None


@dataclass(frozen=True)
class RankRule:
    """The ranks that the inputs `positions` may have together; `highest` None for any."""

    positions: tuple[int, ...]
    lowest: int
    highest: int | None

    def good(self) -> list[int]:
        """Return the ranks at the edges of what is allowed."""
        return sorted({self.lowest, self.lowest + 1 if self.highest is None else self.highest})

    def bad(self) -> list[int]:
        """Return the ranks just outside; rank 0 is an unknown rank, which is no rank."""
        below = [self.lowest - 1] if self.lowest > 1 else []
        return below + ([] if self.highest is None else [self.highest + 1])


@dataclass(frozen=True)
class Signature:
    """An operation with operands that it takes."""

    code: OperationCode
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    ranks: tuple[RankRule, ...] = ()

    def types(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return what decides whether an operation takes a list, ranks and quantisation apart."""
        return self.code, tuple(o.kind.type for o in self.inputs), tuple(o.kind.type for o in self.outputs)

    def types_and_ranks(self) -> tuple[object, ...]:
        """Return what decides it, quantisation apart."""
        return *self.types(), tuple(len(o.kind.dims) for o in (*self.inputs, *self.outputs))


def parse(code: OperationCode, text: str, names: dict[str, str]) -> Signature:
    """Read a list; `names` says which type T, S, B, W and R stand for."""
    lists, *ranks = text.split(";")
    inputs, outputs = lists.split("->")
    rules = tuple(_rank_rule(rank.strip()) for rank in ranks)
    return Signature(code, _operands(inputs, names), _operands(outputs, names), rules)


def _operands(text: str, names: dict[str, str]) -> tuple[Operand, ...]:
    found: list[Operand] = []
    for word in text.split():
        match = _OPERAND.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no operand")
        found += [Operand(_kind(match, names))] * int(match["times"] or 1)
    return tuple(found)


def _kind(match: re.Match[str], names: dict[str, str]) -> OperandType:
    name = names.get(match["name"], match["name"])
    if match["dims"] is None:
        return OperandType(_SCALARS[name])
    dims = tuple(int(size) for size in match["dims"][1:-1].split(",") if size)
    code = _TENSORS[name]
    quant = ChannelQuant((0.5, 1.0), int(match["channel"])) if match["channel"] and name == "q8pc" else None
    scale = float(match["scale"]) if match["scale"] else default_scale(code)
    return OperandType(code, dims, scale, int(match["zero"] or 0), quant)


def _rank_rule(text: str) -> RankRule:
    positions, ranks = text.split(":")
    lowest, highest = ranks.split("-")
    return RankRule(tuple(int(p) for p in positions.split(",")), int(lowest), int(highest) if highest else None)


def default_scale(code: int) -> float:
    """Return a scale that the type may have."""
    element = ELEMENT_TYPES.get(code)
    if element is None or element.zero_point_range is None:
        return 0.0
    return QUANTISED_SCALES[8 * element.dtype.itemsize]


def with_type(operand: Operand, code: int) -> Operand:
    """Return the operand with another type, and with what that type requires, so that it is a good one by itself."""
    dims = operand.kind.dims if is_tensor(code) else ()
    return Operand(OperandType(code, dims, default_scale(code)))


def with_rank(operand: Operand, rank: int) -> Operand:
    """Return the operand cut to a rank, or padded with sizes of 1; scales of a channel that is cut away go too."""
    dims = operand.kind.dims[:rank]
    quant = operand.kind.channel_quant
    kept = quant if quant is not None and quant.channel_dim < rank else None
    return replace(operand, kind=replace(operand.kind, dims=dims + (1,) * (rank - len(dims)), channel_quant=kept))


def replaced(operands: tuple[Operand, ...], position: int, operand: Operand) -> tuple[Operand, ...]:
    """Return the list with one operand replaced."""
    return (*operands[:position], operand, *operands[position + 1 :])


def with_ranks(signature: Signature, rule: RankRule, rank: int) -> Signature:
    """Return the signature with the rule's inputs of one rank. Raises ValueError if the signature breaks the rule."""
    inputs = signature.inputs
    for position in rule.positions:
        now = len(inputs[position].kind.dims)
        if now < rule.lowest or (rule.highest is not None and now > rule.highest):
            raise ValueError(f"input {position} has rank {now} to begin with")
        inputs = replaced(inputs, position, with_rank(inputs[position], rank))
    return replace(signature, inputs=inputs)


def retyped(signature: Signature) -> Iterator[tuple[str, Signature]]:
    """Yield the signature with the type of one operand replaced, every operand by every other type."""
    for position, operand in enumerate(signature.inputs):
        for code in set(OperandCode) - {operand.kind.type}:
            inputs = replaced(signature.inputs, position, with_type(operand, code))
            yield f"input {position} is {code.name}", replace(signature, inputs=inputs)
    for position, operand in enumerate(signature.outputs):
        for code in set(OperandCode) - {operand.kind.type}:
            outputs = replaced(signature.outputs, position, with_type(operand, code))
            yield f"output {position} is {code.name}", replace(signature, outputs=outputs)


def recounted(signature: Signature) -> Iterator[tuple[str, Signature]]:
    """Yield the signature with up to five inputs or six outputs more, and with one fewer."""
    inputs, outputs = signature.inputs, signature.outputs
    yield "an input fewer", replace(signature, inputs=inputs[:-1])
    yield "an output fewer", replace(signature, outputs=outputs[:-1])
    for more in range(1, 6):
        yield f"{more} inputs more", replace(signature, inputs=inputs + inputs[:1] * more)
    for more in range(1, 7):
        yield f"{more} outputs more", replace(signature, outputs=outputs + outputs[:1] * more)


def refusal(signature: Signature) -> NNError | None:
    """Add the operands and the operation to a new model and return the error of the latter, None if it is taken."""
    model = Model()
    indexes = [_add(model, operand) for operand in (*signature.inputs, *signature.outputs)]
    count = len(signature.inputs)
    try:
        model.add_operation(signature.code, indexes[:count], indexes[count:])
    except NNError as error:
        return error
    finally:
        model.close()
    return None


def _add(model: Model, operand: Operand) -> int:
    index = model.add_operand(operand.kind)
    if operand.model is not None:
        model.set_operand_value_from_model(index, operand.model)
    return index

# SPDX-License-Identifier: Apache-2.0
"""What `Session.run` takes: one array, a list or a dict, of any type and layout that loses nothing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from nn_runtime.errors import BadData
from nn_runtime.operand import dtype_of, has_unknown_dimensions, is_tensor
from nn_runtime.quantization import dequantize

if TYPE_CHECKING:
    import numpy.typing as npt

    from nn_runtime.hal.types import Operand
    from nn_runtime.interface import Interface, TensorInfo
    from nn_runtime.operand import Array, Dimensions

Inputs: TypeAlias = "npt.ArrayLike | Sequence[npt.ArrayLike]"
"""One array for a network with one input, or a list or tuple with one array an input."""


class SessionInputs:
    """The inputs of a network: their interface, and the operands that they become."""

    def __init__(self, interface: Interface, operands: Sequence[Operand]) -> None:
        """`operands`: of the model, in the interface's order."""
        self._interface = interface
        self._operands = operands
        self._plain = [
            (info.dtype, info.shape if info.dtype == dtype_of(operand.type) and not _is_open(operand) else None)
            for info, operand in zip(interface.inputs, operands, strict=False)
        ]
        """What arrays of each input need no check, by type and shape; none without a shape."""

    def ordered(self, inputs: Inputs | Mapping[str, npt.ArrayLike]) -> tuple[Sequence[npt.ArrayLike], list[str] | None]:
        """Return one array-like an input, and the outputs' names for a dict; raises BadData."""
        infos = self._interface.inputs
        given: Sequence[npt.ArrayLike]
        if isinstance(inputs, (list, tuple)):
            given = inputs
        elif isinstance(inputs, Mapping):
            return self._by_name(inputs)
        else:
            given = [inputs]  # type: ignore[list-item]
        if len(given) != len(infos):
            what = f"a {type(given).__name__} of {len(given)}" if given is inputs else f"one {type(inputs).__name__}"
            raise BadData(f"run: wanted {len(infos)} input{'s' * (len(infos) != 1)} ({_names(infos)}), got {what}")
        return given, None

    def _by_name(self, inputs: Mapping[str, npt.ArrayLike]) -> tuple[Sequence[npt.ArrayLike], list[str]]:
        infos = self._interface.inputs
        given: list[npt.ArrayLike] = []
        by_signature = bool(infos)
        for info in infos:
            name = info.name if info.name in inputs else info.signature_name
            if name not in inputs:
                raise BadData(f"run: input {info.name!r} is missing, got {', '.join(map(repr, inputs)) or 'none'}")
            by_signature = by_signature and info.name not in inputs
            given.append(inputs[name])
        if len(inputs) != len(infos):
            known = {name for info in infos for name in (info.name, info.signature_name)}
            extra = [name for name in inputs if name not in known]
            if extra:
                wrong = f"no input is called {extra[0]!r}"
            elif len(inputs) < len(infos):
                wrong = "several have one name: give a list"
            else:
                wrong = "an input is given by two names"
            raise BadData(f"run: {wrong}, the inputs are {_names(infos)}")
        outputs = self._interface.outputs
        return given, _told_apart([(by_signature and info.signature_name) or info.name for info in outputs])

    def arrays(self, given: Sequence[npt.ArrayLike]) -> Sequence[Array]:
        """Return arrays that can be copied to those bound for the operands, as many as there are; raises BadData."""
        for value, (dtype, shape) in zip(given, self._plain):  # noqa: B905  # `strict` costs half of this
            if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                return [self._checked(at, one) for at, one in enumerate(given)]
        return cast("Sequence[Array]", given)

    def _checked(self, position: int, given: npt.ArrayLike) -> Array:
        """Return an array-like in the type that the operand is computed in, or as it is; raises BadData."""
        info, operand = self._interface.inputs[position], self._operands[position]
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise BadData(f"{self._wanted(position)}, got what is no array: {error}") from error
        problem = self._problem(position, given, array)
        if problem:
            raise BadData(self._wanted(position) + problem)
        computed = dtype_of(operand.type)
        if info.is_real_inside(computed):
            return dequantize(array, info.quantization)
        if computed.kind == "f" and array.dtype.kind in "fiu" and array.dtype.itemsize > computed.itemsize:
            with np.errstate(over="ignore"):
                return array.astype(computed)
        return array

    def _wanted(self, position: int) -> str:
        info = self._interface.inputs[position]
        shape = "..." if self._takes_any_rank(position) else ", ".join(str(size or "any") for size in info.shape)
        return f"input {position} {info.name!r}: wanted {info.dtype} [{shape}]"

    def _takes_any_rank(self, position: int) -> bool:
        operand = self._operands[position]
        return is_tensor(operand.type) and not operand.dimensions

    def _problem(self, position: int, given: npt.ArrayLike, array: Array) -> str:
        """Return what is wrong with an array, to be said behind what is wanted; empty for one that is taken."""
        info, any_rank = self._interface.inputs[position], self._takes_any_rank(position)
        is_array = isinstance(given, np.ndarray)
        if array.dtype.kind in "OUS":
            return f", got {_type_name(given)}"
        if array.dtype != info.dtype and not _converts(array, info.dtype, is_array):
            hint = "" if any_rank else _hint(given, array, info)
            return f", {_got(array)}{_values_outside(array, info.dtype)}{hint}"
        if array.shape != info.shape and not any_rank and not _fits(array.shape, info.shape):
            return f", {_got(array)}{_hint(given, array, info)}"
        if 0 in array.shape or (any_rank and not array.shape):
            return f", {_got(array)}; NNAPI has no tensor without dimensions or elements"
        computed = dtype_of(self._operands[position].type)
        if computed.itemsize < info.dtype.itemsize and not _converts(array, computed, is_array):
            return f", computed in {computed}, {_got(array)}{_values_outside(array, computed)}"
        return ""


def _got(array: Array) -> str:
    return f"got {array.dtype} {list(array.shape)}"


def _hint(given: npt.ArrayLike, array: Array, info: TensorInfo) -> str:
    """Return what is probably meant where an array is not what an input wants; nothing where that is not known."""
    if _fits((1, *array.shape), info.shape):
        if isinstance(given, (list, tuple)):
            return "; a list given to run holds one entry for each input"
        return "; one of a batch needs the batch's dimension: array[np.newaxis]"
    if (
        array.size
        and len(array.shape) == len(info.shape) > 1
        and _fits(array.shape[1:], info.shape[1:])
        and array.shape != info.shape
    ):
        shapes = f"{{{info.name!r}: {list(array.shape)}}}"
        return f"; nn.load(..., shapes={shapes}), or nnrt's --shape, makes a network of that batch"
    if info.scale and array.dtype.kind == "f":
        return f"; it is quantised: session.inputs[...].quantize makes {info.dtype} of real values"
    return ""


def _is_open(operand: Operand) -> bool:
    return has_unknown_dimensions(operand.type, operand.dimensions)


def _names(infos: Sequence[TensorInfo]) -> str:
    return ", ".join(repr(info.name) for info in infos)


def _type_name(given: object) -> str:
    """Return what was given in place of numbers by Python's own name."""
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    return "None" if given is None else f"a {type(given).__name__}"


def _told_apart(names: Sequence[str]) -> list[str]:
    """Return names of which those that come again have a number behind them: files may give two tensors one name."""
    result: list[str] = []
    for name in names:
        free = (candidate for at in itertools.count() if (candidate := f"{name}:{at}" if at else name) not in result)
        result.append(next(free))
    return result


def _values_outside(array: Array, wanted: np.dtype[np.generic]) -> str:
    """Return which integers were given where they are why an array does not go for another type, else nothing."""
    if array.dtype.kind not in "iu" or wanted.kind not in "iu":
        return ""
    least, most = _range_of(wanted)
    return f" with values {array.min()} to {array.max()}, {wanted} holds {least} to {most}"


@functools.cache
def _range_of(integers: np.dtype[np.generic]) -> tuple[int, int]:
    info = np.iinfo(str(integers))
    return info.min, info.max


def _fits(given: Dimensions, wanted: Dimensions) -> bool:
    return len(given) == len(wanted) and all(b in (0, a) for a, b in zip(given, wanted, strict=True))


def _converts(array: Array, wanted: np.dtype[np.generic], is_array: bool) -> bool:
    """Tell whether values survive: floats as floats, integers that fit, Python's integers as floats."""
    kinds = array.dtype.kind, wanted.kind
    if kinds == ("f", "f") or kinds == ("b", "b"):
        return True
    if kinds[0] in "iu" and kinds[1] == "f":
        return not is_array
    if kinds[0] in "iu" and kinds[1] in "iu":
        least, most = _range_of(wanted)
        return not array.size or (int(array.min()) >= least and int(array.max()) <= most)
    return False

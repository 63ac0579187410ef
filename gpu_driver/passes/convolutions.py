# SPDX-License-Identifier: Apache-2.0
"""What convolutions take over from operations that spread or pad their images.

TensorFlow computes a dilated convolution as SPACE_TO_BATCH_ND, a plain one and BATCH_TO_SPACE_ND, often with a SLICE of
the result; its converter leaves that so where the batch is open. Convolutions along a sequence have reshapes between,
and a PAD of three axes before them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.passes.graph import RESHAPES
from nn_runtime.codes import OperationCode
from nn_runtime.errors import BadData
from nn_runtime.operand import FLOAT_TYPES
from nn_runtime.operations.conv import convolution_geometry
from nn_runtime.operations.slice import slice_parameters
from nn_runtime.operations.sliding_window import check_padding
from nn_runtime.operations.space import space_blocks
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.passes.graph import Graph
    from nn_runtime.hal.types import Operation
    from nn_runtime.operand import Dimensions

_CONVOLUTIONS = frozenset({OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D})
_SLICES = frozenset({OperationCode.SLICE, OperationCode.STRIDED_SLICE})
_BOUNDS = frozenset({OperationCode.MINIMUM, OperationCode.MAXIMUM})
_SIDES = ("padding_left", "padding_right", "padding_top", "padding_bottom")
_Sides = tuple[int, int, int, int]
"""Of an image: left, right, top, bottom, as the operands of a convolution."""


@dataclass(frozen=True)
class _Spread:
    """A convolution of every n-th pixel of an image, n its dilation (rows, columns).

    `turned`: it sees a sequence as one row, which the operations around it see as one column. `end`: where the batches
    become an image again. `removed`: what lies between, and a slice behind. `result`: the operand that is left.
    """

    convolution: int
    turned: bool
    dilation: tuple[int, int]
    sides: _Sides
    end: int
    removed: tuple[int, ...]
    result: int


def take_images(graph: Graph) -> bool:
    """Let convolutions read images before they are spread over batches or padded; whether there were any."""
    changed = False
    for kind, take in ((OperationCode.SPACE_TO_BATCH_ND, _take_spread_image), (OperationCode.PAD, _take_padded_image)):
        for at in list(graph.operations):
            changed |= at in graph.operations and graph.operations[at].type == kind and take(graph, at)
    return changed


def _take_spread_image(graph: Graph, at: int) -> bool:
    """Give the convolutions of every n-th pixel that dilation, if nothing else reads the pixels so."""
    found = _convolutions_behind(graph, graph.operations[at].outputs[0]) if graph.fits(at) else None
    if found is None:
        return False
    reshapes, convolutions = found
    for convolution in convolutions:
        _put_bounds_last(graph, convolution)
    spread = [one for convolution in convolutions if (one := _spread(graph, at, convolution)) is not None]
    turned = {one.turned for one in spread}
    if len(spread) < len(convolutions) or len(turned) != 1:
        return False

    source = graph.operations[at].inputs[0]
    entering = graph.add_temporary(source, _seen(graph.operand(source).dimensions, turned.pop()))
    _reshape(graph, at, source, entering, reshapes)
    for one in spread:
        leaving = graph.add_temporary(one.result, _seen(graph.operand(one.result).dimensions, one.turned))
        operation = _dilated(graph, one)
        operation = replace(operation, inputs=(entering, *operation.inputs[1:]), outputs=(leaving,))
        graph.replace(one.convolution, operation, one.removed)
        _reshape(graph, one.end, leaving, one.result)
    return True


def _take_padded_image(graph: Graph, at: int) -> bool:
    """Let convolutions pad an image themselves, if nothing else reads it padded."""
    found = _convolutions_behind(graph, graph.operations[at].outputs[0])
    source = graph.operations[at].inputs[0]
    dims, amounts = graph.operand(source).dimensions, graph.constant(graph.operations[at].inputs[1])
    if found is None or amounts is None or amounts.shape != (len(dims), 2) or (amounts < 0).any():
        return False
    reshapes, convolutions = found
    sides = [(int(before), int(after)) for before, after in amounts]
    if reshapes:
        axis = _added_axis(graph, at, reshapes, convolutions)
        if axis is None:
            return False
        dims = (*dims[:axis], 1, *dims[axis:])
        sides.insert(axis, (0, 0))
    if len(sides) != 4:
        return False
    padded = [one for convolution in convolutions if (one := _padded(graph, convolution, sides)) is not None]
    if len(padded) < len(convolutions):
        return False

    if reshapes:
        image = graph.add_temporary(source, dims)
        _reshape(graph, at, source, image, reshapes)
        taken: tuple[int, ...] = ()
    else:
        image, taken = source, (at,)
    for convolution, operation in zip(convolutions, padded, strict=True):
        graph.replace(convolution, replace(operation, inputs=(image, *operation.inputs[1:])), taken)
        taken = ()
    return True


def _convolutions_behind(graph: Graph, operand: int) -> tuple[list[int], list[int]] | None:
    """Return all that read a temporary as their image, perhaps through reshapes, which come first; or None."""
    reshapes: list[int] = []
    convolutions: list[int] = []
    images = [operand]
    while images:
        image = images.pop()
        if not graph.is_temporary(image):
            return None
        for at in graph.readers(image):
            operation = graph.operations[at]
            if operation.inputs[0] != image or image in operation.inputs[1:]:
                return None
            if operation.type in _CONVOLUTIONS:
                convolutions.append(at)
            elif operation.type in RESHAPES:
                reshapes.append(at)
                images.append(operation.outputs[0])
            else:
                return None
    return reshapes, convolutions


def _put_bounds_last(graph: Graph, convolution: int) -> None:
    """Have what a convolution makes of batches put together to an image first, and bounded by numbers then.

    The operations change places with each other, so that the places count for what they did before.
    """
    operand = graph.operations[convolution].outputs[0]
    places: list[int] = []
    at = graph.sole_reader(operand)
    while at is not None and (graph.operations[at].type in RESHAPES or _is_bound(graph, at)):
        places.append(at)
        at = graph.sole_reader(graph.operations[at].outputs[0])
    if at is None or graph.operations[at].type != OperationCode.BATCH_TO_SPACE_ND:
        return
    places.append(at)
    operations = [graph.operations[place] for place in places]
    image = operations[-1].outputs[0]
    dims = graph.operand(image).dimensions
    for place, operation in zip(places, sorted(operations, key=lambda one: one.type in _BOUNDS), strict=True):
        source = next(i for i in operation.inputs if not graph.is_constant(i))
        made = dims if operation.type in _BOUNDS else graph.operand(operation.outputs[0]).dimensions
        result = image if place == at else graph.add_temporary(image, made)
        inputs = tuple(operand if i == source else i for i in operation.inputs)
        graph.replace(place, replace(operation, inputs=inputs, outputs=(result,)))
        operand = result


def _is_bound(graph: Graph, at: int) -> bool:
    """Whether an operation compares real numbers with one."""
    operation = graph.operations[at]
    if operation.type not in _BOUNDS or graph.operand(operation.outputs[0]).type not in FLOAT_TYPES:
        return False
    constants = [graph.constant(i) for i in operation.inputs if graph.is_constant(i)]
    return len(constants) == 1 and constants[0] is not None and constants[0].size == 1


def _spread(graph: Graph, at: int, convolution: int) -> _Spread | None:
    """Return what makes an image of what a convolution computes of every n-th pixel, or None."""
    end, between = graph.reader_behind_reshapes(graph.operations[convolution].outputs[0])
    if end is None or graph.operations[end].type != OperationCode.BATCH_TO_SPACE_ND:
        return None
    if not (graph.fits(convolution) and graph.fits(end)):
        return None
    split, joined = space_blocks(graph.view(at)), space_blocks(graph.view(end))
    window = convolution_geometry(graph.view(convolution))
    plain = (window.stride_height, window.stride_width, window.dilation_height, window.dilation_width) == (1, 1, 1, 1)
    dilation = split.block_height, split.block_width
    if not plain or window.padded or window.nchw or split.nchw or joined.nchw:
        return None
    inner = (window.batches, window.input_height, window.input_width, window.input_depth)
    turned = inner != split.output_dimensions
    if turned and not split.output_dimensions[2] == split.block_width == 1:
        return None
    same = _seen(inner, turned) == split.output_dimensions and dilation == (joined.block_height, joined.block_width)
    if not same or _seen(window.output_dimensions, turned) != joined.input_dimensions:
        return None

    sides = split.padding_left, split.padding_right, split.padding_top, split.padding_bottom
    following, cut = _slice_behind(graph, end)
    removed, last = tuple(between), end
    if following is not None and all(side >= less for side, less in zip(sides, cut, strict=True)):
        left, right, top, bottom = (side - less for side, less in zip(sides, cut, strict=True))
        sides, removed, last = (left, right, top, bottom), (*removed, following), following
    if turned:
        sides, dilation = (*sides[2:], *sides[:2]), dilation[::-1]
    return _Spread(convolution, turned, dilation, sides, end, removed, graph.operations[last].outputs[0])


def _slice_behind(graph: Graph, at: int) -> tuple[int | None, _Sides]:
    """Return the only reader of an image where it takes rows and columns of it, and how many it leaves at each side."""
    output = graph.operations[at].outputs[0]
    following = graph.sole_reader(output)
    if following is None or graph.operations[following].type not in _SLICES or not graph.fits(following):
        return None, (0, 0, 0, 0)
    taken = slice_parameters(graph.view(following))
    batches, height, width, depth = graph.operand(output).dimensions
    if taken.dropped or set(taken.strides) != {1} or (taken.sizes[0], taken.sizes[3]) != (batches, depth):
        return None, (0, 0, 0, 0)
    (top, left), (rows, columns) = taken.begins[1:3], taken.sizes[1:3]
    return following, (left, width - left - columns, top, height - top - rows)


def _added_axis(graph: Graph, at: int, reshapes: list[int], convolutions: list[int]) -> int | None:
    """Return the axis of size 1 that reshapes add to a padded sequence [batches, length, depth], or None."""
    if not all(graph.fits(place) for place in (at, *reshapes)):
        return None
    sequence = graph.operand(graph.operations[at].outputs[0]).dimensions
    images = {graph.operand(graph.operations[one].inputs[0]).dimensions for one in convolutions}
    fitting = [axis for axis in (1, 2) if images == {(*sequence[:axis], 1, *sequence[axis:])}]
    return fitting[0] if len(sequence) == 3 and fitting else None


def _padded(graph: Graph, at: int, added: Sequence[tuple[int, int]]) -> Operation | None:
    """Return a convolution whose image has more padding by axis, or None where its own is not known."""
    operation, op = graph.operations[at], graph.view(at)
    scheme = op.position("padding_scheme")
    try:
        nchw = op.position("layout") >= 0 and op.bool_value("layout")
        outer, rows, columns = (added[1], *added[2:]) if nchw else (added[3], *added[1:3])
        if scheme < 0:
            own = [op.int_value(name) for name in _SIDES]
        elif graph.fits(at):
            window = convolution_geometry(op)
            own = [getattr(window, name) for name in _SIDES]
        else:
            return None
        amounts = [side + more for side, more in zip(own, (*columns, *rows), strict=True)]
        check_padding(op, **dict(zip(_SIDES, amounts, strict=True)))
    except BadData:
        return None  # lowering says what is wrong
    if any((*added[0], *outer)):
        return None
    sides = [graph.add_scalar(amount) for amount in amounts]
    first, last = (op.position(_SIDES[0]), op.position(_SIDES[-1])) if scheme < 0 else (scheme, scheme)
    return replace(operation, inputs=(*operation.inputs[:first], *sides, *operation.inputs[last + 1 :]))


def _dilated(graph: Graph, spread: _Spread) -> Operation:
    """Return a plain convolution with other padding, and with gaps."""
    operation, op = graph.operations[spread.convolution], graph.view(spread.convolution)
    numbers = [graph.add_scalar(number) for number in (*spread.sides, 1, 1)]
    kept = [
        operation.inputs[op.position(name)] for name in ("depth_multiplier", "activation") if op.position(name) >= 0
    ]
    layout, dilation = graph.add_scalar(False), [graph.add_scalar(gap) for gap in spread.dilation[::-1]]
    return replace(operation, inputs=(*operation.inputs[:3], *numbers, *kept, layout, *dilation))


def _reshape(graph: Graph, at: int, source: int, result: int, absorbed: Sequence[int] = ()) -> None:
    """Put a RESHAPE in the place of an operation."""
    dims = graph.add_numbers(graph.operand(result).dimensions)
    operation = replace(graph.operations[at], type=OperationCode.RESHAPE, inputs=(source, dims), outputs=(result,))
    graph.replace(at, operation, absorbed)


def _seen(dims: Dimensions, turned: bool) -> Dimensions:
    """Return the dimensions of an image, rows and columns exchanged where it is turned."""
    batches, height, width, depth = dims
    return (batches, width, height, depth) if turned else (batches, height, width, depth)

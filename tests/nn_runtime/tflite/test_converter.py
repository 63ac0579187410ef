# SPDX-License-Identifier: Apache-2.0
"""Converted operators against LiteRT's reference kernels, and operators that cannot be converted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.network import Network
from nn_runtime.tflite import convert, read, supported_operators
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite import (
    bit_cases,
    elementwise_cases,
    index_cases,
    movement_cases,
    operator_cases,
    recurrent_cases,
    slice_cases,
    volume_cases,
)
from tests.nn_runtime.tflite.operator_cases import (
    CONV,
    LSTM_STATES,
    LSTM_WEIGHTS,
    RELU,
    SIGN_BIT,
    TANH,
    Case,
    bytes_of,
    weights,
)
from tests.nn_runtime.tflite.operator_file import (
    Step,
    Tensor,
    constant,
    int8,
    int32,
    int64,
    random_inputs,
    real,
    reference,
    uint8,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from nn_runtime.device import Device

CASES = [
    *operator_cases.CASES,
    *elementwise_cases.CASES,
    *movement_cases.CASES,
    *index_cases.CASES,
    *recurrent_cases.CASES,
    *volume_cases.CASES,
    *bit_cases.CASES,
    *slice_cases.CASES,
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator_agrees_with_the_reference(case: Case, reference_device: Device) -> None:
    file, fed = case.file()
    inputs = random_inputs(fed)
    wanted = reference(file, inputs, case.usual_kernels)
    network = nn.load(file)
    with network.compile(reference_device) as session:
        results = session.run(inputs)
    for result, expected in zip(results, wanted, strict=True):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        if result.dtype.kind == "f":
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        elif result.dtype.kind == "b":
            np.testing.assert_array_equal(result, expected)
        else:
            assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= case.steps


@pytest.mark.parametrize("seed", range(3))
def test_requantisation_has_the_bits_of_the_reference(seed: int, reference_device: Device) -> None:
    rng = np.random.default_rng(seed)
    every_byte = np.arange(256, dtype=np.uint8).view(np.int8)
    for _ in range(8):
        scales = [float(np.float32(scale)) for scale in 2.0 ** rng.uniform(-6, 0, 2)]
        zero_points = [int(zero_point) for zero_point in rng.integers(-128, 128, 2)]
        case = Case("QUANTIZE", [int8(scales[0], zero_points[0], 256)], [int8(scales[1], zero_points[1], 256)])
        file, _ = case.file()
        with nn.load(file).compile(reference_device) as session:
            np.testing.assert_array_equal(session.run(every_byte)[0], reference(file, [every_byte])[0])


@pytest.mark.parametrize("size", [(2, 2), (3, 5), (7, 7), (8, 10)])
@pytest.mark.parametrize("ratio", [0.51, 0.8, 1.0, 1.23, 1.7])
@pytest.mark.parametrize("zero_point", [-128, 127])
def test_mean_after_an_activation_has_the_bits_of_the_reference(
    size: tuple[int, int], ratio: float, zero_point: int, reference_device: Device
) -> None:
    source, result = int8(0.02, zero_point, 1, *size, 512), int8(0.02 / ratio, -3, 1, 1, 1, 512)
    case = Case("MEAN", [source, constant([1, 2])], [result], "ReducerOptions", {"KeepDims": True})
    file, fed = case.file()
    inputs = random_inputs(fed)
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((9, 200), [1]),
        ((1, 36, 128), [-1]),
        ((3, 50, 8), [1]),
        ((60, 7), [0]),
        ((2, 3, 5, 64), [2, 3]),
        ((4, 33), [0, 1]),
        ((2, 3, 2, 2, 50), [-1]),
        ((2, 2, 2, 2, 2, 50), [5]),
        ((3, 2, 20, 2, 3), [2]),
    ],
)
@pytest.mark.parametrize("ratio", [0.51, 1.0, 1.7])
@pytest.mark.parametrize("keeps", [False, True])
def test_mean_over_neighbouring_axes_has_nearly_all_bits_of_the_reference(
    shape: tuple[int, ...], axes: list[int], ratio: float, keeps: bool, reference_device: Device
) -> None:
    reduced = {axis % len(shape) for axis in axes}
    left = [1 if at in reduced else size for at, size in enumerate(shape) if keeps or at not in reduced]
    case = Case(
        "MEAN",
        [int8(0.02, 5, *shape), constant(axes)],
        [int8(0.02 / ratio, -3, *left)],
        "ReducerOptions",
        {"KeepDims": keeps},
    )
    file, fed = case.file()
    inputs = random_inputs(fed)
    with nn.load(file).compile(reference_device) as session:
        found, wanted = session.run(inputs)[0].astype(int), reference(file, inputs)[0].astype(int)
    assert found.shape == wanted.shape == tuple(left)
    assert np.abs(found - wanted).max() <= 1
    assert np.mean(found != wanted) <= 0.1


def test_every_supported_operator_has_a_case() -> None:
    tested = {getattr(BuiltinOperator, case.code) for case in CASES}
    elsewhere = {"IF", "WHILE", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
    elsewhere |= {"RFFT2D", "REAL", "IMAG", "COMPLEX_ABS", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"}
    elsewhere |= {"STABLEHLO_COMPOSITE", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER"}
    elsewhere |= {"STABLEHLO_CASE", "STABLEHLO_CBRT"}
    assert set(supported_operators()) - tested == {getattr(BuiltinOperator, name) for name in elsewhere}


def test_other_shapes_change_the_whole_network(reference_device: Device) -> None:
    file, _ = next(case for case in CASES if case.name == "dilated").file()
    image = random_inputs([real(3, 11, 9, 2)])
    network = nn.load(file, shapes={"t0": (3, 11, 9, 2)})
    assert network.outputs[0].shape == (3, 7, 3, 3)
    with network.compile(reference_device) as session:
        np.testing.assert_allclose(session.run(image)[0], reference(file, image)[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(BadData, match="no input is called 'x'; the inputs are 't0'"):
        nn.load(file, shapes={"x": (1,)})
    with pytest.raises(BadData, match="there is no input 1; the inputs are 't0'"):
        nn.load(file, shapes={1: (1,)})
    with pytest.raises(BadData, match="input 0 't0' is given by 't0' and by 0"):
        nn.load(file, shapes={"t0": (3, 11, 9, 2), 0: (3, 11, 9, 2)})
    with pytest.raises(BadData, match=r"input 0 't0': every size must be > 0, got \[0, 11, 9, 2\]"):
        nn.load(file, shapes={0: (0, 11, 9, 2)})
    with pytest.raises(BadData, match="shapes: wanted a dict of shapes by input name or position, got list"):
        nn.load(file, shapes=[(3, 11, 9, 2)])  # type: ignore[arg-type]
    with pytest.raises(BadData, match=r"operator 0 CONV_2D: filter .* must have depth 3") as caught:
        nn.load(file, shapes={0: (3, 11, 9, 3)})
    assert str(caught.value).endswith("(in the file, inputs have other shapes: [1, 9, 9, 2] of 't0')")


def test_sizes_that_the_file_leaves_open_are_named_where_an_operator_is_refused() -> None:
    model = read(next(case for case in CASES if case.name == "dilated").file()[0])
    (main,) = model.subgraphs
    (image,) = main.inputs
    tensors = list(main.tensors)
    tensors[image] = replace(tensors[image], shape=(1, 11, 9, 3), shape_signature=(-1, 11, 9, -1))
    opened = replace(model, subgraphs=(replace(main, tensors=tuple(tensors)),))
    tensors[image] = replace(tensors[image], shape_signature=(1, 11, 9, 3))
    with pytest.raises(BadData, match=r"must have depth 3, that of the input, got \[3, 3, 3, 2\]$"):
        convert(replace(model, subgraphs=(replace(main, tensors=tuple(tensors)),)))
    taken = re.escape("give: [-1, 11, 9, -1] of 't0', here [1, 11, 9, 3])")
    with pytest.raises(BadData, match=f"must have depth 3.* {taken}$"):
        convert(opened)
    with pytest.raises(BadData, match=r"must have depth 5.* \(in the file, inputs have other shapes"):
        convert(opened, {0: (1, 11, 9, 5)})
    assert convert(opened, {0: (2, 11, 9, 2)}).outputs[0].shape == (2, 7, 3, 3)


def test_shapes_computed_from_the_input_are_constants(reference_device: Device) -> None:
    """[b, 2, 3] -> [b, 6] as exporters write it for an open batch size: SHAPE, STRIDED_SLICE, PACK, RESHAPE."""
    tensors = [
        real(1, 2, 3),
        Tensor(TensorType.INT32, (3,)),
        *(constant([value]) for value in (0, 1, 1)),
        Tensor(TensorType.INT32, ()),
        constant(np.int32(6)),
        Tensor(TensorType.INT32, (2,)),
        real(1, 6),
    ]
    steps = [
        Step("SHAPE", [0], [1], "ShapeOptions", {"OutType": 2}),
        Step("STRIDED_SLICE", [1, 2, 3, 4], [5], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        Step("PACK", [5, 6], [7], "PackOptions", {"ValuesCount": 2}),
        Step("RESHAPE", [0, 7], [8], "ReshapeOptions"),
    ]
    file = write(tensors, steps, [0], [8])
    data = random_inputs([real(4, 2, 3)])
    network = nn.load(file, shapes={0: (4, 2, 3)})
    assert len(network.model.hal.main.operations) == 1
    with network.compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(data)[0], data[0].reshape(4, 6))


def test_constants_of_other_types_become_real(reference_device: Device) -> None:
    """float16 weights behind a DEQUANTIZE, and a float operator with 8-bit weights."""
    half = weights(5, 4).astype(np.float16)
    tensors = [real(2, 4), constant(half), real(5, 4), real(2, 5)]
    steps = [Step("DEQUANTIZE", [1], [2]), Step("FULLY_CONNECTED", [0, 2, -1], [3], "FullyConnectedOptions")]
    data = random_inputs([tensors[0]])
    with nn.load(write(tensors, steps, [0], [3])).compile(reference_device) as session:
        np.testing.assert_allclose(session.run(data)[0], data[0] @ half.astype(np.float32).T, rtol=1e-5, atol=1e-5)
    integers = bytes_of(np.int8, 5, 4)
    tensors = [real(2, 4), constant(integers, 0.5), real(2, 5)]
    steps = [Step("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")]
    with nn.load(write(tensors, steps, [0], [2])).compile(reference_device) as session:
        np.testing.assert_allclose(session.run(data)[0], data[0] @ (integers * 0.5).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "options", "values", "expected"),
    [
        ("SOFTMAX", "SoftmaxOptions", {"Beta": 2.0}, lambda x: np.exp(2 * x) / np.exp(2 * x).sum(-1, keepdims=True)),
        ("LOG_SOFTMAX", "LogSoftmaxOptions", {}, lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
        ("ELU", "NONE", {}, lambda x: np.where(x < 0, np.expm1(x), x)),
    ],
)
def test_tensors_of_float16_have_scalars_of_float16(
    code: str,
    options: str,
    values: dict[str, float],
    expected: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    reference_device: Device,
) -> None:
    """A file whose tensors are float16 throughout, as no kernel of LiteRT's takes them."""
    data = np.random.default_rng(5).standard_normal((3, 7)).astype(np.float16)
    tensors = [Tensor(TensorType.FLOAT16, (3, 7)), Tensor(TensorType.FLOAT16, (3, 7))]
    with nn.load(write(tensors, [Step(code, [0], [1], options, values)], [0], [1])).compile(
        reference_device
    ) as session:
        (result,) = session.run([data])
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected(data.astype(np.float64)), rtol=2e-3, atol=1e-3)


def test_outputs_that_no_operation_writes_are_copied(reference_device: Device) -> None:
    """An output may be an input, a constant, or listed twice."""
    tensors = [real(3), constant([1.0, 2.0]), real(3)]
    file = write(tensors, [Step("RELU", [0], [2])], [0], [0, 1, 2, 2])
    data = np.array([-1, 0, 2], np.float32)
    with nn.load(file).compile(reference_device) as session:
        results = session.run(data)
    for result, wanted in zip(results, ([-1, 0, 2], [1, 2], [0, 0, 2], [0, 0, 2]), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_constants_of_scales_beyond_float32_are_infinite(reference_device: Device) -> None:
    tensors = [real(3), constant(np.array([100, -100, 1], np.int8), 3e38), real(3)]
    file = write(tensors, [Step("MUL", [0, 1], [2], "MulOptions")], [0], [2])
    with nn.load(file).compile(reference_device) as session:
        (result,) = session.run([np.ones(3, np.float32)])
    np.testing.assert_array_equal(result, np.array([np.inf, -np.inf, 3e38], np.float32))


@pytest.mark.parametrize("number", [-(2**31), 2**31 - 1])
def test_constants_of_int64_at_the_ends_of_32_bits(number: int, reference_device: Device) -> None:
    wide = Tensor(TensorType.INT64, (1,), data=np.array([number]))
    case = Case("EQUAL", [int64(2), wide], [Tensor(TensorType.BOOL, (2,))], "EqualOptions")
    with nn.load(case.file()[0]).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run([np.array([number, 7])])[0], [True, False])


def test_two_outputs_that_are_one_operand(reference_device: Device) -> None:
    """A RESHAPE to the shape that a tensor has is no operation."""
    tensors = [real(3), real(3), constant([3]), real(3)]
    file = write(tensors, [Step("NEG", [0], [1]), Step("RESHAPE", [1, 2], [3], "ReshapeOptions")], [0], [1, 3])
    data = np.array([-1, 0, 2], np.float32)
    with nn.load(file).compile(reference_device) as session:
        for result in session.run(data):
            np.testing.assert_array_equal(result, -data)


def test_tensors_between_operators_can_be_kept(reference_device: Device) -> None:
    tensors = [real(2, 3), real(2, 3), real(2, 3)]
    file = write(tensors, [Step("RELU", [0], [1]), Step("TANH", [1], [2])], [0], [2])
    network = convert(read(file), preserve_all=True)
    assert [info.index for info in network.outputs] == [2, 1]
    data = random_inputs(tensors[:1])
    with network.compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(data)[1], np.maximum(data[0], 0))


def test_tensors_that_are_known_at_import_are_not_kept() -> None:
    tensors = [real(2, 3), int32(2), real(6), constant([-1])]
    steps = [Step("SHAPE", [0], [1], "ShapeOptions", {"OutType": 2}), Step("RESHAPE", [0, 3], [2], "ReshapeOptions")]
    network = convert(read(write(tensors, steps, [0], [2])), preserve_all=True)
    assert [info.index for info in network.outputs] == [2]


def _bad(case: Case) -> bytes:
    return case.file()[0]


FULLY = "FullyConnectedOptions"
REFUSALS = {
    "no such conversion": (Case("UNIQUE", [real(3)], [real(3), int32(3)]), "operator 0 UNIQUE: no NNAPI"),
    "missing input": (Case("ADD", [real(3)], [real(3)]), r"operator 0 ADD: input1 \(input 1\) is missing"),
    "omitted input": (Case("ADD", [real(3), None], [real(3)]), r"operator 0 ADD: input1 \(input 1\) is missing"),
    "no output": (Case("RELU", [real(3)], []), "operator 0 RELU: must have 1 outputs, got 0"),
    "rank": (
        Case("CONV_2D", [real(3, 3), constant(weights(1, 1, 1, 3)), None], [real(3)], "Conv2DOptions", CONV),
        r"operator 0 CONV_2D: input \(input 0\) must have rank 4, got \[3, 3\]",
    ),
    "pictures of no size": (
        Case("RESIZE_NEAREST_NEIGHBOR", [int32(1, 2, 2, 1), constant([0, 3])], [int32(1, 0, 3, 1)]),
        r"operator 0 RESIZE_NEAREST_NEIGHBOR: size \(input 1\) must be height and width > 0, got \[0, 3\]",
    ),
    "rows of nothing": (
        Case("FULLY_CONNECTED", [real(2, 4), constant(weights(5, 0))], [real(2, 5)]),
        r"operator 0 FULLY_CONNECTED: input \(input 0\) must have whole rows of 0 elements, got \[2, 4\]",
    ),
    "bias of the run": (
        Case(
            "CONV_2D",
            [
                uint8(0.1, 3, 1, 4, 4, 2),
                constant(bytes_of(np.uint8, 3, 2, 2, 2), 0.02, 7),
                Tensor(TensorType.INT32, (3,), 0.1 * 0.02),
            ],
            [uint8(0.3, 10, 1, 4, 4, 3)],
            "Conv2DOptions",
            CONV,
        ),
        "operator 0 CONV_2D: a quantised bias must be a constant",
    ),
    "sequences along batches": (
        Case(
            "REVERSE_SEQUENCE",
            [real(3, 3), constant([1, 2, 3])],
            [real(3, 3)],
            "ReverseSequenceOptions",
            {"SeqDim": 1, "BatchDim": 1},
        ),
        r"operator 0 REVERSE_SEQUENCE: seq_dim and batch_dim must be two dimensions of \[3, 3\] > 0, got 1 and 1",
    ),
    "bias length": (
        Case("FULLY_CONNECTED", [real(2, 4), constant(weights(5, 4)), constant(weights(4))], [real(2, 5)], FULLY),
        r"operator 0 FULLY_CONNECTED: bias \(input 2\) must have dimensions \[5\], got \[4\]",
    ),
    "stride": (
        Case(
            "CONV_2D",
            [real(1, 3, 3, 1), constant(weights(1, 1, 1, 1)), None],
            [real(1, 3, 3, 1)],
            "Conv2DOptions",
            {"StrideW": 0, "StrideH": 1},
        ),
        r"operator 0 CONV_2D: stride_width \(input \d+\) must be > 0, got 0",
    ),
    "activation of a concatenation": (
        Case("CONCATENATION", [real(3), real(3)], [real(6)], "ConcatenationOptions", {"FusedActivationFunction": RELU}),
        r"operator 0 CONCATENATION: fused activation 1 \(RELU\) is not supported",
    ),
    "activation of a normalisation": (
        Case("L2_NORMALIZATION", [real(3)], [real(3)], "L2NormOptions", {"FusedActivationFunction": SIGN_BIT}),
        r"operator 0 L2_NORMALIZATION: fused activation 5 \(SIGN_BIT\) is not supported",
    ),
    "activation of a product": (
        Case(
            "FULLY_CONNECTED",
            [real(1, 3), constant(weights(2, 3))],
            [real(1, 2)],
            "FullyConnectedOptions",
            {"FusedActivationFunction": TANH},
        ),
        r"operator 0 FULLY_CONNECTED: fused activation 4 \(TANH\) is not supported",
    ),
    "activation of a recurrent network": (
        Case(
            "RNN",
            [
                real(1, 3),
                constant(weights(2, 3)),
                constant(weights(2, 2)),
                constant(weights(2)),
                recurrent_cases.state(1, 2),
            ],
            [real(1, 2)],
            "RNNOptions",
            {"FusedActivationFunction": SIGN_BIT},
        ),
        r"operator 0 RNN: fused activation 5 \(SIGN_BIT\) is not supported",
    ),
    "activation of a cell": (
        Case(
            "LSTM",
            [real(2, 3), *LSTM_WEIGHTS, None, None, None, *[constant(weights(4))] * 4, None, None, *LSTM_STATES],
            [real(2, 4)],
            "LSTMOptions",
            {"FusedActivationFunction": 6},  # SIGMOID to NNAPI
        ),
        r"operator 0 LSTM: the activation must be 0 \(NONE\), 1 \(RELU\), 3 \(RELU6\) or 4 \(TANH\), got 6",
    ),
    "axis": (
        Case("CONCATENATION", [real(3), real(3)], [real(6)], "ConcatenationOptions", {"Axis": 1}),
        r"operator 0 CONCATENATION: axis must be in \[-1, 1\), got 1",
    ),
    "parameter that is no constant": (
        Case("RESHAPE", [real(6), Tensor(TensorType.INT32, (2,))], [real(2, 3)]),
        r"operator 0 RESHAPE: shape \(input 1\) must be a constant",
    ),
    "parameter of the wrong type": (
        Case("RESHAPE", [real(6), constant([2.0, 3.0])], [real(2, 3)]),
        r"operator 0 RESHAPE: shape \(input 1\) must be of integers, got float32",
    ),
    "paddings of the wrong type": (
        Case("PAD", [Tensor(TensorType.INT32, (2,)), constant([[0.0, 1.0]])], [Tensor(TensorType.INT32, (3,))]),
        r"operator 0 PAD: paddings \(input 1\) must be of integers, got float32",
    ),
    "element count": (
        Case("RESHAPE", [real(6), constant([4, 2])], [real(4, 2)]),
        r"operator 0 RESHAPE: shape \(input 1\) must hold 6 elements, got \[4, 2\]",
    ),
    "wide constant": (
        Case("SLICE", [real(6), constant([0]), Tensor(TensorType.INT64, (1,), data=np.array([2**40]))], [real(6)]),
        "operator 0 SLICE: tensor 't2': an INT64 constant must fit in 32 bits",
    ),
    "wide constant below 0": (
        Case(
            "SLICE", [real(6), Tensor(TensorType.INT64, (1,), data=np.array([-(2**31) - 1])), constant([1])], [real(6)]
        ),
        "operator 0 SLICE: tensor 't1': an INT64 constant must fit in 32 bits",
    ),
    "sizes of bytes": (
        Case("RESHAPE", [real(6), constant(np.array([2, 3], np.uint8))], [real(2, 3)]),
        r"operator 0 RESHAPE: shape \(input 1\) must be of integers, got uint8",
    ),
    "two axes for one": (
        Case("EXPAND_DIMS", [real(6), constant([0, 1])], [real(1, 6)]),
        r"operator 0 EXPAND_DIMS: axis \(input 1\) must have one element, got 2",
    ),
    "axis before the first": (
        Case("EXPAND_DIMS", [real(6), constant([-3])], [real(1, 6)]),
        r"operator 0 EXPAND_DIMS: axis must be in \[-2, 2\), got -3",
    ),
    "type": (
        Case("RELU", [Tensor(TensorType.STRING, (3,))], [Tensor(TensorType.STRING, (3,))]),
        "tensor 't0': type STRING is not supported",
    ),
    "mixed types": (
        Case("ADD", [real(3), int8(0.1, 0, 3)], [real(3)], "AddOptions"),
        r"operator 0 ADD: input1 \(input 1\) must be TENSOR_FLOAT32, got TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    "order of no axes": (
        Case("TRANSPOSE", [Tensor(TensorType.INT32, ()), constant([0])], [Tensor(TensorType.INT32, ())]),
        r"operator 0 TRANSPOSE: perm \(input 1\) must be a permutation of 0 axes, got \[0\]",
    ),
    "range of the run": (
        Case("RANGE", [real(), real(), real()], [real(1)]),
        r"operator 0 RANGE: start \(input 0\) must be a constant",
    ),
    "range without an end": (
        Case("RANGE", [constant(np.float32(number)) for number in (0, 1, 0)], [real(1)]),
        "operator 0 RANGE: a range must have 1 to 1048576 elements, got 0.0 to 1.0 by 0.0",
    ),
    "integer power of the run": (
        Case("POW", [int32(3), int32(3)], [int32(3)]),
        r"operator 0 POW: exponent \(input 1\) must be a constant",
    ),
    "integer power below 0": (
        Case("POW", [int32(3), constant([1, -2, 3])], [int32(3)]),
        r"operator 0 POW: exponents \(input 1\) of integers must be >= 0, got -2",
    ),
    "blocks that do not fit": (
        Case("SPACE_TO_DEPTH", [int32(1, 4, 6, 1)], [int32(1, 1, 1, 1)], "SpaceToDepthOptions", {"BlockSize": 4}),
        r"operator 0 SPACE_TO_DEPTH: blocks must be >= 1 and divide \[4, 6\], got \[4, 4\]",
    ),
    "int8 LSTM": (
        Case("UNIDIRECTIONAL_SEQUENCE_LSTM", [int8(0.1, 0, 1, 2, 3)], [int8(0.1, 0, 1, 2, 3)]),
        "operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: the activation must be TANH for INT8 data",
    ),
    "LSTM without intermediates": (
        replace(next(case for case in recurrent_cases.CASES if case.intermediates), intermediates=[]),
        "operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: intermediate 4 must have a scale",
    ),
    "basic LSTM of other sizes": (
        Case(
            "LSTM",
            [real(2, 3), real(2, 4), constant(weights(16, 6)), constant(weights(16)), real(2, 4)],
            [real(2, 4), real(2, 4), real(2, 7), real(2, 16)],
            "LSTMOptions",
            {"FusedActivationFunction": TANH, "KernelType": 1},
        ),
        r"operator 0 LSTM: weights \(input 2\) must be \[16, 7\], got \[16, 6\]",
    ),
    "shapes that do not go together": (
        Case("SELECT_V2", [Tensor(TensorType.BOOL, (2,)), real(3), real(3)], [real(3)], "SelectV2Options"),
        r"operator 0 SELECT_V2: shapes must go together, got \[2\], \[3\], \[3\]",
    ),
    "dilated groups": (
        Case(
            "CONV_2D",
            [real(1, 5, 5, 4), constant(weights(2, 2, 2, 2)), None],
            [real(1, 4, 4, 2)],
            "Conv2DOptions",
            {**CONV, "DilationWFactor": 0},
        ),
        r"operator 0 CONV_2D: dilations need a constant filter \(input 1\), and must be >= 1, got \[1, 0\]",
    ),
    "LSTM without a state": (
        Case("UNIDIRECTIONAL_SEQUENCE_LSTM", [real(2, 5, 3), *LSTM_WEIGHTS], [real(2, 5, 4)]),
        r"operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: output_state \(input 18\) must be a variable tensor",
    ),
    "channels of bytes without a sign": (
        Case(
            "CONV_2D",
            [uint8(0.1, 0, 1, 3, 3, 1), constant(bytes_of(np.uint8, 2, 1, 1, 1), [0.1, 0.2], 0), None],
            [uint8(0.1, 0, 1, 3, 3, 2)],
            "Conv2DOptions",
            CONV,
        ),
        "'t1': per-channel quantisation is supported for constants of INT8, INT4 and INT2 alone",
    ),
    "channels of data": (
        Case("RELU", [Tensor(TensorType.INT8, (2, 3), [0.1, 0.2])], [int8(0.1, 0, 2, 3)]),
        "'t0': per-channel quantisation is supported for constants of INT8, INT4 and INT2 alone",
    ),
    "per-channel zero points": (
        Case(
            "CONV_2D",
            [int8(0.1, 0, 1, 3, 3, 1), constant(bytes_of(np.int8, 2, 1, 1, 1), [0.1, 0.2], 3), None],
            [int8(0.1, 0, 1, 3, 3, 2)],
            "Conv2DOptions",
            CONV,
        ),
        "operator 0 CONV_2D: tensor 't1': per-channel zero points must be 0, got 3",
    ),
    "empty result": (
        Case("STRIDED_SLICE", [real(6), constant([4]), constant([2]), constant([1])], [real(0)]),
        r"operator 0 STRIDED_SLICE: an empty result of shape \[0\] is not supported",
    ),
    "huge result": (
        Case("RESIZE_BILINEAR", [real(1, 3, 4, 2), constant([70000, 70000])], [real(1, 1, 1, 2)]),
        "operator 0 RESIZE_BILINEAR: .*2\\^32-1",
    ),
}


for cases in (index_cases, volume_cases, bit_cases, slice_cases, recurrent_cases):
    REFUSALS.update(cases.REFUSALS)


@pytest.mark.parametrize("code", ["SIN", "COS"])
def test_waves_are_exact_for_large_numbers(code: str, reference_device: Device) -> None:
    angles = np.linspace(-1e5, 1e5, 4001, dtype=np.float32)
    file = write([real(4001), real(4001)], [Step(code, [0], [1])], [0], [1])
    with nn.load(file).compile(reference_device) as session:
        result = session.run(angles)[0]
    np.testing.assert_allclose(result, getattr(np, code.lower())(angles.astype(np.float64)), atol=5e-7)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_converted_is_named_with_its_reason(name: str) -> None:
    case, message = REFUSALS[name]
    with pytest.raises(BadData, match=message):
        nn.load(_bad(case))


def test_an_operator_is_named_by_its_index() -> None:
    tensors = [real(3), real(3), real(3)]
    file = write(tensors, [Step("RELU", [0], [1]), Step("UNIQUE", [1], [2])], [0], [2])
    with pytest.raises(BadData, match=re.escape("operator 1 UNIQUE: no NNAPI operation")):
        nn.load(file)


def test_all_operators_that_nothing_is_known_of_are_named_at_once() -> None:
    tensors = [real(3) for _ in range(5)]
    steps = [Step("UNIQUE", [0], [1]), Step("RELU", [1], [2]), Step("WHERE", [2], [3]), Step("UNIQUE", [3], [4])]
    wanted = "operator 0 UNIQUE: no NNAPI operation, .*, is known for it; nor for others of the file: WHERE$"
    with pytest.raises(BadData, match=wanted):
        nn.load(write(tensors, steps, [0], [4]))


def test_of_very_many_unknown_operators_some_are_named() -> None:
    steps = [Step(f"Mine{at}", [at], [at + 1]) for at in range(30)]
    with pytest.raises(BadData) as caught:
        nn.load(write([real(3) for _ in range(31)], steps, [0], [30]))
    assert str(caught.value).count("Mine") == 21
    assert str(caught.value).endswith(", 9 more")


def test_interface_is_what_the_file_says() -> None:
    file, _ = Case("ARG_MAX", [uint8(0.5, 7, 3, 9), constant([1])], [int64(3)], "ArgMaxOptions").file()
    network = nn.load(file)
    assert isinstance(network, Network)
    source, result = network.inputs[0], network.outputs[0]
    assert (source.name, source.dtype, source.shape, source.scale, source.zero_point) == (
        "t0",
        np.uint8,
        (3, 9),
        0.5,
        7,
    )
    assert (result.name, result.dtype, result.shape, result.scale) == ("t2", np.int64, (3,), 0.0)

# SPDX-License-Identifier: Apache-2.0
"""How each operator of a .tflite file is converted: one function an operator, one file a family.

A function checks what its operator needs and emits NNAPI operations; their own validation does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from nn_runtime.families import Families
from nn_runtime.tflite.builtin_operator import BuiltinOperator as Op
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from nn_runtime.tflite.operator import Operator

    Conversion: TypeAlias = Callable[[Operator], None]


@dataclass(frozen=True)
class Kind:
    """What is known of a kind of operator: the most inputs that it has, the newest version, how many outputs it has.

    None stands for any number.

    A version stands for types, ranks and options that came with it, as the kernels of LiteRT 2.3 are registered. Types
    and options are in the file and checked by themselves; what a version after the known ones means is not.
    """

    inputs: int | None
    version: int = 1
    outputs: int | None = 1


_FAMILIES: Mapping[str, Collection[int | str]] = {
    "activation": (
        *(Op.RELU, Op.RELU_N1_TO_1, Op.RELU6, Op.LOGISTIC, Op.TANH, Op.SOFTMAX, Op.HARD_SWISH, Op.RELU_0_TO_1),
        *(Op.ELU, Op.PRELU, Op.LEAKY_RELU, Op.GELU, Op.LOG_SOFTMAX, Op.L2_NORMALIZATION),
        *(Op.LOCAL_RESPONSE_NORMALIZATION,),
    ),
    "angles": (Op.ATAN2,),
    "bits": (Op.BITCAST, Op.BITWISE_XOR, Op.RIGHT_SHIFT, Op.STABLEHLO_AND, Op.STABLEHLO_SHIFT_LEFT),
    "concatenation": (Op.CONCATENATION, "TensorListSetItem", Op.PACK, Op.SPLIT, Op.UNPACK, Op.SPLIT_V),
    "control_flow": (Op.IF, Op.WHILE, Op.STABLEHLO_COMPOSITE, Op.STABLEHLO_CASE),
    "convolution": (Op.CONV_2D, Op.DEPTHWISE_CONV_2D, Op.TRANSPOSE_CONV, "Convolution2DTransposeBias"),
    "cumulative": (Op.CUMSUM,),
    "detection": ("TFLite_Detection_PostProcess",),
    "elementwise": (
        *(Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.ADD_N, Op.SQUARED_DIFFERENCE, Op.MAXIMUM),
        *(Op.MINIMUM, Op.POW, Op.EQUAL, Op.NOT_EQUAL, Op.GREATER, Op.GREATER_EQUAL, Op.LESS, Op.LESS_EQUAL),
        *(Op.LOGICAL_AND, Op.LOGICAL_OR, Op.LOGICAL_NOT, Op.ABS, Op.NEG, Op.EXP, Op.LOG, Op.SQRT, Op.RSQRT, Op.SIN),
        *(Op.COS, Op.FLOOR, Op.CEIL, Op.SQUARE),
    ),
    "gaps": (Op.DILATE, Op.STABLEHLO_PAD),
    "gather": (Op.GATHER, Op.GATHER_ND, Op.REVERSE_SEQUENCE),
    "gathered_slices": (Op.STABLEHLO_GATHER,),
    "landmarks": ("Landmarks2TransformMatrix", "TransformTensorBilinear", "TransformLandmarks"),
    "lookup": (Op.EMBEDDING_LOOKUP, Op.EMBEDDING_LOOKUP_SPARSE, Op.HASHTABLE_LOOKUP, Op.LSH_PROJECTION),
    "lstm": (Op.UNIDIRECTIONAL_SEQUENCE_LSTM, Op.LSTM, Op.BIDIRECTIONAL_SEQUENCE_LSTM),
    "matrix": (Op.MATRIX_DIAG, Op.MATRIX_SET_DIAG),
    "non_max_suppression": (Op.NON_MAX_SUPPRESSION_V4, Op.NON_MAX_SUPPRESSION_V5),
    "pooling": (Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D, Op.L2_POOL_2D),
    "products": (Op.FULLY_CONNECTED, Op.BATCH_MATMUL),
    "quantize": (Op.QUANTIZE, Op.DENSIFY, Op.DEQUANTIZE, Op.CAST),
    "reduce": (
        *(Op.MEAN, Op.ARG_MAX, Op.ARG_MIN, Op.SUM, Op.REDUCE_PROD, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.REDUCE_ANY),
        *(Op.REDUCE_ALL,),
    ),
    "floor_division": (Op.FLOOR_DIV, Op.FLOOR_MOD),
    "resize": (Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
    "rnn": (Op.RNN, Op.UNIDIRECTIONAL_SEQUENCE_RNN, Op.BIDIRECTIONAL_SEQUENCE_RNN, Op.SVDF),
    "rounding": (Op.SIGN, Op.ROUND, Op.FAKE_QUANT, Op.BUCKETIZE),
    "scatter": (Op.SCATTER_ND, Op.SPARSE_TO_DENSE, Op.STABLEHLO_SCATTER),
    "segments": (
        *(Op.SEGMENT_SUM, Op.UNSORTED_SEGMENT_SUM, Op.UNSORTED_SEGMENT_PROD, Op.UNSORTED_SEGMENT_MAX),
        *(Op.UNSORTED_SEGMENT_MIN,),
    ),
    "select": (Op.SELECT, Op.SELECT_V2, Op.ONE_HOT),
    "shape": (
        *(Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS, Op.TRANSPOSE, Op.REVERSE_V2, Op.TILE, Op.BROADCAST_TO, Op.FILL),
        *(Op.RANGE, Op.ZEROS_LIKE, Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH, Op.SPACE_TO_BATCH_ND, Op.BATCH_TO_SPACE_ND),
    ),
    "stablehlo": (
        *(Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM),
        *(Op.STABLEHLO_CBRT,),
    ),
    "unpooling": ("MaxPoolingWithArgmax2D", "MaxUnpooling2D"),
    "slice": (Op.SLICE, Op.STRIDED_SLICE, Op.PAD, Op.PADV2, Op.MIRROR_PAD, Op.TOPK_V2),
    "spectrum": (Op.RFFT2D, Op.REAL, Op.IMAG, Op.COMPLEX_ABS),
    "update": (Op.DYNAMIC_UPDATE_SLICE,),
    "variable": (Op.CALL_ONCE, Op.VAR_HANDLE, Op.READ_VARIABLE, Op.ASSIGN_VARIABLE),
    "volume": (Op.CONV_3D, Op.CONV_3D_TRANSPOSE),
    "windows": (Op.REDUCE_WINDOW, Op.STABLEHLO_REDUCE_WINDOW),
}

_families = Families(__name__, _FAMILIES)
_kinds: dict[int | str, Kind] = {}
_conversions: dict[int | str, Conversion] = {}


def converts(
    code: int | str, *, inputs: int | None, version: int = 1, outputs: int | None = 1
) -> Callable[[Conversion], Conversion]:
    """Register a conversion for an operator, a builtin code or the name of a custom one, and its `Kind`."""

    def register(conversion: Conversion) -> Conversion:
        if code in _conversions:
            raise ValueError(f"operator {code} has two conversions")
        _conversions[code] = conversion
        _kinds[code] = Kind(inputs, version, outputs)
        return conversion

    return register


def conversion_of(code: int | str) -> Conversion | None:
    """Return the conversion of a builtin code or custom name, or None."""
    _families.load(code)
    return _conversions.get(code)


def kind_of(code: int | str) -> Kind | None:
    """Return what is known of a builtin code or custom name, or None."""
    _families.load(code)
    return _kinds.get(code)


def converted_operators() -> list[int]:
    """Return the codes of the builtin operators that have a conversion."""
    _families.load_all()
    return sorted(code for code in _conversions if isinstance(code, int))


def custom_operators() -> list[str]:
    """Return the names of the custom operators that have a conversion."""
    _families.load_all()
    return sorted(code for code in _conversions if isinstance(code, str))

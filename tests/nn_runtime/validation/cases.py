# SPDX-License-Identifier: Apache-2.0
"""What each operation takes: one row for each case of Android's TestValidateOperations, under the name of the case.

The rows of an operation together are also the list of what it takes: whatever differs from a row in one type or in
one operand, and is not another row, must be refused.
"""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.nn_runtime.validation.signatures import Signature, parse

_Rows = dict[str, tuple[Signature, ...]]

_FLOATS = "float16 float32"
_DATA = f"{_FLOATS} quant8 quant8_signed"
_ARITHMETIC = f"{_DATA} int32"
_QUANTISED_FILTERS = "quant8 quant8_per_channel quant8_signed quant8_signed_per_channel"

NAMES = {
    "float16": {"T": "f16", "S": "f16", "B": "f16", "W": "f16", "R": "f16"},
    "float32": {"T": "f32", "S": "f32", "B": "f32", "W": "f32", "R": "f32"},
    "quant8": {"T": "q8", "S": "f32", "B": "i32", "W": "q8", "R": "q16"},
    "quant8_per_channel": {"T": "q8", "S": "f32", "B": "i32", "W": "q8pc", "R": "q16"},
    "quant8_signed": {"T": "q8s", "S": "f32", "B": "i32", "W": "q8s", "R": "q16"},
    "quant8_signed_per_channel": {"T": "q8s", "S": "f32", "B": "i32", "W": "q8pc", "R": "q16"},
    "int32": {"T": "i32"},
    "bool": {"T": "bool"},
}
"""What the letters of a row stand for, by data type."""


def _each(
    operation: str,
    types: str,
    *lists: str,
    spelled: dict[str, str] | None = None,
    fixed: dict[str, str] | None = None,
) -> _Rows:
    """Return a case for each data type, `ADD_float32`.

    `spelled`: data types whose cases are named otherwise. `fixed`: the quantisation that `{fixed}` stands for.
    """
    cases = {}
    for kind in types.split():
        quantisation = (fixed or {}).get(kind, "")
        cases[f"{operation}_{(spelled or {}).get(kind, kind)}"] = tuple(
            parse(OperationCode[operation], text.replace("{fixed}", quantisation), NAMES[kind]) for text in lists
        )
    return cases


def _together(operation: str, types: str, *lists: str) -> _Rows:
    """Return one case with all data types."""
    cases = _each(operation, types, *lists)
    return {operation: tuple(signature for signatures in cases.values() for signature in signatures)}


def _pool() -> tuple[str, ...]:
    explicit, implicit = "T[2,4,4,2] i32*9", "T[2,4,4,2] i32*6"
    return tuple(f"{inputs} -> T[2,4,4,2]" for inputs in (explicit, implicit, f"{explicit} bool", f"{implicit} bool"))


def _convolution(tensors: str, explicit: int, implicit: int, output: str) -> tuple[str, ...]:
    """Return lists with explicit and implicit padding, then with the layout, then with dilations."""
    return (
        f"{tensors} i32*{explicit} -> {output}",
        f"{tensors} i32*{implicit} -> {output}; 0,1:4-4",
        f"{tensors} i32*{explicit} bool -> {output}",
        f"{tensors} i32*{implicit} bool -> {output}",
        f"{tensors} i32*{explicit} bool i32*2 -> {output}",
        f"{tensors} i32*{implicit} bool i32*2 -> {output}",
    )


def _pack() -> tuple[str, ...]:
    rows = []
    for axis in range(4):
        for count in (1, 2):
            sizes = ["4", "5", "6"]
            sizes.insert(axis, str(count))
            rows.append(f"i32 T[4,5,6]*{count} -> T[{','.join(sizes)}]")
    return tuple(rows)


def _outputs(output: str, states: str) -> tuple[str, ...]:
    """Return the outputs of two directions: apart and merged, without and with the states."""
    return f"{output}*2", output, f"{output} {states}", f"{output}*2 {states}"


_SIGNED = {"quant8_signed": "quant8signed", "quant8_signed_per_channel": "quant8signed_per_channel"}
_QUANT = {"quant8": "quant", "quant8_signed": "quant_signed"}
_BOXES = "T[1,4,4,1] R[4,4] i32[1] i32*2 S*2"
_LSTM = "T[5,5]*9 T[5]*7 T[5,5] T[5] T[5,5]*2 i32 S*2"
_BIDIRECTIONAL_LSTM = (
    "T[5,5,5] T[5,5]*8 T[5]*7 T[5,5] T[5] T[5,5]*8 T[5]*7 T[5,5] T[5] T[5,5]*4 T[5,5,5] T[5,5]*8 i32 S*2 bool*2 T[5]*8"
)
_UNIDIRECTIONAL_LSTM = "T[2,3,5] T[4,5]*4 T[4,6]*4 T[4]*7 T[6,4] T[6] T[3,6] T[3,4] i32 S*2 bool T[4]*4 -> T[2,3,6]"
_BIDIRECTIONAL_RNN = "T[3,2,4] T[4,5] T[5,5] T[5] T[2,5] T[4,5] T[5,5] T[5] T[2,5] T[3,2,4] T[4,5]*2 i32 bool*2"
_UNIDIRECTIONAL_RNN = "T[3,2,4] T[4,5] T[5,5] T[5] T[2,5] i32*2 -> T[3,2,5]"

_ARITHMETIC_LISTS = ("T[2,2,2,2] T[2,2,2,2] i32 -> T[2,2,2,2]; 0:1-4; 1:1-4",)
_FIVE = "T[2,2,2,2,2]"
_UNARY = ("T[2,2,2,2] -> T[2,2,2,2]",)
_UNARY_UP_TO_4 = ("T[2,2,2,2] -> T[2,2,2,2]{fixed}; 0:1-4",)
_FROM_0_TO_1 = {"quant8": "@0.00390625,0", "quant8_signed": "@0.00390625,-128"}
_FROM_MINUS_1_TO_1 = {"quant8": "@0.0078125,128", "quant8_signed": "@0.0078125,0"}
_CAST_TYPES = ["f16", "f32", "i32", "q8"]
_CAST_IDENTITIES = ["f32", "i32", "q8", "q16sym", "f16", "bool", "q16", "q8sym", "q8s"]
_SLICES = {"quant8": "uint8", "quant8_signed": "int8"}


def _merged(*rows: _Rows) -> _Rows:
    merged = {name: signatures for part in rows for name, signatures in part.items()}
    if len(merged) < sum(map(len, rows)):
        raise ValueError("a case is named twice")
    return merged


def _plain(name: str, operation: str, *lists: str) -> _Rows:
    """Return one case whose lists name every type."""
    return {name: tuple(parse(OperationCode[operation], text, {}) for text in lists)}


_ELEMENTWISE = _merged(
    _each("ADD", _ARITHMETIC, *_ARITHMETIC_LISTS),
    _each("MUL", _ARITHMETIC, *_ARITHMETIC_LISTS),
    _each("SUB", _ARITHMETIC, *_ARITHMETIC_LISTS),
    _each("DIV", f"{_FLOATS} int32", *_ARITHMETIC_LISTS),
    _each("MAXIMUM", _ARITHMETIC, f"{_FIVE} {_FIVE} -> {_FIVE}", spelled=_SIGNED),
    _each("MINIMUM", _ARITHMETIC, f"{_FIVE} {_FIVE} -> {_FIVE}", spelled=_SIGNED),
    _each("ABS", f"{_FLOATS} int32", *_UNARY),
    _each("EXP", _FLOATS, *_UNARY),
    _each("LOG", _FLOATS, *_UNARY),
    _each("RSQRT", _DATA, *_UNARY),
    _each("SIN", _FLOATS, *_UNARY),
    _each("SQRT", _FLOATS, *_UNARY),
    _each("NEG", f"{_FLOATS} int32", *_UNARY),
    _each("FLOOR", _FLOATS, *_UNARY_UP_TO_4),
    _each("LOGICAL_NOT", "bool", *_UNARY),
    _each("TANH", _DATA, *_UNARY_UP_TO_4, fixed=_FROM_MINUS_1_TO_1),
    _each("RELU", _DATA, *_UNARY_UP_TO_4),
    _each("RELU1", _DATA, *_UNARY_UP_TO_4),
    _each("RELU6", _DATA, *_UNARY_UP_TO_4),
    _each("LOGISTIC", _DATA, *_UNARY_UP_TO_4, fixed=_FROM_0_TO_1),
    _each("HARD_SWISH", _DATA, *_UNARY),
    _each("ELU", _FLOATS, "T[2,2,2,2] S -> T[2,2,2,2]"),
    _each("PRELU", _DATA, "T[1,2,2,3] T[1,1,3] -> T[1,2,2,3]", spelled=_SIGNED),
    _together("POW", _FLOATS, "T[3,3]*2 -> T[3,3]"),
    _plain("LOGICAL_AND", "LOGICAL_AND", "bool[2,2,2,2]*2 -> bool[2,2,2,2]"),
    _plain("LOGICAL_OR", "LOGICAL_OR", "bool[2,2,2,2]*2 -> bool[2,2,2,2]"),
    *(
        _together(name, f"bool {_ARITHMETIC}", "T[2,2,2,2]*2 -> bool[2,2,2,2]")
        for name in ("LESS", "LESS_EQUAL", "EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL")
    ),
    _together("SELECT", _ARITHMETIC, "bool[2,2,2,2] T[2,2,2,2]*2 -> T[2,2,2,2]"),
    _plain("CAST", "CAST", *(f"{read}[2,2,2] -> {written}[2,2,2]" for read in _CAST_TYPES for written in _CAST_TYPES)),
    _plain("CAST_identity", "CAST", *(f"{kind}[2,2,2] -> {kind}[2,2,2]" for kind in _CAST_IDENTITIES)),
    _each("QUANTIZE", _FLOATS, "T[2,2,2,2] -> q8[2,2,2,2]@1.0", "T[2,2,2,2] -> q8s[2,2,2,2]@1.0"),
    _plain(
        "DEQUANTIZE",
        "DEQUANTIZE",
        *(
            f"{read}[2,2,2,2] -> {written}[2,2,2,2]; 0:1-4"
            for read in ("q8", "q8sym", "q8pc", "q8s")
            for written in ("f16", "f32")
        ),
    ),
)

_SHAPES = _merged(
    _together("EXPAND_DIMS", _ARITHMETIC, "T[2,2,2,2] i32 -> T[2,2,2,2,2]"),
    _together("GATHER", _ARITHMETIC, "T[2,2,2,2] i32 i32[2,2,2,2] -> T[2,2,2,2,2,2,2]"),
    _together("SPLIT", _ARITHMETIC, "T[2,2,2,2] i32*2 -> T[2,2] T[2,2]"),
    _together("TILE", _ARITHMETIC, "T[2,2,2,2] i32[4] -> T[2,2,2,2,2,2,2,2]"),
    _together("TOPK_V2", _ARITHMETIC, "T[4,5,6,7] i32 -> T[4,5,6,3] i32[4,5,6,3]"),
    _together("RESHAPE", _ARITHMETIC, "T[2,3,4] i32[2] -> T[4,6]; 0:1-4"),
    _together("PAD", _DATA, "T[2,2,2,2] i32[4,2] -> T[4,3,4,3]; 0:1-4"),
    _together("MIRROR_PAD", _ARITHMETIC, "T[2,2,2,2] i32[4,2] i32 -> T[4,3,4,3]"),
    {
        "PAD_V2": (
            *_together("PAD_V2", _FLOATS, "T[2,2,2,2] i32[4,2] S -> T[4,3,4,3]; 0:1-4")["PAD_V2"],
            *_together("PAD_V2", "quant8 quant8_signed", "T[2,2,2,2] i32[4,2] i32 -> T[4,3,4,3]; 0:1-4")["PAD_V2"],
        )
    },
    *(
        _each(name, _DATA, "T[2,2,2,2] i32 -> T[2,2,2,2]", "T[2,2,2,2] i32 bool -> T[2,2,2,2]", spelled=_SIGNED)
        for name in ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
    ),
    _each(
        "SPACE_TO_BATCH_ND",
        _DATA,
        "T[2,2,2,2] i32[2] i32[2,2] -> T[2,2,2,2]",
        "T[2,2,2,2] i32[2] i32[2,2] bool -> T[2,2,2,2]",
        spelled=_SIGNED,
    ),
    _each(
        "BATCH_TO_SPACE_ND",
        _DATA,
        "T[2,2,2,2] i32[2] -> T[2,2,2,2]",
        "T[2,2,2,2] i32[2] bool -> T[2,2,2,2]",
        spelled=_SIGNED,
    ),
    _each("TRANSPOSE", _DATA, "T[2,2,2,2] i32[4] -> T[2,2,2,2]; 0:1-4", spelled=_SIGNED),
    _each("SQUEEZE", _DATA, "T[2,2,2,2] i32[4] -> T[2,2,2,2]; 0:1-4"),
    _each("CONCATENATION", _DATA, "T[5,5]*2 i32 -> T[5,5]; 0,1:1-4", "T[5,5] i32 -> T[5,5]; 0:1-4"),
    _each("STRIDED_SLICE", _DATA, "T[5,5] i32[2]*3 i32*3 -> T[5,5]; 0:1-4"),
    _each("SLICE", _ARITHMETIC, "T[3,3,3] i32[3]*2 -> T[1,2,3]", spelled=_SLICES),
    _each("CHANNEL_SHUFFLE", _DATA, "T[2,2] i32*2 -> T[2,2]; 0:1-4", spelled=_SIGNED),
    _each("PACK", _ARITHMETIC, *_pack()),
    _each("REVERSE", _ARITHMETIC, "T[4,5,6] i32[0] -> T[4,5,6]"),
    *(
        _plain(f"FILL_{name}", "FILL", f"i32[3] {kind} -> {kind}[3,4,5]")
        for name, kind in (("float16", "f16"), ("float32", "f32"), ("int32", "i32"))
    ),
    _each("RANK", _ARITHMETIC, "T[3,4,5] -> i32"),
    _each("EMBEDDING_LOOKUP", "float32 int32 quant8 quant8_signed", "i32[5] T[5,5] -> T[5,5]"),
    _each("HASHTABLE_LOOKUP", "float32 int32 quant8", "i32[5]*2 T[5,5] -> T[5,5] q8[5]@1.0"),
)

_REDUCTIONS = _merged(
    _together("ARGMIN", _ARITHMETIC, "T[2,2,2,2] i32 -> i32[2,2,2]"),
    _together("ARGMAX", _ARITHMETIC, "T[2,2,2,2] i32 -> i32[2,2,2]"),
    _each("MEAN", _DATA, "T[2,2,2] i32[2] i32 -> T[2,2,2]; 0:1-4"),
    *(
        _together(name, types, "T[2,2,2,2] i32[2] bool -> T[2,2,2,2]; 0:1-4")
        for name, types in (
            ("REDUCE_PROD", _FLOATS),
            ("REDUCE_SUM", _FLOATS),
            ("REDUCE_MAX", _DATA),
            ("REDUCE_MIN", _DATA),
            ("REDUCE_ANY", "bool"),
            ("REDUCE_ALL", "bool"),
        )
    ),
    _each("LOG_SOFTMAX", _FLOATS, "T[2,2,2] S i32 -> T[2,2,2]"),
    _each(
        "SOFTMAX",
        _DATA,
        "T[2,2,2,2] S -> T[2,2,2,2]{fixed}; 0:1-4",
        "T[2,2,2,2] S i32 -> T[2,2,2,2]{fixed}; 0:1-4",
        fixed=_FROM_0_TO_1,
    ),
    _each(
        "L2_NORMALIZATION",
        _DATA,
        "T[2,2,2,2] -> T[2,2,2,2]{fixed}",
        "T[2,2,2,2] i32 -> T[2,2,2,2]{fixed}; 0:1-4",
        fixed=_FROM_MINUS_1_TO_1,
    ),
    _each(
        "LOCAL_RESPONSE_NORMALIZATION",
        _FLOATS,
        "T[2,2,2,6] i32 S*3 -> T[2,2,2,6]; 0:1-4",
        "T[2,2,2,6] i32 S*3 i32 -> T[2,2,2,6]; 0:1-4",
    ),
    _together("INSTANCE_NORMALIZATION", _FLOATS, "T[4,4,4,4] S*3 bool -> T[4,4,4,4]"),
    _each("RANDOM_MULTINOMIAL", _FLOATS, "T[5,5] i32 i32[2] -> i32[5,7]"),
)

_WINDOWS = _merged(
    _each("AVERAGE_POOL_2D", _DATA, *_pool()),
    _each("MAX_POOL_2D", _DATA, *_pool()),
    _each("L2_POOL_2D", _FLOATS, *_pool()),
    _each(
        "CONV_2D",
        f"{_FLOATS} {_QUANTISED_FILTERS}",
        *_convolution("T[2,4,4,2] W[2,4,4,2]/0 B[2]", 7, 4, "T[2,4,4,2]"),
    ),
    _each(
        "DEPTHWISE_CONV_2D",
        f"{_FLOATS} {_QUANTISED_FILTERS}",
        *_convolution("T[1,2,2,2] W[1,2,2,2]/3 B[2]", 8, 5, "T[1,2,2,2]"),
    ),
    _each(
        "GROUPED_CONV_2D",
        f"{_FLOATS} {_QUANTISED_FILTERS}",
        "T[1,3,3,2] W[2,2,2,1]/0 B[2] i32*8 bool -> T[1,2,2,2]",
        "T[1,3,3,2] W[2,2,2,1]/0 B[2] i32*5 bool -> T[1,2,2,2]",
        spelled=_SIGNED,
    ),
    _each(
        "TRANSPOSE_CONV_2D",
        f"{_FLOATS} {_QUANTISED_FILTERS}",
        "T[1,2,2,2] W[2,3,3,1]/0 B[2] i32*7 bool -> T[1,5,5,2]",
        "T[1,2,2,2] W[2,3,3,1]/0 B[2] i32[4] i32*4 bool -> T[1,5,5,2]",
    ),
    _together(
        "RESIZE_BILINEAR",
        _DATA,
        *(
            f"T[2,2,2,2] {sizes}{layout} -> T[2,2,2,2]"
            for sizes in ("i32*2", "S*2")
            for layout in ("", " bool", " bool*2", " bool*3")
        ),
    ),
    *(
        {
            name: _together(
                "RESIZE_NEAREST_NEIGHBOR",
                kind,
                *(
                    f"T[1,2,2,1] {sizes} {flags} -> T[1,1,1,1]"
                    for sizes in ("i32*2", "S*2")
                    for flags in ("bool", "bool*2", "bool*3")
                ),
            )["RESIZE_NEAREST_NEIGHBOR"]
        }
        for name, kind in (
            ("RESIZE_NEAREST_NEIGHBOR", "float32"),
            ("RESIZE_NEAREST_NEIGHBOR_float16", "float16"),
            ("RESIZE_NEAREST_NEIGHBOR_quant8", "quant8"),
            ("RESIZE_NEAREST_NEIGHBOR_quant8_signed", "quant8_signed"),
        )
    ),
)

_PRODUCTS = _merged(
    _each("FULLY_CONNECTED", _DATA, "T[5,5] T[5,5] B[5] i32 -> T[5,5]; 0:2-4; 1:2-2; 2:1-1"),
    _each("BATCH_MATMUL", f"{_FLOATS} int32 quant8_signed", "T[1,2,3] T[1,3,4] bool*2 -> T[1,2,4]"),
    *(
        {
            f"LSH_PROJECTION_{name}": tuple(
                parse(OperationCode.LSH_PROJECTION, f"{hashed}[5,5] {kind}[5,5] {hashed}[5] i32 -> i32[5]", {})
                for hashed in ("f32", "f16")
            )
        }
        for name, kind in (("float16", "f16"), ("float32", "f32"), ("quant8", "q8"), ("int32", "i32"))
    ),
)

_RECURRENT = _merged(
    {"LSTM_float32": _each("LSTM", "float32", f"{_LSTM} -> T[5,5]*4")["LSTM_float32"]},
    {"LSTM_V1_2": _together("LSTM", _FLOATS, f"{_LSTM} T[5]*4 -> T[5,5]*4")["LSTM"]},
    {
        "LSTM_BIDIRECTIONAL_SEQUENCE": _together(
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            _FLOATS,
            *(f"{_BIDIRECTIONAL_LSTM} -> {outputs}" for outputs in _outputs("T[5,5,5]", "T[5,5]*4")),
        )["BIDIRECTIONAL_SEQUENCE_LSTM"]
    },
    _each("UNIDIRECTIONAL_SEQUENCE_LSTM", _FLOATS, _UNIDIRECTIONAL_LSTM, f"{_UNIDIRECTIONAL_LSTM} T[3,6] T[3,4]"),
    _each(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        _FLOATS,
        *(f"{_BIDIRECTIONAL_RNN} -> {outputs}" for outputs in _outputs("T[3,2,5]", "T[2,5]*2")),
    ),
    _each("UNIDIRECTIONAL_SEQUENCE_RNN", _FLOATS, _UNIDIRECTIONAL_RNN, f"{_UNIDIRECTIONAL_RNN} T[2,5]"),
    _each("RNN", _FLOATS, "T[5,5]*3 T[5] T[5,5] i32 -> T[5,5]*2"),
    _each("SVDF", _FLOATS, "T[5,5]*3 T[5] T[5,5] i32*2 -> T[5,5]*2"),
    _plain(
        "QUANTIZED_16BIT_LSTM",
        "QUANTIZED_16BIT_LSTM",
        "q8[5,5]@0.0078125,128 q8[5,5]@0.00408021,100*8 i32[5]@0.00003187664*4 q16sym[5,5]@0.00048828125 "
        "q8[5,5]@0.0078125,128 -> q16sym[5,5]@0.00048828125 q8[5,5]@0.0078125,128",
    ),
    _plain(
        "QUANTIZED_LSTM",
        "QUANTIZED_LSTM",
        "q8s[5,5]@0.0078125 q8sym[5,5]@0.0078125*8 q16sym[5]@1.0*3 i32[5]@4.65661e-08*4 q8sym[5,5]@0.0078125 "
        "i32[5]@4.65661e-08 q8s[5,5]@0.0078125 q16sym[5,5]@1.0 q16sym[5]@1.0*4 f32*6 i32 f32 "
        "-> q8s[5,5]@0.0078125 q16sym[5,5]@1.0 q8s[5,5]@0.0078125",
    ),
)

_DETECTION = _merged(
    _each("ROI_ALIGN", _DATA, f"{_BOXES} i32*2 bool -> T[4,2,2,1]", spelled=_SIGNED),
    _each("ROI_POOLING", _DATA, f"{_BOXES} bool -> T[4,2,2,1]", spelled=_SIGNED),
    _each("HEATMAP_MAX_KEYPOINT", _DATA, "T[6,4,4,1] R[6,4] bool -> T[6,1] R[6,1,2]", spelled=_QUANT),
    _each("AXIS_ALIGNED_BBOX_TRANSFORM", _DATA, "R[5,4] T[5,8] i32[5] R[5,2] -> R[5,8]", spelled=_QUANT),
    _each(
        "BOX_WITH_NMS_LIMIT",
        _DATA,
        "T[19,3] R[19,12] i32[2] S i32*2 S*3 -> T[12] R[12,4] i32[12] i32[2]",
        spelled=_QUANT,
    ),
    _each(
        "GENERATE_PROPOSALS",
        _FLOATS,
        "T[1,2,2,2] T[1,2,2,8] T[2,4] T[1,2] S*2 i32*2 S*2 bool -> T[4] T[4,4] i32[1]",
    ),
    _each(
        "GENERATE_PROPOSALS",
        "quant8 quant8_signed",
        "T[1,2,2,2] T[1,2,2,8] q16sym[2,4] R[1,2] S*2 i32*2 S*2 bool -> T[4] R[4,4] i32[1]",
        spelled=_QUANT,
    ),
    _together(
        "DETECTION_POSTPROCESSING",
        _FLOATS,
        "T[2,10,5] T[2,10,4] T[10,4] S*4 bool i32*3 S*2 bool -> T[2,5] T[2,5,4] i32[2,5] i32[2]",
    ),
)

TAKEN = _merged(_ELEMENTWISE, _SHAPES, _REDUCTIONS, _WINDOWS, _PRODUCTS, _RECURRENT, _DETECTION)
"""Lists that the operations take, by the name of the case."""

ANY_TENSOR = {OperationCode.RANK: 0, OperationCode.LSH_PROJECTION: 1}
"""The operations with an input that may have any type."""

REPEATED_OUTPUTS = frozenset({OperationCode.SPLIT})
"""The operations with as many outputs as one of their values says."""

# SPDX-License-Identifier: Apache-2.0
"""Enumerations of the NNAPI: the NDK's spelling and numbers, without the ANEURALNETWORKS_ prefix.

Source: NeuralNetworks.h / NeuralNetworksTypes.h of Android 13.
"""

from __future__ import annotations

from enum import IntEnum

EXTENSION_PREFIX_SHIFT = 16
OEM_OPERATION = 10000
"""OperationCode of the deprecated OEM operation (the first of the codes outside the standard range)."""


class OperandCode(IntEnum):
    """Type of an operand."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT16_ASYMM = 12
    TENSOR_QUANT8_SYMM = 13
    TENSOR_QUANT8_ASYMM_SIGNED = 14
    MODEL = 15
    OEM_SCALAR = 10000
    TENSOR_OEM_BYTE = 10001


class OperationCode(IntEnum):
    """Operation of a model; 0 to 101 are HAL 1.0 to 1.3, 102 to 105 feature levels 6 and 7."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    HASHTABLE_LOOKUP = 10
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOCAL_RESPONSE_NORMALIZATION = 13
    LOGISTIC = 14
    LSH_PROJECTION = 15
    LSTM = 16
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    RNN = 24
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    BATCH_TO_SPACE_ND = 29
    DIV = 30
    MEAN = 31
    PAD = 32
    SPACE_TO_BATCH_ND = 33
    SQUEEZE = 34
    STRIDED_SLICE = 35
    SUB = 36
    TRANSPOSE = 37
    ABS = 38
    ARGMAX = 39
    ARGMIN = 40
    AXIS_ALIGNED_BBOX_TRANSFORM = 41
    BIDIRECTIONAL_SEQUENCE_LSTM = 42
    BIDIRECTIONAL_SEQUENCE_RNN = 43
    BOX_WITH_NMS_LIMIT = 44
    CAST = 45
    CHANNEL_SHUFFLE = 46
    DETECTION_POSTPROCESSING = 47
    EQUAL = 48
    EXP = 49
    EXPAND_DIMS = 50
    GATHER = 51
    GENERATE_PROPOSALS = 52
    GREATER = 53
    GREATER_EQUAL = 54
    GROUPED_CONV_2D = 55
    HEATMAP_MAX_KEYPOINT = 56
    INSTANCE_NORMALIZATION = 57
    LESS = 58
    LESS_EQUAL = 59
    LOG = 60
    LOGICAL_AND = 61
    LOGICAL_NOT = 62
    LOGICAL_OR = 63
    LOG_SOFTMAX = 64
    MAXIMUM = 65
    MINIMUM = 66
    NEG = 67
    NOT_EQUAL = 68
    PAD_V2 = 69
    POW = 70
    PRELU = 71
    QUANTIZE = 72
    QUANTIZED_16BIT_LSTM = 73
    RANDOM_MULTINOMIAL = 74
    REDUCE_ALL = 75
    REDUCE_ANY = 76
    REDUCE_MAX = 77
    REDUCE_MIN = 78
    REDUCE_PROD = 79
    REDUCE_SUM = 80
    ROI_ALIGN = 81
    ROI_POOLING = 82
    RSQRT = 83
    SELECT = 84
    SIN = 85
    SLICE = 86
    SPLIT = 87
    SQRT = 88
    TILE = 89
    TOPK_V2 = 90
    TRANSPOSE_CONV_2D = 91
    UNIDIRECTIONAL_SEQUENCE_LSTM = 92
    UNIDIRECTIONAL_SEQUENCE_RNN = 93
    RESIZE_NEAREST_NEIGHBOR = 94
    QUANTIZED_LSTM = 95
    IF = 96
    WHILE = 97
    ELU = 98
    HARD_SWISH = 99
    FILL = 100
    RANK = 101
    BATCH_MATMUL = 102
    PACK = 103
    MIRROR_PAD = 104
    REVERSE = 105


CONTROL_FLOW = (OperationCode.IF, OperationCode.WHILE)
"""Operations that refer to other models, which what runs graphs runs."""


class ResultCode(IntEnum):
    """Result of an NDK call."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 1
    INCOMPLETE = 2
    UNEXPECTED_NULL = 3
    BAD_DATA = 4
    OP_FAILED = 5
    BAD_STATE = 6
    UNMAPPABLE = 7
    OUTPUT_INSUFFICIENT_SIZE = 8
    UNAVAILABLE_DEVICE = 9
    MISSED_DEADLINE_TRANSIENT = 10
    MISSED_DEADLINE_PERSISTENT = 11
    RESOURCE_EXHAUSTED_TRANSIENT = 12
    RESOURCE_EXHAUSTED_PERSISTENT = 13
    DEAD_OBJECT = 14


class FuseCode(IntEnum):
    """Activation fused into an operation."""

    NONE = 0
    RELU = 1
    RELU1 = 2
    RELU6 = 3


class PaddingCode(IntEnum):
    """Implicit padding scheme."""

    SAME = 1
    VALID = 2


class PreferenceCode(IntEnum):
    """What a compilation is optimised for."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2


class PriorityCode(IntEnum):
    """Relative priority of a compilation."""

    LOW = 90
    MEDIUM = 100
    HIGH = 110


class DurationCode(IntEnum):
    """What `Execution.get_duration` reports."""

    ON_HARDWARE = 0
    IN_DRIVER = 1
    FENCED_ON_HARDWARE = 2
    FENCED_IN_DRIVER = 3


class DeviceTypeCode(IntEnum):
    """Kind of a device; UNKNOWN is reported only for HAL versions before 1.2."""

    UNKNOWN = 0
    OTHER = 1
    CPU = 2
    GPU = 3
    ACCELERATOR = 4


class FeatureLevel(IntEnum):
    """NNAPI feature levels: the Android API level up to 31, then 1000000 + level."""

    HAL_1_0 = 27
    HAL_1_1 = 28
    HAL_1_2 = 29
    HAL_1_3 = 30
    LEVEL_5 = 31
    LEVEL_6 = 1000006
    LEVEL_7 = 1000007
    LEVEL_8 = 1000008


def operand_type_name(code: int) -> str:
    """Return the name of an operand type for messages; extension types read `extension 3:7`."""
    try:
        return OperandCode(code).name
    except ValueError:
        return _numbered_name("operand type", code)


def operation_name(code: int) -> str:
    """Return the name of an operation code for messages."""
    try:
        return OperationCode(code).name
    except ValueError:
        return "OEM_OPERATION" if code == OEM_OPERATION else _numbered_name("operation", code)


def is_extension_code(code: int) -> bool:
    """Tell whether an operand or operation code belongs to a vendor extension (SURFACE section j)."""
    return code >> EXTENSION_PREFIX_SHIFT != 0


def _numbered_name(kind: str, code: int) -> str:
    if is_extension_code(code):
        return f"extension {kind} {code >> EXTENSION_PREFIX_SHIFT}:{code & 0xFFFF}"
    return f"unknown {kind} {code}"

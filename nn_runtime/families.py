# SPDX-License-Identifier: Apache-2.0
"""Folders with a file for each family of operations, which is imported when one of its operations is first needed.

A model uses few of the families, and all of them would take a tenth of the time to its first answer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from nn_runtime.codes import CONTROL_FLOW
from nn_runtime.codes import OperationCode as Op

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FAMILIES: Mapping[str, Collection[Op]] = {
    "activation": (Op.LOGISTIC, Op.RELU, Op.RELU1, Op.RELU6, Op.TANH, Op.ELU, Op.HARD_SWISH),
    "arg": (Op.ARGMAX, Op.ARGMIN),
    "batch_matmul": (Op.BATCH_MATMUL,),
    "channel_shuffle": (Op.CHANNEL_SHUFFLE,),
    "comparison": (Op.EQUAL, Op.GREATER, Op.GREATER_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.NOT_EQUAL),
    "concatenation": (Op.CONCATENATION, Op.SPLIT),
    "conv": (Op.CONV_2D, Op.DEPTHWISE_CONV_2D),
    "detection": (
        *(Op.AXIS_ALIGNED_BBOX_TRANSFORM, Op.BOX_WITH_NMS_LIMIT, Op.DETECTION_POSTPROCESSING, Op.GENERATE_PROPOSALS),
    ),
    "elementwise": (Op.ADD, Op.MUL, Op.DIV, Op.SUB, Op.MAXIMUM, Op.MINIMUM, Op.POW, Op.PRELU),
    "fill": (Op.FILL,),
    "fully_connected": (Op.FULLY_CONNECTED,),
    "gather": (Op.EMBEDDING_LOOKUP, Op.HASHTABLE_LOOKUP, Op.GATHER),
    "grouped_conv": (Op.GROUPED_CONV_2D,),
    "heatmap": (Op.HEATMAP_MAX_KEYPOINT,),
    "log_softmax": (Op.LOG_SOFTMAX,),
    "logical": (Op.LOGICAL_AND, Op.LOGICAL_NOT, Op.LOGICAL_OR),
    "lsh_projection": (Op.LSH_PROJECTION,),
    "lstm": (Op.LSTM, Op.BIDIRECTIONAL_SEQUENCE_LSTM, Op.UNIDIRECTIONAL_SEQUENCE_LSTM),
    "normalization": (Op.L2_NORMALIZATION, Op.LOCAL_RESPONSE_NORMALIZATION, Op.INSTANCE_NORMALIZATION),
    "pack": (Op.PACK,),
    "pad": (Op.PAD, Op.PAD_V2, Op.MIRROR_PAD),
    "pooling": (Op.AVERAGE_POOL_2D, Op.L2_POOL_2D, Op.MAX_POOL_2D),
    "quantize": (Op.DEQUANTIZE, Op.CAST, Op.QUANTIZE),
    "quantized_lstm": (Op.QUANTIZED_16BIT_LSTM, Op.QUANTIZED_LSTM),
    "random_multinomial": (Op.RANDOM_MULTINOMIAL,),
    "rank": (Op.RANK,),
    "reduce": (*(Op.MEAN, Op.REDUCE_ALL, Op.REDUCE_ANY, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.REDUCE_PROD, Op.REDUCE_SUM),),
    "reshape": (Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS),
    "resize": (Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
    "rnn": (Op.RNN, Op.BIDIRECTIONAL_SEQUENCE_RNN, Op.UNIDIRECTIONAL_SEQUENCE_RNN),
    "roi": (Op.ROI_ALIGN, Op.ROI_POOLING),
    "select": (Op.SELECT,),
    "slice": (Op.STRIDED_SLICE, Op.SLICE, Op.REVERSE),
    "softmax": (Op.SOFTMAX,),
    "space": (Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH, Op.BATCH_TO_SPACE_ND, Op.SPACE_TO_BATCH_ND),
    "svdf": (Op.SVDF,),
    "tile": (Op.TILE,),
    "topk": (Op.TOPK_V2,),
    "transpose": (Op.TRANSPOSE,),
    "transpose_conv": (Op.TRANSPOSE_CONV_2D,),
    "unary": (Op.FLOOR, Op.ABS, Op.EXP, Op.LOG, Op.NEG, Op.RSQRT, Op.SIN, Op.SQRT),
}
"""Files and their operations, in the definitions' folder and both drivers'."""
WITH_CONTROL_FLOW: Mapping[str, Collection[Op]] = {**FAMILIES, "control_flow": CONTROL_FLOW}
"""The same with those that have a definition, but are run by what runs graphs."""


class Families:
    """The files of one folder. A code without a file is no error: who asks finds that nothing is registered."""

    def __init__(self, package: str, families: Mapping[str, Collection[int | str]]) -> None:
        """Take a package's name, and the codes in each of its files."""
        self._modules = {code: f"{package}.{file}" for file, codes in families.items() for code in codes}
        self._loaded: set[int | str] = set()

    def load(self, code: int | str) -> None:
        """Import the file of a code; another thread that imports it is waited for."""
        if code not in self._loaded and code in self._modules:
            importlib.import_module(self._modules[code])
            self._loaded.add(code)

    def load_all(self) -> None:
        """Import every file."""
        for code in self._modules:
            self.load(code)

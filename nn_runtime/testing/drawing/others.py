# SPDX-License-Identifier: Apache-2.0
"""Operations that are not drawn, and why."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from nn_runtime.testing.drawing import not_drawn

not_drawn(OperationCode.IF, OperationCode.WHILE, reason="refers to other models")
not_drawn(OperationCode.RANDOM_MULTINOMIAL, reason="its result is compared as a distribution, not by elements")
not_drawn(OperationCode.LSH_PROJECTION, reason="a hash: one rounding changes every bit that depends on it")
not_drawn(
    OperationCode.LSTM,
    OperationCode.QUANTIZED_LSTM,
    OperationCode.QUANTIZED_16BIT_LSTM,
    OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
    OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
    OperationCode.RNN,
    OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN,
    OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
    OperationCode.SVDF,
    reason="a recurrent cell, whose many tensors depend on each other; cases of its own",
)
not_drawn(
    OperationCode.BOX_WITH_NMS_LIMIT,
    OperationCode.DETECTION_POSTPROCESSING,
    OperationCode.GENERATE_PROPOSALS,
    OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM,
    reason="part of a detector: which boxes survive hangs on roundings and decides the output's shape",
)

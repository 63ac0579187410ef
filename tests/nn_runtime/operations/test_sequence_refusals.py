# SPDX-License-Identifier: Apache-2.0
"""Recurrent operations refuse arguments that contradict each other, by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData
from nn_runtime.operations import OperationView, output_dimensions, validate
from tests.nn_runtime.operations.operands import FakeOperand
from tests.operations.cases import Case, all_cases, example


def view(name: str, **changes: object) -> OperationView:
    """Return the operation of a case (`<operation>/<case>`), with inputs of `changes` replaced or, if None, omitted.

    A tuple stands for other dimensions, a number for another value of a scalar, a float for a tensor's scale.
    """
    case = case_of(name)
    graph = example(case, case.types[0]).main
    operation = graph.operations[0]
    operands = [
        FakeOperand(o.type, o.dimensions, None if isinstance(o.value, int) else o.value, o.scale, o.zero_point, None)
        for o in graph.operands
    ]
    inputs = [replace(operands[i], omitted=case.inputs[i].omitted) for i in operation.inputs]
    outputs = [operands[i] for i in operation.outputs]
    plain = OperationView(operation.type, inputs, outputs, 7)
    for input_name, change in changes.items():
        at = plain.position(input_name)
        inputs[at] = changed(inputs[at], change)
    return OperationView(operation.type, inputs, outputs, 7)


def case_of(name: str) -> Case:
    operation, _, case_name = name.partition("/")
    return next(case for case in all_cases() if (case.operation.name, case.name) == (operation, case_name))


def changed(operand: FakeOperand, change: object) -> FakeOperand:
    if change is None:
        return replace(operand, omitted=True)
    if isinstance(change, tuple):
        return replace(operand, dimensions=change, data=None)
    if operand.data is not None and operand.type in (OperandCode.FLOAT32, OperandCode.INT32, OperandCode.BOOL):
        return replace(operand, data=(operand.data * 0 + change).astype(operand.data.dtype))
    return replace(operand, scale=change)


REFUSALS = (
    ("LSTM/peephole", {"cell_to_output_weights": None}, "cell_to_output_weights .* must be given as cell_to_input"),
    ("LSTM/layer_norm", {"cell_layer_norm_weights": None}, "cell_layer_norm_weights .* must be given"),
    ("LSTM/plain", {"input_gate_bias": None}, "input_gate_bias .* must be given as input_to_input_weights is"),
    ("LSTM/plain", {"activation": 2}, "activation .* must be one of"),
    ("LSTM/plain", {"cell_clip": -1.0}, "cell_clip .* must be >= 0, got -1.0"),
    ("LSTM/plain", {"cell_state_in": (2, 5)}, r"cell_state_in .* must have dimensions \[2, 4\], got \[2, 5\]"),
    ("LSTM/projection_bias_clipped", {"projection_weights": None}, "projection_bias .* without projection"),
    ("LSTM/projection", {"projection_weights": None}, "must have width 4 without projection, got 2"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM/plain", {"merge_outputs": 1}, "merge_outputs .* must agree with 2 outputs"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM/cross_plain", {"aux_input": None}, "aux_input .* must have a value"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM/cross_plain", {"bw_aux_input_to_cell_weights": None}, "must be given as"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM/cross_plain", {"aux_input": (2, 4, 5)}, "aux_input .* batches and steps"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM/cross_plain", {"fw_aux_input_to_cell_weights": (4, 6)}, r"dimensions \[4, 5\]"),
    ("RNN/none", {"recurrent_weights": (4, 3)}, r"recurrent_weights .* must have dimensions \[4, 4\]"),
    ("UNIDIRECTIONAL_SEQUENCE_RNN/none", {"time_major": 2}, "time_major .* must be 0 or 1, got 2"),
    ("BIDIRECTIONAL_SEQUENCE_RNN/cross_plain", {"fw_aux_weights": None}, "fw_aux_weights .* must be given"),
    ("SVDF/rank_2", {"rank": 3}, "rank .* must divide the 8 filters, got 3"),
    ("SVDF/rank_2", {"state_in": (2, 40)}, r"state_in .* must have dimensions \[2, 48\]"),
    ("QUANTIZED_LSTM/plain", {"prev_cell_state": 0.0003}, "prev_cell_state .* must have scale 2"),
    ("QUANTIZED_LSTM/plain", {"hidden_state_scale": 0.0}, "hidden_state_scale .* must be > 0"),
    ("QUANTIZED_16BIT_LSTM/plain", {"prev_output": 0.01}, "prev_output .* must have scale 0.0078125"),
    ("QUANTIZED_16BIT_LSTM/plain", {"cell_bias": 0.5}, "cell_bias .* must have scale"),
    ("QUANTIZED_16BIT_LSTM/plain", {"recurrent_to_cell_weights": 0.5}, "recurrent_to_cell_weights .* scale"),
    ("RANDOM_MULTINOMIAL/three_classes", {"samples": 0}, "samples .* must be > 0, got 0"),
    ("RANDOM_MULTINOMIAL/three_classes", {"seeds": (3,)}, r"seeds .* must have dimensions \[2\]"),
    ("ROI_ALIGN/adaptive", {"out_height": 0}, "out_height .* must be >= 1, got 0"),
    ("ROI_ALIGN/adaptive", {"height_samples": -1}, "height_samples .* must be >= 0, got -1"),
    ("ROI_POOLING/plain", {"width_ratio": 0.0}, "width_ratio .* must be > 0, got 0.0"),
    ("ROI_POOLING/plain_quantized", {"rois": 0.25}, "rois .* must have scale 0.125"),
    ("ROI_POOLING/plain", {"batch_index": (4,)}, r"batch_index .* must have dimensions \[5\]"),
    ("AXIS_ALIGNED_BBOX_TRANSFORM/two_images", {"deltas": (4, 10)}, r"deltas .* \[4, classes \* 4\]"),
    ("BOX_WITH_NMS_LIMIT/hard_-1", {"nms_kernel": 3}, "nms_kernel .* must be 0, 1 or 2, got 3"),
    ("BOX_WITH_NMS_LIMIT/gaussian_-1", {"sigma": 0.0}, "sigma .* must be > 0, got 0.0"),
    ("GENERATE_PROPOSALS/unlimited", {"anchors": (3, 4)}, r"anchors .* must have dimensions \[2, 4\]"),
    ("DETECTION_POSTPROCESSING/regular", {"scale_h": 0.0}, "scale_h .* must be > 0, got 0.0"),
    ("DETECTION_POSTPROCESSING/regular", {"max_detections": 0}, "max_detections .* must be > 0, got 0"),
    ("DETECTION_POSTPROCESSING/fast", {"iou_threshold": -0.5}, "iou_threshold .* must be >= 0, got -0.5"),
)


@pytest.mark.parametrize(("name", "changes", "message"), REFUSALS, ids=[f"{r[0]}-{next(iter(r[1]))}" for r in REFUSALS])
def test_refuses(name: str, changes: dict[str, object], message: str) -> None:
    good = view(name)
    validate(good)
    output_dimensions(good)
    bad = view(name, **changes)
    with pytest.raises(BadData, match=message) as error:
        validate(bad)
        output_dimensions(bad)
    assert str(error.value).startswith(f"operation 7 {name.partition('/')[0]}")

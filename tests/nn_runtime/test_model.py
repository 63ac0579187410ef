# SPDX-License-Identifier: Apache-2.0
"""Building models: argument errors, state, and what finish checks (AOSP TestValidation, Model and Identify groups)."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.codes import OEM_OPERATION, OperandCode, OperationCode
from nn_runtime.device import Device
from nn_runtime.devices import reference_device
from nn_runtime.errors import BadData, BadState, UnexpectedNull
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.hal.views import constant_array
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.operand import ChannelQuant, OperandType
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import FLOAT, add, add_model, chain_model, scalar, tensor


@pytest.mark.parametrize(
    "kind",
    [
        OperandType(OperandCode.TENSOR_QUANT8_ASYMM, (2,), 0.0, 0),
        OperandType(OperandCode.TENSOR_QUANT8_ASYMM, (2,), -1.0, 0),
        OperandType(OperandCode.TENSOR_QUANT8_ASYMM, (2,), 1.0, 256),
        OperandType(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, (2,), 1.0, 128),
        OperandType(OperandCode.TENSOR_QUANT16_SYMM, (2,), 1.0, 1),
        OperandType(OperandCode.TENSOR_QUANT16_ASYMM, (2,), 1.0, -1),
        OperandType(OperandCode.TENSOR_FLOAT32, (2,), 1.0, 0),
        OperandType(OperandCode.FLOAT32, (1,)),
        OperandType(OperandCode.TENSOR_FLOAT32, (-1,)),
        OperandType(77, (2,)),
        OperandType(OperandCode.TENSOR_FLOAT32, (2**16, 2**15)),
    ],
)
def test_an_impossible_operand_type_is_refused(kind: OperandType) -> None:
    with pytest.raises(BadData, match="operand 0"):
        Model().add_operand(kind)


def test_null_arguments() -> None:
    model = Model()
    index = model.add_operand(tensor(2))
    with pytest.raises(UnexpectedNull):
        model.add_operand(None)  # type: ignore[arg-type]
    with pytest.raises(UnexpectedNull):
        model.add_operation(OperationCode.ADD, None, [index])  # type: ignore[arg-type]
    with pytest.raises(UnexpectedNull):
        model.identify_inputs_and_outputs([index], None)  # type: ignore[arg-type]
    with pytest.raises(UnexpectedNull):
        model.set_operand_value_from_memory(index, None, 0, 8)  # type: ignore[arg-type]


def test_oem_types_are_accepted() -> None:
    model = Model()
    source, result = (model.add_operand(OperandType(OperandCode.TENSOR_OEM_BYTE, (2,))) for _ in range(2))
    scalar = model.add_operand(OperandType(OperandCode.OEM_SCALAR))
    model.set_operand_value(scalar, np.arange(5, dtype=np.uint8))
    model.add_operation(OEM_OPERATION, [source, scalar], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.finish()
    operands = model.hal.main.operands
    assert [operand.type for operand in operands] == [OperandCode.TENSOR_OEM_BYTE] * 2 + [OperandCode.OEM_SCALAR]
    assert np.array_equal(constant_array(model.hal, operands[scalar]), np.arange(5))


def test_indexes_are_whole_numbers_of_any_kind() -> None:
    model = Model()
    indexes = np.array([model.add_operand(tensor(2)) for _ in range(2)])
    with pytest.raises(BadData, match=r"operation 0 ABS: inputs: wanted a whole number, got 0\.5"):
        model.add_operation(OperationCode.ABS, [0.5], [1])  # type: ignore[list-item]
    model.add_operation(OperationCode.ABS, indexes[:1], indexes[1:])  # type: ignore[arg-type]
    with pytest.raises(BadData, match="model outputs: wanted a sequence"):
        model.identify_inputs_and_outputs([0], 1)  # type: ignore[arg-type]
    model.identify_inputs_and_outputs(indexes[:1], indexes[1:])  # type: ignore[arg-type]
    model.finish()
    main = model.hal.main
    found = (*main.input_indexes, *main.output_indexes, *main.operations[0].inputs, *main.operations[0].outputs)
    assert [(type(index), index) for index in found] == [(int, 0), (int, 1), (int, 0), (int, 1)]


def test_value_errors_name_operand_wanted_and_given() -> None:
    model = Model()
    index = model.add_operand(tensor(2, 3))
    with pytest.raises(BadData, match=r"operand 0 \(TENSOR_FLOAT32 \[2, 3\]\): a value of 24 bytes is wanted, got 20"):
        model.set_operand_value(index, np.zeros(5, np.float32))
    with pytest.raises(BadData, match="wanted an array of float32, got float64"):
        model.set_operand_value(index, np.zeros((2, 3)))
    with pytest.raises(BadData, match="C-contiguous"):
        model.set_operand_value(index, np.zeros((3, 2), np.float32).T)
    with pytest.raises(BadData, match="operand 1 is out of range"):
        model.set_operand_value(1, np.zeros(2, np.float32))


def test_a_constant_needs_known_dimensions() -> None:
    model = Model()
    for dims in ((2, 0), ()):
        index = model.add_operand(tensor(*dims))
        with pytest.raises(BadData, match="known dimensions"):
            model.set_operand_value(index, np.zeros(2, np.float32))
        model.set_operand_value(index, None)


def test_python_numbers_become_scalars() -> None:
    model = Model()
    with pytest.raises(BadData, match="operand 0"):
        scalar(model, 2**40)
    model = add_model()
    fuse_code = model.hal.main.operands[3]
    assert constant_array(model.hal, fuse_code) == 0


def test_small_constants_are_copied_at_once_and_large_ones_at_finish() -> None:
    model = Model()
    small, large = np.ones(32, np.float32), np.ones(64, np.float32)
    x, y, z = model.add_operand(tensor(32)), model.add_operand(tensor(32)), model.add_operand(tensor(32))
    a, b, c = model.add_operand(tensor(64)), model.add_operand(tensor(64)), model.add_operand(tensor(64))
    model.set_operand_value(y, small)
    model.set_operand_value(b, large)
    add(model, x, y, z)
    add(model, a, b, c)
    small[:] = 7
    model.identify_inputs_and_outputs([x, a], [z, c])
    model.finish()
    large[:] = 7
    operands = model.hal.main.operands
    assert operands[y].lifetime == OperandLifeTime.CONSTANT_COPY
    assert operands[b].lifetime == OperandLifeTime.CONSTANT_REFERENCE
    for index in (y, b):
        value = constant_array(model.hal, operands[index])
        assert value is not None
        assert (value == 1).all()


def test_constant_from_memory() -> None:
    model = Model()
    x, y, z = (model.add_operand(tensor(2)) for _ in range(3))
    memory = Memory.from_array(np.arange(4, dtype=np.float32))
    with pytest.raises(BadData, match="outside the memory of 16"):
        model.set_operand_value_from_memory(y, memory, 12, 8)
    with pytest.raises(BadData, match="8 bytes is wanted, got 4"):
        model.set_operand_value_from_memory(y, memory, 0, 4)
    model.set_operand_value_from_memory(y, memory, 8, 8)
    with pytest.raises(BadData, match="float64"):
        model.set_operand_value(y, np.zeros(2))  # and the value before stays
    add(model, x, y, z)
    model.identify_inputs_and_outputs([x], [z])
    model.finish()
    value = constant_array(model.hal, model.hal.main.operands[y])
    assert value is not None
    assert value.tolist() == [2, 3]


def test_per_channel_parameters() -> None:
    model = Model()
    index = model.add_operand(OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3)))
    other = model.add_operand(tensor(2, 3))
    for bad in (ChannelQuant((1, 1), 2), ChannelQuant((1,), 0), ChannelQuant((1, -1), 0), ChannelQuant((), 0)):
        with pytest.raises(BadData, match="operand 0"):
            model.set_operand_symm_per_channel_quant_params(index, bad)
    with pytest.raises(BadData, match="operand 1"):
        model.set_operand_symm_per_channel_quant_params(other, ChannelQuant((1, 1), 0))
    model.set_operand_symm_per_channel_quant_params(index, ChannelQuant((0.5, 0.25), 0))


def test_operations_are_checked_when_added() -> None:
    model = Model()
    x, y = model.add_operand(tensor(2)), model.add_operand(tensor(2))
    with pytest.raises(BadData, match="operation 0 RELU: input 0 is operand 5, the model has 2"):
        model.add_operation(OperationCode.RELU, [5], [y])
    with pytest.raises(BadData, match="operation 0 RELU"):
        model.add_operation(OperationCode.RELU, [x, y], [y])
    with pytest.raises(BadData):
        model.add_operation(9999, [x], [y])


def test_inputs_and_outputs_are_named_once() -> None:
    def fresh() -> tuple[Model, int, int, int]:
        model = Model()
        x, y = model.add_operand(tensor(2)), model.add_operand(tensor(2))
        return model, x, y, scalar(model, 0)

    for inputs, outputs in (((0,), (0,)), ((0, 0), (1,)), ((0,), (1, 1)), ((2,), (1,)), ((3,), (1,))):
        model, *_ = fresh()
        with pytest.raises(BadData):
            model.identify_inputs_and_outputs(inputs, outputs)
    model, x, y, _ = fresh()
    model.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadData, match="input or output"):
        model.set_operand_value(x, np.zeros(2, np.float32))
    with pytest.raises(BadData, match="input 0: operand 0 is a constant, omitted, or named before"):
        model.identify_inputs_and_outputs([x], [y])


@pytest.mark.parametrize("first", [True, False])
def test_inputs_and_outputs_may_be_named_anew_while_there_are_none(first: bool) -> None:
    model = Model()
    x, y = model.add_operand(tensor(2)), model.add_operand(tensor(2))
    model.add_operation(OperationCode.RELU, [x], [y])
    for inputs, outputs in (((), ()), ((x,), (y,))) if first else (((x,), (y,)), ((), ())):
        model.identify_inputs_and_outputs(inputs, outputs)
    if first:
        model.finish()
        assert (model.hal.main.input_indexes, model.hal.main.output_indexes) == ((x,), (y,))
    else:
        with pytest.raises(BadData):  # operands that were named and are not any more
            model.finish()


def test_everything_is_refused_after_finish() -> None:
    model = add_model()
    calls = [
        lambda: model.add_operand(tensor(2)),
        lambda: model.set_operand_value(0, None),
        lambda: model.set_operand_value_from_memory(0, Memory(SharedMemory.create(4)), 0, 4),
        lambda: model.set_operand_value_from_model(0, model),
        lambda: model.set_operand_symm_per_channel_quant_params(0, ChannelQuant((1,), 0)),
        lambda: model.add_operation(OperationCode.ADD, [0, 1], [2]),
        lambda: model.identify_inputs_and_outputs([0], [1]),
        lambda: model.relax_computation_float32_to_float16(True),
        model.finish,
    ]
    for call in calls:
        with pytest.raises(BadState, match="finished"):
            call()


def test_an_empty_model_is_invalid_for_ever() -> None:
    model = Model()
    with pytest.raises(BadData, match="at least one"):
        model.finish()
    with pytest.raises(BadState, match="invalid"):
        model.finish()


def test_a_cycle() -> None:
    model = Model()
    x, a, b, y = (model.add_operand(tensor(2)) for _ in range(4))
    add(model, x, b, a)
    add(model, a, x, b)
    add(model, a, x, y)
    model.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadData, match=r"cycle.*0 ADD, 1 ADD"):
        model.finish()


def test_reading_before_writing_is_sorted() -> None:
    model = Model()
    x, a, y = (model.add_operand(tensor(2)) for _ in range(3))
    model.add_operation(OperationCode.TANH, [a], [y])
    model.add_operation(OperationCode.RELU, [x], [a])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    assert [operation.type for operation in model.hal.main.operations] == [OperationCode.RELU, OperationCode.TANH]
    assert model.run_order == (1, 0)
    device = Device(SampleDevice("only-tanh", {OperationCode.TANH}))
    assert model.supported_operations([device]) == [True, False]
    assert model.supported_operations([device, reference_device()]) == [True, True]


@pytest.mark.parametrize("outputs_of_second", [(1, "writes operand 1"), (0, "an input")])
def test_double_and_wrong_writes(outputs_of_second: tuple[int, str]) -> None:
    target, message = outputs_of_second
    model = Model()
    x, y = model.add_operand(tensor(2)), model.add_operand(tensor(2))
    model.add_operation(OperationCode.RELU, [x], [y])
    model.add_operation(OperationCode.TANH, [x], [target])
    model.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadData, match=f"operation 1 TANH: it writes operand|{message}"):
        model.finish()


def test_unwritten_operands() -> None:
    model = Model()
    x, a, y, unused = (model.add_operand(tensor(2)) for _ in range(4))
    add(model, x, a, y)
    model.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadData, match=r"operand 1 \(TENSOR_FLOAT32 \[2\]\) is read by operation 0 but nothing writes"):
        model.finish()
    model = Model()
    x, y, unused = (model.add_operand(tensor(2)) for _ in range(3))
    model.add_operation(OperationCode.RELU, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadData, match=f"operand {unused} .* is never written"):
        model.finish()


def test_a_referenced_model_must_be_finished() -> None:
    model = Model()
    index = model.add_operand(OperandType(OperandCode.MODEL))
    with pytest.raises(BadState, match="finished"):
        model.set_operand_value_from_model(index, Model())
    other = model.add_operand(tensor(2))
    with pytest.raises(BadData, match="MODEL"):
        model.set_operand_value_from_model(other, add_model())


def test_supported_operations_arguments() -> None:
    model, device = chain_model([OperationCode.RELU]), reference_device()
    with pytest.raises(BadData, match="empty"):
        model.supported_operations([])
    with pytest.raises(BadData, match="twice"):
        model.supported_operations([device, device])
    with pytest.raises(UnexpectedNull):
        model.supported_operations([None])  # type: ignore[list-item]
    with pytest.raises(BadState):
        Model().supported_operations([device])
    with pytest.raises(BadData, match="empty"):
        Model().supported_operations([])
    with pytest.raises(UnexpectedNull):
        Model().supported_operations(None)  # type: ignore[arg-type]


def test_unknown_rank_is_allowed_for_temporaries() -> None:
    assert chain_model([OperationCode.RELU, OperationCode.TANH], inner_dims=()).hal.main.operands[1].type == FLOAT


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (tensor(4, 2), ChannelQuant((1.0,) * 4, 0)),
        (OperandType(OperandCode.TENSOR_QUANT8_SYMM, (4, 2), 1.0), ChannelQuant((1.0,) * 4, 0)),
        (OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (4, 2)), ChannelQuant((1.0,) * 4, 2)),
        (OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (4, 2)), ChannelQuant((1.0,) * 3, 0)),
        (OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (4, 2)), ChannelQuant((1.0, 1.0, 1.0, -1.0), 0)),
        (OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (4, 2)), ChannelQuant((), 0)),
    ],
)
def test_wrong_per_channel_parameters(kind: OperandType, params: ChannelQuant) -> None:
    """AOSP TestOperandExtraParams: another type, dimension, count, sign, no scales."""
    model = Model()
    index = model.add_operand(kind)
    with pytest.raises(BadData):
        model.set_operand_symm_per_channel_quant_params(index, params)


@pytest.mark.parametrize(("scale", "zero_point"), [(1.0, 0), (0.0, 1)])
def test_a_per_channel_operand_has_no_scale_of_its_own(scale: float, zero_point: int) -> None:
    """AOSP TestOperandExtraParams: operand scale, operand zero point."""
    with pytest.raises(BadData):
        Model().add_operand(OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (4, 2), scale, zero_point))


def test_a_referenced_model_may_be_closed_before_the_other_is_finished() -> None:
    inner = Model()
    x, large, y = (inner.add_operand(tensor(100)) for _ in range(3))
    inner.set_operand_value(large, np.arange(100, dtype=np.float32))
    add(inner, x, large, y)
    inner.identify_inputs_and_outputs([x], [y])
    inner.finish()
    outer = Model()
    condition, x, y = (
        outer.add_operand(tensor(1, code=OperandCode.TENSOR_BOOL8)),
        *(outer.add_operand(tensor(100)) for _ in range(2)),
    )
    branches = [outer.add_operand(OperandType(OperandCode.MODEL)) for _ in range(2)]
    for index in branches:
        outer.set_operand_value_from_model(index, inner)
    outer.add_operation(OperationCode.IF, [condition, *branches, x], [y])
    outer.identify_inputs_and_outputs([condition, x], [y])
    inner.close()
    outer.finish()
    (graph,) = outer.hal.referenced
    np.testing.assert_array_equal(constant_array(outer.hal, graph.operands[1]), np.arange(100))


def test_a_model_says_what_it_is() -> None:
    model = Model()
    model.add_operand(tensor(2))
    assert repr(model) == "<Model not finished: 0 operations, 1 operands>"
    model = add_model()
    assert repr(model) == "<Model finished: 1 operations, 4 operands>"
    model.close()
    assert repr(model).startswith("<Model closed: ")

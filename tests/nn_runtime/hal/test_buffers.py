# SPDX-License-Identifier: Apache-2.0
"""Memory domains: roles of an allocation, use of tokens, copies. Storage is the CPU driver's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver.driver import Device
from cpu_driver.prepared_model import PreparedModel
from nn_runtime.hal.memory import PROT_READ, SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Priority,
    Request,
    RequestArgument,
)
from tests.nn_runtime.hal.models import add_model, pointer

if TYPE_CHECKING:
    from nn_runtime.hal.interfaces import IBuffer
    from nn_runtime.operand import Dimensions

ONES = np.ones((2, 2), np.float32)
ROLE0, ROLE1 = BufferRole(0, 0, 1.0), BufferRole(0, 1, 1.0)


@pytest.fixture
def device() -> Device:
    return Device()


def _prepare(device: Device, model: Model) -> PreparedModel:
    return device.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)


@pytest.fixture
def prepared(device: Device) -> PreparedModel:
    return _prepare(device, add_model())


def _shared(data: np.ndarray) -> SharedMemory:
    memory = SharedMemory.create(data.nbytes)
    memory.array()[:] = data.reshape(-1).view(np.uint8)
    return memory


def _allocate(
    device: Device,
    prepared: PreparedModel,
    inputs: tuple[BufferRole, ...] = (),
    outputs: tuple[BufferRole, ...] = (),
    dims: Dimensions = (),
) -> tuple[IBuffer, int]:
    return device.allocate(BufferDesc(dims), [prepared], inputs, outputs)


def _status(caught: pytest.ExceptionInfo[HalError]) -> ErrorStatus:
    return caught.value.status


@pytest.mark.parametrize(
    ("inputs", "outputs", "dims", "message"),
    [
        ((), (), (), "at least one role"),
        ((BufferRole(1, 0, 1.0),), (), (), "1 prepared models"),
        ((BufferRole(0, 2, 1.0),), (), (), "the model has 2"),
        ((), (BufferRole(0, 1, 1.0),), (), "the model has 1"),
        ((BufferRole(0, 0, 0.0),), (), (), "frequency"),
        ((BufferRole(0, 0, 1.5),), (), (), "frequency"),
        ((ROLE0, ROLE0), (), (), "twice"),
        ((ROLE0,), (), (3, 2), "contradict"),
        ((ROLE0,), (), (2, 2, 1), "contradict"),
    ],
)
def test_bad_roles(
    device: Device,
    prepared: PreparedModel,
    inputs: tuple[BufferRole, ...],
    outputs: tuple[BufferRole, ...],
    dims: Dimensions,
    message: str,
) -> None:
    with pytest.raises(HalError, match=message) as caught:
        _allocate(device, prepared, inputs, outputs, dims)
    assert _status(caught) == ErrorStatus.INVALID_ARGUMENT


def test_no_or_foreign_prepared_models(device: Device) -> None:
    with pytest.raises(HalError, match="needs a prepared model"):
        device.allocate(BufferDesc(), [], [ROLE0], [])

    class Foreign(PreparedModel):
        pass

    other = object.__new__(Foreign)
    other.__class__ = type("NotOurs", (), {})  # type: ignore[assignment]
    with pytest.raises(HalError, match="prepared model 0 is not of this device"):
        device.allocate(BufferDesc(), [other], [ROLE0], [])


def test_roles_of_different_dimensions(device: Device, prepared: PreparedModel) -> None:
    other = _prepare(device, add_model((3, 2)))
    with pytest.raises(HalError, match="contradict"):
        device.allocate(BufferDesc(), [prepared, other], [ROLE0, BufferRole(1, 0, 1.0)], [])


def test_tokens_are_unique_and_positive(device: Device, prepared: PreparedModel) -> None:
    pairs = [_allocate(device, prepared, (ROLE0,)) for _ in range(5)]
    tokens = [token for _, token in pairs]
    assert min(tokens) > 0
    assert len(set(tokens)) == 5


def test_copies_in_and_out(device: Device, prepared: PreparedModel) -> None:
    buffer, _ = _allocate(device, prepared, (ROLE0,))
    destination = SharedMemory.create(16)
    with pytest.raises(HalError, match="holds nothing") as caught:
        buffer.copy_to(destination)
    assert _status(caught) == ErrorStatus.GENERAL_FAILURE
    buffer.copy_from(_shared(ONES * 3), ())
    buffer.copy_to(destination)
    assert destination.array().view(np.float32).tolist() == [3, 3, 3, 3]
    with pytest.raises(HalError, match="has 16 bytes") as caught:
        buffer.copy_to(SharedMemory.create(15))
    assert _status(caught) == ErrorStatus.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("size", "dims", "message"),
    [(12, (), "has 16 bytes"), (16, (4, 1), "contradict"), (16, (2, 0), "must be known")],
)
def test_bad_copy_in_leaves_the_buffer_empty(
    device: Device, prepared: PreparedModel, size: int, dims: Dimensions, message: str
) -> None:
    buffer, _ = _allocate(device, prepared, (ROLE0,))
    buffer.copy_from(_shared(ONES), ())
    with pytest.raises(HalError, match=message) as caught:
        buffer.copy_from(SharedMemory.create(size), dims)
    assert _status(caught) == ErrorStatus.INVALID_ARGUMENT
    with pytest.raises(HalError, match="holds nothing"):
        buffer.copy_to(SharedMemory.create(16))


def test_flexible_buffer_takes_dimensions_with_the_data(device: Device) -> None:
    prepared = _prepare(device, add_model((0, 2)))
    buffer, _ = _allocate(device, prepared, (ROLE0,))
    with pytest.raises(HalError, match="dimensions are needed"):
        buffer.copy_from(_shared(ONES), ())
    buffer.copy_from(_shared(np.ones((5, 2), np.float32)), (5, 2))
    buffer.copy_to(SharedMemory.create(40))


def test_a_role_is_the_same_by_another_place_in_the_list(device: Device, prepared: PreparedModel) -> None:
    with pytest.raises(HalError, match="given twice"):
        device.allocate(BufferDesc(), [prepared, prepared], [ROLE0, BufferRole(1, 0, 1.0)], [])


def _token_argument(pool: int) -> RequestArgument:
    return RequestArgument(location=DataLocation(pool_index=pool))


def _execute(prepared: PreparedModel, inputs: list[RequestArgument], output: RequestArgument, *tokens: int) -> None:
    request = Request(tuple(inputs), (output,), tuple(BufferToken(token) for token in tokens))
    prepared.execute_synchronously(request, False, None, None)


def test_execution_from_buffer_to_buffer(device: Device, prepared: PreparedModel) -> None:
    source, source_token = _allocate(device, prepared, (ROLE0, ROLE1))
    result, result_token = _allocate(device, prepared, (), (ROLE0,))
    source.copy_from(_shared(ONES * 2), ())
    arguments = [_token_argument(0), _token_argument(0)]
    _execute(prepared, arguments, _token_argument(1), source_token, result_token)
    destination = SharedMemory.create(16)
    result.copy_to(destination)
    assert destination.array().view(np.float32).tolist() == [4, 4, 4, 4]


def test_an_output_buffer_takes_another_size_than_it_holds(device: Device) -> None:
    prepared = _prepare(device, add_model((0, 2)))
    result, token = _allocate(device, prepared, (), (ROLE0,))
    for rows in (2, 3):
        data = np.full((rows, 2), rows, np.float32)
        output = replace(_token_argument(0), dimensions=(rows, 2))
        _execute(prepared, [pointer(data, (rows, 2)), pointer(data, (rows, 2))], output, token)
        destination = SharedMemory.create(data.nbytes)
        result.copy_to(destination)
        assert destination.array().view(np.float32).tolist() == [2 * rows] * (2 * rows)


def test_an_input_buffer_is_read_with_the_dimensions_that_it_holds(device: Device) -> None:
    prepared = _prepare(device, add_model((0, 2)))
    buffer, token = _allocate(device, prepared, (ROLE0,))
    buffer.copy_from(_shared(np.ones((5, 2), np.float32)), (5, 2))
    for rows in (3, 5):
        data, result = np.ones((rows, 2), np.float32), np.zeros((rows, 2), np.float32)
        inputs = [replace(_token_argument(0), dimensions=(rows, 2)), pointer(data, (rows, 2))]
        if rows == 5:
            _execute(prepared, inputs, pointer(result, (rows, 2)), token)
            assert (result == 2).all()
            continue
        with pytest.raises(HalError, match=f"input 0: buffer {token}") as caught:
            _execute(prepared, inputs, pointer(result, (rows, 2)), token)
        assert _status(caught) == ErrorStatus.INVALID_ARGUMENT


def test_bad_use_of_tokens(device: Device, prepared: PreparedModel) -> None:
    source, source_token = _allocate(device, prepared, (ROLE0,), (ROLE0,))
    good, out = pointer(ONES), pointer(np.empty_like(ONES))

    def failing(match: str, status: ErrorStatus, *call: object) -> None:
        with pytest.raises(HalError, match=match) as caught:
            _execute(prepared, *call)  # type: ignore[arg-type]
        assert _status(caught) == status

    first = [_token_argument(0), good]
    failing("holds nothing", ErrorStatus.GENERAL_FAILURE, first, out, source_token)
    source.copy_from(_shared(ONES), ())
    failing("no buffer has the token", ErrorStatus.INVALID_ARGUMENT, first, out, 999)
    failing("not allocated for", ErrorStatus.INVALID_ARGUMENT, [good, _token_argument(0)], out, source_token)
    failing("only once", ErrorStatus.INVALID_ARGUMENT, first, _token_argument(0), source_token)
    other = _prepare(device, add_model())
    with pytest.raises(HalError, match="not allocated for"):
        _execute(other, first, out, source_token)
    source.close()
    failing("no buffer has the token", ErrorStatus.INVALID_ARGUMENT, first, out, source_token)


def test_a_buffer_dies_with_its_last_reference(device: Device, prepared: PreparedModel) -> None:
    buffer, token = _allocate(device, prepared, (ROLE0,))
    buffer.copy_from(_shared(ONES), ())
    del buffer
    with pytest.raises(HalError, match="no buffer has the token"):
        _execute(prepared, [_token_argument(0), pointer(ONES)], pointer(np.empty_like(ONES)), token)


def test_a_failed_execution_empties_its_output(device: Device, prepared: PreparedModel) -> None:
    result, token = _allocate(device, prepared, (), (ROLE0,))
    arguments = [pointer(ONES), pointer(ONES)]
    _execute(prepared, arguments, _token_argument(0), token)
    result.copy_to(SharedMemory.create(16))
    wrong = replace(_token_argument(0), dimensions=(2, 2))
    request = Request((RequestArgument(has_no_value=True), arguments[1]), (wrong,), (BufferToken(token),))
    with pytest.raises(HalError, match="must have a value"):
        prepared.execute_synchronously(request, False, None, None)
    with pytest.raises(HalError, match="holds nothing"):
        result.copy_to(SharedMemory.create(16))


def test_copy_into_read_only_memory(device: Device, prepared: PreparedModel) -> None:
    buffer, _ = _allocate(device, prepared, (ROLE0,))
    buffer.copy_from(_shared(ONES), ())
    shared = SharedMemory.create(16)
    with pytest.raises(HalError, match="cannot be written") as caught:
        buffer.copy_to(SharedMemory.from_fd(16, PROT_READ, shared.fd, 0))
    assert _status(caught) == ErrorStatus.GENERAL_FAILURE

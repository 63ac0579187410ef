# SPDX-License-Identifier: Apache-2.0
"""Driver-managed buffers: allocation, copies, use in requests (VTS MemoryDomainTests of 1.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import FeatureLevel, OperandCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, BufferToken, ErrorStatus, Request, RequestArgument
from nn_runtime.hal.versions.served_model import ServedPreparedModel13
from nn_runtime.hal.versions.server import Served13
from nn_runtime.operand import size_bytes
from tests.nn_runtime.hal.vts.client import Client, Way, everywhere, execute
from tests.nn_runtime.hal.vts.models import DIMS, TYPES, add_model, argument_operand, conv_model, is_float

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.hal.versions import v1_3
    from nn_runtime.operand import Dimensions

NONE, INVALID, FAILED = ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE
OTHER_TYPE = dict(zip(TYPES, (TYPES[1], TYPES[0], TYPES[3], TYPES[2]), strict=True))
UNKNOWN = (0, *DIMS[1:])
TWICE = (2, *DIMS[1:])
WAYS = (Way.ASYNCHRONOUS, Way.SYNCHRONOUS, Way.FENCED)


class Domain:
    """Models of one operand type on a driver, and buffers for them."""

    def __init__(self, device: Device, code: int) -> None:
        self.client = Client(device.hal, FeatureLevel.HAL_1_3)
        self.code = code
        self.operand = argument_operand(code)
        self.size = size_bytes(code, DIMS)

    def prepared(self, model: Model) -> ServedPreparedModel13:
        """Prepare; every driver under test takes these models."""
        prepared = self.client.prepared(model)
        assert isinstance(prepared, ServedPreparedModel13)
        return prepared

    def conv(self, dims: Dimensions = DIMS, count: int = 1) -> ServedPreparedModel13:
        return self.prepared(conv_model(replace(self.operand, dimensions=dims), count))

    def allocate(
        self,
        models: Sequence[v1_3.IPreparedModel],
        inputs: Sequence[BufferRole],
        outputs: Sequence[BufferRole],
        dims: Dimensions = (),
    ) -> tuple[int, v1_3.IBuffer | None, int]:
        driver = self.client.driver
        assert isinstance(driver, Served13)
        return driver.allocate(BufferDesc(dims), models, inputs, outputs)

    def refuses(
        self,
        models: Sequence[v1_3.IPreparedModel],
        inputs: Sequence[BufferRole] = (),
        outputs: Sequence[BufferRole] = (),
        dims: Dimensions = (),
    ) -> bool:
        """Tell whether an allocation is refused as it must be."""
        status, buffer, token = self.allocate(models, inputs, outputs, dims)
        return status == INVALID and buffer is None and token == 0

    def refuses_as_input_and_output(self, role: BufferRole, *models: v1_3.IPreparedModel, **how: Dimensions) -> bool:
        return self.refuses(models, [role], **how) and self.refuses(models, [], [role], **how)

    def refuses_conflict(self, first: v1_3.IPreparedModel, second: v1_3.IPreparedModel) -> bool:
        """Tell whether no two arguments of two models may share a buffer."""
        models = [first, second]
        one, other = role(0), role(0, model=1)
        return (
            self.refuses(models, [one, other])
            and self.refuses(models, [one], [other])
            and self.refuses(models, [], [one, other])
        )

    def buffer(
        self,
        model: v1_3.IPreparedModel,
        inputs: Sequence[int] = (0,),
        outputs: Sequence[int] = (0,),
        dims: Dimensions = (),
    ) -> tuple[v1_3.IBuffer, int]:
        """Allocate for arguments of one model."""
        status, buffer, token = self.allocate([model], list(map(role, inputs)), list(map(role, outputs)), dims)
        assert status == NONE
        assert buffer is not None
        assert token > 0
        return buffer, token

    def memory(self, factor: float = 1) -> SharedMemory:
        """Return shared memory of so many times the operand's size."""
        return SharedMemory.create(int(self.size * factor))

    def fill(self, buffer: v1_3.IBuffer) -> None:
        assert buffer.copy_from(self.memory(), DIMS) == NONE


def role(index: int, model: int = 0, frequency: float = 1.0) -> BufferRole:
    return BufferRole(model, index, frequency)


@pytest.fixture(params=TYPES, ids=lambda code: OperandCode(code).name)
def domain(device: Device, request: pytest.FixtureRequest) -> Domain:
    """Every operand type that VTS takes, on every driver."""
    return Domain(device, request.param)


# Allocation


def test_no_role(domain: Domain) -> None:
    assert domain.refuses([])
    assert domain.refuses([domain.conv()])


def test_no_prepared_model(domain: Domain) -> None:
    assert domain.refuses_as_input_and_output(role(0), None)  # type: ignore[arg-type]


def test_a_foreign_prepared_model(domain: Domain) -> None:
    class Foreign:
        """Of another driver."""

    assert domain.refuses_as_input_and_output(role(0), Foreign())  # type: ignore[arg-type]


def test_a_prepared_model_of_another_device(domain: Domain) -> None:
    from nn_runtime.testing.sample_drivers import SampleDevice

    other = Client(SampleDevice("other"), FeatureLevel.HAL_1_3).prepared(conv_model(domain.operand))
    assert isinstance(other, ServedPreparedModel13)
    assert domain.refuses_as_input_and_output(role(0), other)


@pytest.mark.parametrize("index", [1, 2**32 - 1])
def test_an_index_of_a_model_that_is_not_there(domain: Domain, index: int) -> None:
    assert domain.refuses_as_input_and_output(role(0, model=index), domain.conv())


@pytest.mark.parametrize("index", [1, 2**32 - 1])
def test_an_index_of_an_argument_that_is_not_there(domain: Domain, index: int) -> None:
    assert domain.refuses_as_input_and_output(role(index), domain.conv())


@pytest.mark.parametrize("frequency", [10.0, 0.0, -0.5, float("nan")])
def test_a_frequency_that_is_none(domain: Domain, frequency: float) -> None:
    assert domain.refuses_as_input_and_output(role(0, frequency=frequency), domain.conv())


def test_the_same_role_twice(domain: Domain) -> None:
    model = domain.conv()
    assert domain.refuses([model], [role(0), role(0)])
    assert domain.refuses([model], [], [role(0), role(0)])
    again = role(0, model=1)
    assert domain.refuses([model, model], [role(0), again])
    assert domain.refuses([model, model], [], [role(0), again])


def test_roles_of_different_types(domain: Domain) -> None:
    other = conv_model(replace(domain.operand, type=OTHER_TYPE[domain.code]))
    assert domain.refuses_conflict(domain.conv(), domain.prepared(other))


@pytest.mark.parametrize("change", [{"scale": 1.0}, {"zero_point": 10}], ids=["scale", "zero point"])
def test_roles_of_different_quantisation(domain: Domain, change: dict[str, float]) -> None:
    if is_float(domain.code):
        return  # it has none
    other = conv_model(replace(domain.operand, **change))
    assert domain.refuses_conflict(domain.conv(), domain.prepared(other))


def test_roles_of_different_ranks(domain: Domain) -> None:
    shorter = replace(domain.operand, dimensions=DIMS[:-1])
    assert domain.refuses_conflict(domain.prepared(add_model(domain.operand)), domain.prepared(add_model(shorter)))


def test_roles_of_different_dimensions(domain: Domain) -> None:
    assert domain.refuses_conflict(domain.conv(), domain.conv((4, *DIMS[1:])))


@pytest.mark.parametrize("dims", [DIMS[:-1], (4, *DIMS[1:])], ids=["rank", "dimensions"])
def test_a_role_that_contradicts_the_description(domain: Domain, dims: Dimensions) -> None:
    assert domain.refuses_as_input_and_output(role(0), domain.conv(), dims=dims)


def test_dimensions_for_a_scalar(domain: Domain) -> None:
    assert domain.refuses([domain.prepared(add_model(domain.operand))], [role(2)], dims=(1,))


# Copies


@pytest.mark.parametrize("factor", [0.5, 2])
def test_copy_from_memory_of_a_wrong_size(domain: Domain, factor: float) -> None:
    buffer, _ = domain.buffer(domain.conv())
    assert buffer.copy_from(domain.memory(factor), ()) == INVALID


@pytest.mark.parametrize("factor", [0.5, 2])
def test_copy_from_memory_of_a_wrong_size_in_unknown_dimensions(domain: Domain, factor: float) -> None:
    buffer, _ = domain.buffer(domain.conv(UNKNOWN))
    assert buffer.copy_from(domain.memory(factor), DIMS) == INVALID
    assert buffer.copy_from(domain.memory(), DIMS) == NONE
    assert buffer.copy_from(domain.memory(), TWICE) == INVALID


def test_copy_from_with_wrong_dimensions(domain: Domain) -> None:
    buffer, _ = domain.buffer(domain.conv())
    for wrong in (DIMS[:-1], TWICE, UNKNOWN):
        assert buffer.copy_from(domain.memory(), wrong) == INVALID
    assert buffer.copy_from(domain.memory(), ()) == NONE
    assert buffer.copy_from(domain.memory(), DIMS) == NONE


def test_copy_from_with_wrong_dimensions_in_unknown_ones(domain: Domain) -> None:
    buffer, _ = domain.buffer(domain.conv(UNKNOWN))
    for wrong in (DIMS[:-1], (2, *DIMS[1:3], 4), (*DIMS[:3], 0), ()):
        assert buffer.copy_from(domain.memory(), wrong) == INVALID
    assert buffer.copy_from(domain.memory(), DIMS) == NONE


def test_copy_to_before_it_holds_anything(domain: Domain) -> None:
    buffer, _ = domain.buffer(domain.conv())
    assert buffer.copy_to(domain.memory()) == FAILED


@pytest.mark.parametrize("dims", [DIMS, UNKNOWN], ids=["known", "unknown"])
def test_copy_to_memory_of_a_wrong_size(domain: Domain, dims: Dimensions) -> None:
    buffer, _ = domain.buffer(domain.conv(dims))
    domain.fill(buffer)
    assert buffer.copy_to(domain.memory(0.5)) == INVALID
    assert buffer.copy_to(domain.memory(2)) == INVALID
    assert buffer.copy_to(domain.memory()) == NONE


# Executions


@pytest.fixture(params=WAYS, ids=lambda way: way.value)
def way(request: pytest.FixtureRequest) -> Way:
    """Every way to execute that takes tokens."""
    way: Way = request.param
    return way


class Call:
    """A request whose arguments are shared memory, or the buffer of a token."""

    def __init__(self, domain: Domain, token: int) -> None:
        self._pools: list[SharedMemory | BufferToken] = [BufferToken(token)]
        self._domain = domain
        self.buffer = RequestArgument(location=everywhere(0))

    def shared(self, dims: Dimensions = ()) -> RequestArgument:
        """Return an argument in new shared memory."""
        size = size_bytes(self._domain.code, dims or DIMS)
        self._pools.append(SharedMemory.create(size))
        return RequestArgument(location=everywhere(len(self._pools) - 1, size), dimensions=dims)

    def status(
        self,
        model: ServedPreparedModel13,
        inputs: Sequence[RequestArgument],
        outputs: Sequence[RequestArgument],
        way: Way,
    ) -> int:
        """Execute and return the status; a failure gives no shapes."""
        outcome = execute(model, Request(tuple(inputs), tuple(outputs), tuple(self._pools)), way)
        assert outcome.status == NONE or outcome.shapes == ()
        return outcome.status


@pytest.mark.parametrize("token", [0, 100])
def test_tokens_that_were_never_given_out(domain: Domain, way: Way, token: int) -> None:
    model = domain.conv()
    call = Call(domain, token)
    assert call.status(model, [call.buffer], [call.shared()], way) == INVALID
    assert call.status(model, [call.shared()], [call.buffer], way) == INVALID


def test_a_buffer_of_another_prepared_model(domain: Domain, way: Way) -> None:
    buffer, token = domain.buffer(domain.conv())
    domain.fill(buffer)
    other = domain.conv()
    call = Call(domain, token)
    assert call.status(other, [call.buffer], [call.shared()], way) == INVALID
    assert call.status(other, [call.shared()], [call.buffer], way) == INVALID


def test_a_buffer_of_another_argument(domain: Domain, way: Way) -> None:
    model = domain.conv(count=2)
    buffer, token = domain.buffer(model, [0], [])
    domain.fill(buffer)
    call = Call(domain, token)
    assert call.status(model, [call.shared(), call.buffer], [call.shared(), call.shared()], way) == INVALID
    assert call.status(model, [call.shared(), call.shared()], [call.shared(), call.buffer], way) == INVALID


def test_an_input_as_output_and_the_reverse(domain: Domain, way: Way) -> None:
    model = domain.conv()
    source, source_token = domain.buffer(model, [0], [])
    result, result_token = domain.buffer(model, [], [0])
    call = Call(domain, source_token)
    assert call.status(model, [call.shared()], [call.buffer], way) == INVALID
    domain.fill(result)
    call = Call(domain, result_token)
    assert call.status(model, [call.buffer], [call.shared()], way) == INVALID
    del source


def test_an_output_fills_a_buffer_that_held_nothing(domain: Domain, way: Way) -> None:
    model = domain.conv()
    buffer, token = domain.buffer(model)
    call = Call(domain, token)
    assert call.status(model, [call.buffer], [call.shared()], way) == FAILED
    assert call.status(model, [call.shared()], [call.buffer], way) == NONE
    assert call.status(model, [call.buffer], [call.shared()], way) == NONE
    del buffer


def test_one_buffer_in_two_places(domain: Domain, way: Way) -> None:
    model = domain.conv(count=2)
    buffer, token = domain.buffer(model, [0, 1], [0, 1])
    domain.fill(buffer)
    call = Call(domain, token)
    assert call.status(model, [call.buffer, call.shared()], [call.buffer, call.shared()], way) == INVALID
    assert call.status(model, [call.shared(), call.shared()], [call.buffer, call.buffer], way) == INVALID
    domain.fill(buffer)
    assert call.status(model, [call.buffer, call.buffer], [call.shared(), call.shared()], way) == NONE


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.value)
def test_dimensions_that_contradict_a_buffer(domain: Domain, way: Way) -> None:
    """Fenced executions know no outputs of unknown size."""
    model = domain.conv(UNKNOWN)
    buffer, token = domain.buffer(model, dims=DIMS)
    domain.fill(buffer)
    call = Call(domain, token)
    contradicting = replace(call.buffer, dimensions=TWICE)
    assert call.status(model, [contradicting], [call.shared(TWICE)], way) == INVALID
    assert call.status(model, [call.shared(TWICE)], [contradicting], way) == INVALID
    assert call.status(model, [call.shared(TWICE)], [call.buffer], way) == FAILED

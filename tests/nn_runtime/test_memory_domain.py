# SPDX-License-Identifier: Apache-2.0
"""Where device memory is allocated (AOSP TestMemoryDomain: SinglePartition, MultiplePartitions, DynamicShape)."""

from __future__ import annotations

import gc
import weakref
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.errors import BadData, OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, HalError, Operand
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.memory_domain import Domain
from nn_runtime.model import Model
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, scalar, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.compilation import Compilation
    from nn_runtime.hal.interfaces import IBuffer, IPreparedModel
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import BufferDesc, BufferRole
    from nn_runtime.operand import Dimensions

ADD, SUB, MUL = OperationCode.ADD, OperationCode.SUB, OperationCode.MUL


class Reply(Enum):
    """What a driver makes of a wish for memory."""

    OK = auto()
    BAD_TOKEN = auto()
    NO_BUFFER = auto()
    BAD_STATUS = auto()
    NOT_SUPPORTED = auto()
    CRASH = auto()


class Allocating(SampleDevice):
    """A device with a reply."""

    def __init__(self, name: str, operations: set[int], level: int, reply: Reply) -> None:
        super().__init__(name, operations, feature_level=level)
        self.reply = reply

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        if self.reply == Reply.CRASH:
            raise ValueError("no")
        if self.reply in (Reply.BAD_STATUS, Reply.NOT_SUPPORTED):
            bad = self.reply == Reply.BAD_STATUS
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE if bad else ErrorStatus.GENERAL_FAILURE, "not now")
        buffer, token = super().allocate(desc, prepared_models, input_roles, output_roles)
        if self.reply == Reply.NO_BUFFER:
            return None, token  # type: ignore[return-value]
        return buffer, 0 if self.reply == Reply.BAD_TOKEN else token


def example() -> Model:
    """o0 = (a + b) - c of [2], o1 = b * d of unknown size: a is ADD's alone, b is ADD's and MUL's."""
    model = Model()
    a, b, c, t, o0 = (model.add_operand(tensor(2)) for _ in range(5))
    d, o1 = (model.add_operand(tensor(0)) for _ in range(2))
    model.add_operation(ADD, [a, b, scalar(model, 0)], [t])
    model.add_operation(SUB, [t, c, scalar(model, 0)], [o0])
    model.add_operation(MUL, [b, d, scalar(model, 0)], [o1])
    model.identify_inputs_and_outputs([a, b, c, d], [o0, o1])
    model.finish()
    return model


def allocate(compilation: Compilation, inputs: Sequence[int], outputs: Sequence[int]) -> Memory:
    desc = MemoryDesc()
    for index in inputs:
        desc.add_input_role(compilation, index, 1.0)
    for index in outputs:
        desc.add_output_role(compilation, index, 1.0)
    desc.finish()
    return Memory.from_desc(desc)


CHOICES = [(FeatureLevel.HAL_1_2, Reply.NOT_SUPPORTED), *((FeatureLevel.LEVEL_8, reply) for reply in Reply)]


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(("level", "reply"), CHOICES)
class TestDomain:
    def test_single_partition(self, level: int, reply: Reply, explicit: bool) -> None:
        compilation = finished(example(), [Allocating("all", {ADD, SUB, MUL}, level, reply)], not explicit)
        self._check(compilation, [0], [0], reply, explicit)

    def test_multiple_partitions(self, level: int, reply: Reply, explicit: bool) -> None:
        devices = [Allocating(code.name, {code}, level, reply) for code in (ADD, SUB, MUL)]
        compilation = finished(example(), devices, not explicit)
        self._check(compilation, [0], [], reply, explicit)
        self._check(compilation, [1], [], Reply.NOT_SUPPORTED, explicit)
        self._check(compilation, [0, 2], [], Reply.NOT_SUPPORTED, explicit)

    def test_dynamic_shape(self, level: int, reply: Reply, explicit: bool) -> None:
        compilation = finished(example(), [Allocating("all", {ADD, SUB, MUL}, level, reply)], not explicit)
        if reply == Reply.OK:
            assert allocate(compilation, [], [1]).buffer is not None
        else:
            with pytest.raises(OperationFailed, match="device memory"):
                allocate(compilation, [], [1])

    @staticmethod
    def _check(
        compilation: Compilation, inputs: Sequence[int], outputs: Sequence[int], reply: Reply, explicit: bool
    ) -> None:
        if reply == Reply.OK:
            memory = allocate(compilation, inputs, outputs)
            assert memory.buffer is not None
            assert memory.shared is None
        elif explicit:
            with pytest.raises(OperationFailed, match="device memory"):
                allocate(compilation, inputs, outputs)
        else:
            memory = allocate(compilation, inputs, outputs)
            assert memory.buffer is None
            assert memory.size_bytes == 8


class Failing:
    """A driver's buffer of which one method fails."""

    def __init__(self, inner: IBuffer, method: str) -> None:
        self._inner, self._method = inner, method

    def copy_to(self, destination: SharedMemory) -> None:
        self._fail_in("copy_to")
        self._inner.copy_to(destination)

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        self._fail_in("copy_from")
        self._inner.copy_from(source, dimensions)

    def close(self) -> None:
        self._fail_in("close")
        self._inner.close()

    def _fail_in(self, method: str) -> None:
        if method == self._method:
            raise ValueError("driver bug")


def failing_memory(method: str) -> Memory:
    """Device memory with data, of which one method fails from now on."""
    memory = allocate(finished(example(), [SampleDevice("all", {ADD, SUB, MUL})]), [0], [])
    with Memory.from_array(np.ones(2, np.float32)) as source:
        Memory.copy(source, memory)
    assert memory.buffer is not None
    memory.buffer = Failing(memory.buffer, method)
    return memory


def test_a_copy_that_the_driver_fails_leaves_no_data() -> None:
    memory = failing_memory("copy_from")
    assert memory.domain is not None
    with (
        Memory.from_array(np.ones(2, np.float32)) as source,
        pytest.raises(OperationFailed, match="memory copy: copy_from: the driver failed with ValueError: driver bug"),
    ):
        Memory.copy(source, memory)
    assert not memory.domain.initialized


def test_a_copy_out_that_the_driver_fails() -> None:
    memory = failing_memory("copy_to")
    with (
        Memory.from_array(np.ones(2, np.float32)) as target,
        pytest.raises(OperationFailed, match="memory copy: copy_to: the driver failed with ValueError: driver bug"),
    ):
        Memory.copy(memory, target)
    with pytest.raises(OperationFailed, match="driver bug"):
        memory.to_array(np.float32, (2,))
    assert memory.domain is not None
    assert memory.domain.initialized


def test_memory_that_the_driver_fails_to_close_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    memory = failing_memory("close")
    memory.close()
    assert memory.is_closed
    assert "close of a buffer: the driver failed with ValueError: driver bug" in caplog.text


@pytest.mark.parametrize("method", ["copy_to", "copy_from"])
def test_a_fallback_whose_buffers_the_driver_fails(method: str) -> None:
    device = SampleDevice("sample")
    compilation = finished(chain_model([OperationCode.RELU]), [device], fallback=True)
    memory = allocate(compilation, [0] if method == "copy_to" else [], [] if method == "copy_to" else [0])
    with Memory.from_array(np.ones((2, 3), np.float32)) as source:
        Memory.copy(source, memory)
    assert memory.buffer is not None
    memory.buffer = Failing(memory.buffer, method)
    device.script.execute = ErrorStatus.GENERAL_FAILURE
    execution, array = Execution(compilation), np.ones((2, 3), np.float32)
    if method == "copy_to":
        execution.set_input_from_memory(0, memory)
        execution.set_output(0, array)
    else:
        execution.set_input(0, array)
        execution.set_output_from_memory(0, memory)
    with pytest.raises(OperationFailed, match=f"{method}: the driver failed with ValueError: driver bug"):
        execution.compute()


class Ended:
    """A run that wrote some memory."""

    def __init__(self, domain: Domain, dimensions: Dimensions | None) -> None:
        self.domain, self.dimensions = domain, dimensions
        self.is_over = self.has_told = False
        domain.begun(self)

    def see_end(self) -> bool:
        if self.is_over and not self.has_told:
            self.has_told = True
            if self.dimensions:
                self.domain.written(self.dimensions, self)
            else:
                self.domain.spoiled(self)
        return self.is_over


def test_what_memory_holds_is_of_the_last_run_that_ended() -> None:
    domain = Domain(frozenset(), Operand(OperandCode.TENSOR_FLOAT32, (0, 2)), (0, 2))
    first, second = Ended(domain, (3, 2)), Ended(domain, (4, 2))
    assert (domain.initialized, domain.current) == (False, (0, 2))
    first.is_over = True
    assert (domain.initialized, domain.current) == (True, (3, 2))
    second.is_over = True
    assert (domain.initialized, domain.current) == (True, (4, 2))
    third, fourth = Ended(domain, (5, 2)), Ended(domain, (6, 2))
    third.is_over = fourth.is_over = True
    fourth.see_end()  # somebody waited for that one alone
    third.see_end()
    assert (domain.initialized, domain.current) == (True, (6, 2))
    failed, fifth = Ended(domain, None), Ended(domain, (5, 2))
    failed.is_over = fifth.is_over = True
    fifth.see_end()
    failed.see_end()
    assert (domain.initialized, domain.current) == (True, (5, 2))
    unseen = Ended(domain, (7, 2))
    unseen.is_over = True
    domain.written((8, 2))  # by a run that ended within its call
    assert (domain.initialized, domain.current) == (True, (8, 2))
    failed = Ended(domain, None)
    failed.is_over = True
    assert not domain.initialized


def test_a_run_that_may_still_write_hides_what_a_later_one_has_written() -> None:
    domain = Domain(frozenset(), Operand(OperandCode.TENSOR_FLOAT32, (0, 2)), (0, 2))
    first, second = Ended(domain, (3, 2)), Ended(domain, (4, 2))
    second.is_over = True
    assert not domain.initialized
    first.is_over = True
    assert (domain.initialized, domain.current) == (True, (4, 2))


def test_a_run_that_has_ended_is_let_go() -> None:
    """With its execution, and what is bound to that."""
    domain = Domain(frozenset(), Operand(OperandCode.TENSOR_FLOAT32, (0, 2)), (0, 2))
    run = Ended(domain, (3, 2))
    run.is_over = True
    assert domain.initialized
    known = weakref.ref(run)
    del run
    gc.collect()
    assert known() is None


def test_a_result_that_contradicts_the_memory_is_no_data() -> None:
    domain = Domain(frozenset(), Operand(OperandCode.TENSOR_FLOAT32, (0, 2)), (0, 2))
    domain.written((3, 2))
    with pytest.raises(OperationFailed, match=r"device memory: dimensions \[3, 4\] contradict \[0, 2\]"):
        domain.written((3, 4))
    assert not domain.initialized


def test_what_memory_was_made_for_is_said_of_the_compilation_at_hand() -> None:
    compilation, other = (finished(chain_model([OperationCode.RELU]), [SampleDevice("sample")]) for _ in range(2))
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.add_output_role(other, 0, 1.0)
    desc.finish()
    memory = Memory.from_desc(desc)
    with pytest.raises(BadData, match="output 0: this device memory was made for input 0 of this compilation, not for"):
        Execution(compilation).set_output_from_memory(0, memory)
    third = finished(chain_model([OperationCode.RELU]), [SampleDevice("sample")])
    with pytest.raises(BadData, match="input 0: this device memory was made for other compilations, not for this use"):
        Execution(third).set_input_from_memory(0, memory)

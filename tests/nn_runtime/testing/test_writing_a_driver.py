# SPDX-License-Identifier: Apache-2.0
"""The code of docs/WRITING_A_DRIVER.md: it runs as it stands there, and its drivers do what drivers must."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.errors import BadData, OutputInsufficientSize
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.testing.conformance import Through, Verdict, make_runner, run_example
from tests.nn_runtime.graphs import add_model, chain_model, finished, numbers, run, tensor
from tests.nn_runtime.hal.models import add_model as hal_add_model
from tests.operations.cases import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "WRITING_A_DRIVER.md"
NAMES = ("MinimalDevice", "TableDevice", "BufferDevice", "CachingDevice")


@pytest.fixture(scope="module")
def page() -> Iterator[types.ModuleType]:
    """The Python blocks of the page, executed one after the other as one module."""
    module = types.ModuleType("writing_a_driver")
    sys.modules[module.__name__] = module
    text = PAGE.read_text(encoding="utf-8")
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        lines_before = text[: found.start(1)].count("\n")
        exec(compile("\n" * lines_before + found.group(1), str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


@pytest.fixture(params=NAMES)
def device(request: pytest.FixtureRequest, page: types.ModuleType) -> Any:
    return getattr(page, request.param)()


def test_they_compute(device: Any) -> None:
    (result,) = run(finished(add_model(), [device]), [numbers(2, 3), numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, 2 * numbers(2, 3))


def test_they_take_their_part_of_a_model(page: types.ModuleType) -> None:
    codes = [OperationCode.TANH, OperationCode.SIN, OperationCode.FLOOR]
    compilation = finished(chain_model(codes), [page.TableDevice()], fallback=True)
    assert compilation.plan is not None
    assert [step.device.name for step in compilation.plan.steps] == [
        "example-table",
        "nnapi-reference",
        "example-table",
    ]
    (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
    np.testing.assert_array_equal(result, np.floor(np.sin(np.tanh(numbers(2, 3)))))


def test_they_say_why_not(device: Any) -> None:
    with pytest.raises(BadData, match="it takes ADD alone"):
        finished(chain_model([OperationCode.LOGISTIC]), [device])


def test_they_refuse_what_is_not_valid(device: Any) -> None:
    model = hal_add_model()
    broken = replace(model, main=replace(model.main, output_indexes=()))
    for call in (
        lambda: device.get_supported_operations(broken),
        lambda: device.prepare_model(broken, ExecutionPreference(1), Priority(1), None, None),
        lambda: device.prepare_model(model, 7, Priority(1), None, None),
    ):
        with pytest.raises(HalError) as caught:
            call()
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_results_of_unknown_size(device: Any) -> None:
    compilation = finished(add_model((0, 3)), [device])
    for rows, fits in ((2, True), (1, False)):
        execution = Execution(compilation)
        for at in range(2):
            execution.set_input(at, numbers(2, 3), tensor(2, 3))
        output = np.zeros((rows, 3), np.float32)
        execution.set_output(0, output)
        if fits:
            execution.compute()
            np.testing.assert_allclose(output, 2 * numbers(2, 3))
        else:
            with pytest.raises(OutputInsufficientSize):
                execution.compute()
        assert execution.get_output_operand_dimensions(0) == (2, 3)


def test_memory_of_their_own(page: types.ModuleType) -> None:
    compilation = finished(add_model(), [page.BufferDevice()])
    desc = MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    memory = Memory.from_desc(desc)
    assert memory.buffer is not None
    first = Execution(compilation)
    first.set_input(0, numbers(2, 3))
    first.set_input(1, numbers(2, 3))
    first.set_output_from_memory(0, memory)
    first.compute()
    second = Execution(compilation)
    second.set_input_from_memory(0, memory)
    second.set_input(1, numbers(2, 3))
    output = np.zeros((2, 3), np.float32)
    second.set_output(0, output)
    second.compute()
    np.testing.assert_allclose(output, 3 * numbers(2, 3), rtol=1e-6)


def test_caches(page: types.ModuleType, tmp_path: Path) -> None:
    def compiled(device: Any) -> None:
        compilation = Compilation(add_model(), [Device(device)])
        compilation.set_caching(tmp_path, bytes(32))
        compilation.finish()
        (result,) = run(compilation, [numbers(2, 3), numbers(2, 3)], [(2, 3)])
        np.testing.assert_allclose(result, 2 * numbers(2, 3))

    class Counting(page.CachingDevice):  # type: ignore[name-defined,misc]
        prepared = 0

        def prepare_model(self, *options: object) -> object:
            Counting.prepared += 1
            return super().prepare_model(*options)

    compiled(Counting())
    compiled(Counting())
    assert Counting.prepared == 1
    (stored,) = tmp_path.iterdir()
    content = bytearray(stored.read_bytes())
    content[40] ^= 1
    stored.write_bytes(content)
    compiled(Counting())
    assert Counting.prepared == 2


@pytest.mark.parametrize("through", Through)
def test_no_way_to_run_examples_fails(device: Any, through: Through) -> None:
    cases = [case for case in examples() if case.main_op == "ADD" and "float32" in case.name]
    runner = make_runner(Device(device), through)
    results = [run_example(case, kind, runner) for case in cases for kind in case.kinds]
    assert [f"{one.example} {one.kind}: {one.message}" for one in results if one.verdict == Verdict.FAILED] == []
    assert results


@pytest.mark.parametrize("through", [Through.HAL, Through.NDK, Through.DOMAINS])
def test_examples_that_are_not_taken_say_why(device: Any, through: Through) -> None:
    case = next(case for case in examples() if case.main_op == "SOFTMAX")
    result = run_example(case, case.kinds[0], make_runner(Device(device), through))
    assert (result.verdict, result.message) == (Verdict.UNSUPPORTED, "operation 0 SOFTMAX: it takes ADD alone")

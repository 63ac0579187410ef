# SPDX-License-Identifier: Apache-2.0
"""Compilation caching in the runtime (AOSP TestCompilationCaching, CacheTest, TestValidation SetCaching)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.caching import CacheInfo, file_paths, step_token
from nn_runtime.codes import OperationCode, PreferenceCode, PriorityCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.errors import BadData, BadState, OperationFailed, UnexpectedNull
from nn_runtime.hal.dynamic_quantization import with_permission
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, Priority
from nn_runtime.model import Model
from nn_runtime.network import Network
from nn_runtime.testing.sample_drivers import SampleDevice
from nn_runtime.trial import keep_result, kept_result
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.graphs import chain_model, flag, if_model, numbers, refer, run, tensor, unary_model
from tests.nn_runtime.test_execution_attributes import NAME, Attributed
from tests.nn_runtime.test_partition import plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal import types as hal

RELU, TANH, LOGISTIC = OperationCode.RELU, OperationCode.TANH, OperationCode.LOGISTIC
TOKEN = bytes(range(32))


def caching_device(
    name: str = "sample", operations: set[int] | None = None, counts: tuple[int, int] = (1, 2), version: str = "1"
) -> SampleDevice:
    device = SampleDevice(name, operations, version=version)
    device.script.cache_files = counts
    return device


def compiled(
    devices: Sequence[SampleDevice],
    directory: Path | None,
    token: bytes = TOKEN,
    model: Model | None = None,
    preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
    priority: int = PriorityCode.MEDIUM,
) -> Compilation:
    selection = Selection((*(Device(device) for device in devices), reference_device()), False)
    compilation = Compilation.for_selection(model or chain_model([RELU, TANH]), selection)
    if directory is not None:
        compilation.set_caching(directory, token)
    compilation.set_preference(preference)
    compilation.set_priority(priority)
    compilation.finish()
    return compilation


def ways(device: SampleDevice) -> list[str]:
    return [way if cache is not None else f"{way} without files" for way, cache in device.record.caches]


def test_arguments_of_set_caching(tmp_path: Path) -> None:
    compilation = Compilation(chain_model([RELU]), [reference_device()])
    for directory, token in ((None, TOKEN), (tmp_path, None)):
        with pytest.raises(UnexpectedNull):
            compilation.set_caching(directory, token)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="32 bytes, got 31"):
        compilation.set_caching(tmp_path, TOKEN[1:])
    compilation.set_caching(str(tmp_path), TOKEN)
    compilation.finish()
    with pytest.raises(BadState):
        compilation.set_caching(tmp_path, TOKEN)


@pytest.mark.parametrize("count", [0, 1, 32])
@pytest.mark.parametrize("kind", [0, 1])
def test_a_device_may_need_32_files_of_each_kind(count: int, kind: int) -> None:
    counts = (count, 0) if kind == 0 else (0, count)
    assert Device(caching_device(counts=counts)).cache_files == counts


@pytest.mark.parametrize("counts", [(33, 0), (0, 33), (33, 33), (-1, 0)])
def test_a_device_that_needs_too_many_files_is_not_registered(counts: tuple[int, int]) -> None:
    with pytest.raises(OperationFailed, match="cache files"):
        Device(caching_device(counts=counts))


class SilentDevice(SampleDevice):
    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        raise OSError("no answer")


def test_a_device_that_does_not_tell_its_files_is_not_registered() -> None:
    with pytest.raises(OperationFailed, match="does not answer"):
        Device(SilentDevice("silent"))


def test_file_names() -> None:
    info = CacheInfo(Path("folder"), TOKEN)
    (path,) = file_paths(info, bytes([0x10, 0xF2]) + bytes(30), "2", 1)
    assert path == Path("folder") / ("ABCP" + "A" * 60 + "20")


@pytest.mark.parametrize("counts", [(1, 0), (0, 1), (1, 2), (32, 32)])
def test_files_are_written_and_read_again(tmp_path: Path, counts: tuple[int, int]) -> None:
    device = caching_device(counts=counts)
    compiled([device], tmp_path)
    files = sorted(tmp_path.iterdir())
    assert ways(device) == ["model"]
    assert len(files) == sum(counts)
    token = plan_of(compiled([device], tmp_path)).steps[0].cache_token
    assert token is not None
    info = CacheInfo(tmp_path, TOKEN)
    assert files == sorted(file_paths(info, token, "1", counts[0]) + file_paths(info, token, "2", counts[1]))
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert ways(device) == ["model", "cache"]
    cache = device.record.caches[-1][1]
    assert cache is not None
    assert (len(cache.model_files), len(cache.data_files), cache.token) == (*counts, token)
    (result,) = run(compiled([device], tmp_path), [numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, np.tanh(np.maximum(numbers(2, 3), 0)), rtol=1e-6)


def test_no_token_no_support_no_caching(tmp_path: Path) -> None:
    device = caching_device()
    compiled([device], None)
    assert ways(device) == ["model without files"]
    without = caching_device(counts=(0, 0))
    compiled([without], tmp_path)
    assert ways(without) == ["model without files"]
    assert not list(tmp_path.iterdir())
    assert plan_of(compiled([without], tmp_path)).steps[0].cache_token is None


@pytest.mark.parametrize("status", [ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT])
def test_a_refused_cache_is_prepared_and_saved_anew(tmp_path: Path, status: ErrorStatus) -> None:
    device = caching_device()
    compiled([device], tmp_path)
    device.script.from_cache = status
    compiled([device], tmp_path)
    assert ways(device) == ["model", "cache", "model"]


def test_a_missing_file_never_leads_to_prepare_from_cache(tmp_path: Path) -> None:
    device = caching_device()
    compiled([device], tmp_path)
    next(tmp_path.iterdir()).unlink()
    compiled([device], tmp_path)
    compiled([device], tmp_path)
    assert ways(device) == ["model", "model", "cache"]


def test_a_damaged_file_is_refused_by_the_driver_and_replaced(tmp_path: Path) -> None:
    device = caching_device()
    compiled([device], tmp_path)
    file = sorted(tmp_path.iterdir())[0]
    file.write_bytes(file.read_bytes()[:-1])
    compiled([device], tmp_path)
    compiled([device], tmp_path)
    assert ways(device) == ["model", "cache", "model", "cache"]


def test_files_that_cannot_be_made_mean_no_caching(tmp_path: Path) -> None:
    device = caching_device()
    compiled([device], tmp_path / "missing")
    assert ways(device) == ["model without files"]


def token_of(devices: Sequence[SampleDevice], tmp_path: Path, step: int = 0, **options: object) -> bytes | None:
    tokens = {plan_of(compiled(devices, tmp_path, **options)).steps[step].cache_token for _ in range(3)}  # type: ignore[arg-type]
    assert len(tokens) == 1
    return tokens.pop()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("place", ["a pipe", "a link"])
def test_pipes_are_not_waited_for_and_links_not_followed(tmp_path: Path, place: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "cache").mkdir()
    compiled([caching_device()], tmp_path / "cache")
    planted = min((tmp_path / "cache").iterdir())
    planted.unlink()
    if place == "a pipe":
        os.mkfifo(planted)
    else:
        planted.symlink_to(precious)
    device = caching_device()
    compiled([device], tmp_path / "cache")
    assert ways(device) == ["model without files"]
    assert precious.read_text() == "mine"


def test_a_pipe_in_place_of_the_kept_placement(tmp_path: Path) -> None:
    info, devices = CacheInfo(tmp_path, TOKEN), (reference_device(),)
    keep_result(info, devices, ExecutionPreference.FAST_SINGLE_ANSWER, "split")
    assert kept_result(info, devices, ExecutionPreference.FAST_SINGLE_ANSWER) == "split"
    (path,) = tmp_path.iterdir()
    if hasattr(os, "mkfifo"):
        path.unlink()
        os.mkfifo(path)
        assert kept_result(info, devices, ExecutionPreference.FAST_SINGLE_ANSWER) is None


def test_a_placement_is_kept_for_the_attributes_that_it_was_found_with(tmp_path: Path) -> None:
    info, devices = CacheInfo(tmp_path, TOKEN), (reference_device(),)
    how = ExecutionPreference.FAST_SINGLE_ANSWER
    keep_result(info, devices, how, "split", with_permission((), True))
    assert kept_result(info, devices, how, with_permission((), True)) == "split"
    assert kept_result(info, devices, how, with_permission((), False)) is None
    assert kept_result(info, devices, how) is None


def test_a_placement_is_kept_for_the_version_of_the_driver(tmp_path: Path) -> None:
    info, how = CacheInfo(tmp_path, TOKEN), ExecutionPreference.FAST_SINGLE_ANSWER
    old, new = ((Device(caching_device(version=version)),) for version in ("1", "2"))
    keep_result(info, old, how, "split")
    assert kept_result(info, old, how) == "split"
    assert kept_result(info, new, how) is None


def test_a_token_tells_where_the_path_of_an_operation_ends(tmp_path: Path) -> None:
    info, device = CacheInfo(tmp_path, TOKEN), Device(caching_device())
    tokens = {
        step_token(info, device, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, paths)
        for paths in ([(0,), (1,), (2,)], [(0, 1), (2,)], [(0,), (1, 2)], [(0, 1, 2)])
    }
    assert len(tokens) == 4


def test_tokens_of_simple_plans_differ(tmp_path: Path) -> None:
    device = caching_device()
    tokens = [
        token_of([device], tmp_path),
        token_of([caching_device("other")], tmp_path),
        token_of([caching_device(version="2")], tmp_path),
        token_of([device], tmp_path, preference=PreferenceCode.LOW_POWER),
        token_of([device], tmp_path, preference=PreferenceCode.SUSTAINED_SPEED),
        token_of([device], tmp_path, priority=PriorityCode.LOW),
        token_of([device], tmp_path, priority=PriorityCode.HIGH),
        token_of([device], tmp_path, token=bytes(32)),
    ]
    assert None not in tokens
    assert len(set(tokens)) == len(tokens)


def test_tokens_of_plans_with_other_attributes_differ(tmp_path: Path) -> None:
    def token(*attributes: tuple[int, bytes]) -> bytes | None:
        device = Attributed()
        device.script.cache_files = (1, 2)
        compilation = Compilation(chain_model([RELU]), [Device(device)])
        compilation.set_caching(tmp_path, TOKEN)
        for code, data in attributes:
            compilation.add_extension_attribute(NAME, code, data)
        compilation.finish()
        return plan_of(compilation).steps[0].cache_token

    tokens = [token(), token((1, b"a")), token((2, b"a")), token((1, b"b")), token((1, b"a"), (2, b"a"))]
    assert None not in tokens
    assert len(set(tokens)) == len(tokens)


def test_tokens_of_compound_plans_differ(tmp_path: Path) -> None:
    def pair(name: str = "one", version: str = "1", codes: set[int] | None = None) -> list[SampleDevice]:
        codes = codes or {RELU, LOGISTIC}
        return [
            caching_device(name, codes, version=version),
            caching_device("two", {RELU, TANH, LOGISTIC} - codes, version="1"),
        ]

    model = chain_model([RELU, TANH, LOGISTIC])
    tokens = [
        token_of(pair(), tmp_path, model=model),
        token_of(pair(), tmp_path, 1, model=model),
        token_of(pair(), tmp_path, 2, model=model),
        token_of(pair("other"), tmp_path, model=model),
        token_of(pair(version="2"), tmp_path, model=model),
        token_of(pair(codes={RELU, TANH}), tmp_path, model=model),
        token_of(pair(), tmp_path, model=model, preference=PreferenceCode.LOW_POWER),
        token_of(pair(), tmp_path, model=model, priority=PriorityCode.LOW),
        token_of(pair(), tmp_path, model=model, token=bytes(32)),
    ]
    assert None not in tokens
    assert len(set(tokens)) == len(tokens)


def test_equal_partitions_of_different_branches_have_different_tokens(tmp_path: Path) -> None:
    model = if_model(unary_model(RELU), unary_model(RELU))
    device = caching_device(operations={RELU})
    first, second = (token_of([device], tmp_path, step, model=model) for step in range(2))
    assert None not in (first, second)
    assert first != second


class FirstIf(SampleDevice):
    """A device that takes the first operation of a model whole, if it is an IF, and nothing else."""

    def explain_operations(self, model: hal.Model) -> list[OperationSupport]:
        codes = [operation.type for operation in model.main.operations]
        return [OperationSupport(at == 0 and code == OperationCode.IF) for at, code in enumerate(codes)]


def test_a_branch_keeps_its_token_where_another_if_is_not_interpreted(tmp_path: Path) -> None:
    """The second IF's branches are then the first that are cut, as the first IF's were before."""
    model = Model()
    condition, x, *results = flag(model), *(model.add_operand(tensor(2, 3)) for _ in range(3))
    for result, (then_code, else_code) in zip(results, ((LOGISTIC, TANH), (RELU, OperationCode.NEG)), strict=True):
        branches = [refer(model, unary_model(code)) for code in (then_code, else_code)]
        model.add_operation(OperationCode.IF, [condition, *branches, x], [result])
    model.identify_inputs_and_outputs([condition, x], results)
    model.finish()
    device = caching_device(operations={RELU, TANH, LOGISTIC, OperationCode.NEG})
    compiled([device], tmp_path, model=model)
    compilation = compiled([FirstIf("first"), device], tmp_path, model=model)
    assert sorted(step.device.name for step in plan_of(compilation).steps) == ["first", "sample", "sample"]
    assert ways(device) == ["model"] * 4 + ["cache"] * 2
    first, second = run(compilation, [np.array([True]), numbers(2, 3)], [(2, 3)] * 2)
    np.testing.assert_allclose(first, 1 / (1 + np.exp(-numbers(2, 3))), rtol=1e-6)
    np.testing.assert_array_equal(second, np.maximum(numbers(2, 3), 0))


def test_the_cpu_never_caches(tmp_path: Path) -> None:
    assert plan_of(compiled([], tmp_path)).steps[0].cache_token is None
    assert not list(tmp_path.iterdir())


@needs_descriptors
def test_descriptors_are_closed_again(tmp_path: Path) -> None:
    device = caching_device()
    compiled([device], tmp_path)
    before = open_descriptors()
    for _ in range(5):
        compiled([device], tmp_path)
    assert open_descriptors() <= before


# The high level


def test_a_network_is_kept_under_a_hash_of_all_that_it_is(tmp_path: Path) -> None:
    device = caching_device(counts=(1, 0))
    folder = tmp_path / "a" / "b"
    for codes in ((RELU, TANH), (RELU, TANH), (RELU, LOGISTIC)):
        with Network.from_model(chain_model(list(codes))) as network:
            network.compile([Device(device)], cache_dir=folder).close()
    assert ways(device) == ["model", "cache", "model"]
    assert len(list(folder.iterdir())) == 2


def test_a_network_is_kept_under_a_name(tmp_path: Path) -> None:
    device = caching_device(counts=(1, 0))
    network = Network.from_model(chain_model([RELU]))
    for name in ("one", "two", "one"):
        network.compile([Device(device)], cache_dir=str(tmp_path), model_token=name).close()
    assert ways(device) == ["model", "model", "cache"]
    Network.from_model(chain_model([TANH])).compile([Device(device)], cache_dir=tmp_path, model_token="one").close()
    assert ways(device)[-1] == "model"  # another network by the same name
    with pytest.raises(BadData, match="model_token without cache_dir"):
        network.compile([Device(device)], model_token="one")


def test_a_folder_that_cannot_be_made_means_no_caching(tmp_path: Path) -> None:
    device = caching_device()
    (tmp_path / "file").touch()
    Network.from_model(chain_model([RELU])).compile([Device(device)], cache_dir=tmp_path / "file" / "x").close()
    assert ways(device) == ["model without files"]

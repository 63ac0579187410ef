# SPDX-License-Identifier: Apache-2.0
"""Caches of drivers: saved, read again, damaged, replaced meanwhile (VTS CompilationCachingTests of 1.2 and 1.3).

Drivers are asked how many files they need; beside those under test there are sample drivers that need some. What
cannot be said is a handle of several descriptors: ours are the descriptors themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.devices import select
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import ErrorStatus, Request, RequestArgument
from nn_runtime.hal.versions.server import Served12
from nn_runtime.operand import dtype_of
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.conftest import device_selectors
from tests.nn_runtime.hal.vts.client import CACHING_VERSIONS, CacheFiles, Client, everywhere, execute, form, ways_of
from tests.nn_runtime.hal.vts.models import argument_operand, chain_model, conv_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.hal.types import Model
    from nn_runtime.hal.versions.served_model import ServedPreparedModel10
    from nn_runtime.operand import Array
    from tests.nn_runtime.hal.vts.client import Preparation

SAMPLES = {"one of each": (1, 1), "several": (3, 2), "data alone": (0, 2), "models alone": (2, 0)}
TYPES = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM)
CHAIN = 20
RACES = 4
LONG_RACES = 100
SEEDS = range(10)
FAILED, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT


@dataclass
class Cached:
    """A driver with the files that it asks for, in a folder."""

    client: Client
    type: OperandCode
    folder: Path
    token: bytes = bytes(32)
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        driver = self.client.driver
        assert isinstance(driver, Served12)
        status, self.model_count, self.data_count = driver.get_number_of_cache_files_needed()
        assert status == ErrorStatus.NONE
        self.model_paths = [self.folder / f"model{i}" for i in range(self.model_count)]
        self.data_paths = [self.folder / f"data{i}" for i in range(self.data_count)]
        for path in (*self.model_paths, *self.data_paths, self.extra):
            path.touch()

    @property
    def is_supported(self) -> bool:
        return bool(self.model_count or self.data_count)

    @property
    def extra(self) -> Path:
        return self.folder / "extra"

    def open(self, path: Path, mode: int = os.O_RDWR) -> int:
        descriptor = os.open(path, mode)
        self.opened.callback(os.close, descriptor)
        return descriptor

    def files(self, modes: dict[Path, int] | None = None) -> CacheFiles:
        """Open all files, each in its mode."""
        given = modes or {}
        model = tuple(self.open(path, given.get(path, os.O_RDWR)) for path in self.model_paths)
        data = tuple(self.open(path, given.get(path, os.O_RDWR)) for path in self.data_paths)
        return CacheFiles(model, data, self.token)

    def save(self, model: Model, files: CacheFiles | None = None) -> ServedPreparedModel10:
        """Prepare with files, which always succeeds."""
        found = self.client.prepare(form(model, self.client.version), files=files or self.files())
        assert (found.launch, found.status) == (ErrorStatus.NONE, ErrorStatus.NONE)
        assert found.prepared is not None
        return found.prepared

    def load(self, files: CacheFiles | None = None) -> Preparation:
        return self.client.prepare_from_cache(files or self.files())

    def network(self) -> Model:
        return conv_model(argument_operand(self.type, (1, 4, 4, 8)), 2)

    def chain(self, code: OperationCode) -> Model:
        return chain_model(code, self.type, CHAIN)

    def check_network(self, prepared: ServedPreparedModel10 | None) -> None:
        """Check that both convolutions give what they take."""
        values = np.arange(128).astype(dtype_of(self.type))
        self._check(prepared, [values, values[::-1]], [values, values[::-1]])

    def check_chain(self, prepared: ServedPreparedModel10 | None) -> None:
        """Check that it is the chain of additions."""
        one = np.array([1], dtype_of(self.type))
        self._check(prepared, [one], [one + CHAIN])

    def _check(self, prepared: ServedPreparedModel10 | None, inputs: list[Array], wanted: list[Array]) -> None:
        assert prepared is not None
        for way in ways_of(self.client.version):
            pools = [SharedMemory.create(data.nbytes) for data in (*inputs, *wanted)]
            for pool, data in zip(pools, inputs, strict=False):
                pool.array()[:] = np.ascontiguousarray(data).view(np.uint8)
            arguments = tuple(RequestArgument(location=everywhere(i, pool.size_bytes)) for i, pool in enumerate(pools))
            request = Request(arguments[: len(inputs)], arguments[len(inputs) :], tuple(pools))
            assert execute(prepared, request, way).status == ErrorStatus.NONE
            for pool, data in zip(pools[len(inputs) :], wanted, strict=True):
                np.testing.assert_allclose(pool.array().view(data.dtype), data, atol=1e-5, rtol=1e-5)


def driver(name: str) -> IDevice:
    if name not in SAMPLES:
        return select(name).devices[0].hal
    device = SampleDevice(name)
    device.script.cache_files = SAMPLES[name]
    return device


@pytest.fixture(
    params=[
        (name, version, code)
        for name in (*device_selectors(), *SAMPLES)
        for version in CACHING_VERSIONS
        for code in TYPES
    ],
    ids=lambda param: f"{param[0]}-{FeatureLevel(param[1]).name}-{OperandCode(param[2]).name}",
)
def cached(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cached]:
    """Every driver, version and operand type."""
    name, version, code = request.param
    made = Cached(Client(driver(name), version), code, tmp_path)
    with made.opened:
        yield made


def check_loaded(cached: Cached, found: Preparation) -> None:
    """Check that a driver with caches found its model, and one without did not."""
    if cached.is_supported:
        assert found.status == ErrorStatus.NONE
        cached.check_network(found.prepared)
    else:
        assert (found.status, found.prepared) == (FAILED, None)


def check_not_loaded(found: Preparation, *statuses: int) -> None:
    assert found.status in (statuses or (FAILED, INVALID))
    assert found.prepared is None


def test_saved_and_read_again(cached: Cached) -> None:
    cached.check_network(cached.save(cached.network()))
    check_loaded(cached, cached.load())


def test_whatever_the_position_in_the_file(cached: Cached) -> None:
    files = cached.files()
    for descriptor in (*files.model, *files.data):
        assert os.write(descriptor, b"\0\0") == 2
    cached.save(cached.network(), files)
    files = cached.files()
    for descriptor in (*files.model, *files.data):
        os.read(descriptor, 1)
    check_loaded(cached, cached.load(files))


def wrong_numbers(cached: Cached) -> list[CacheFiles]:
    """Return one file more, or less, of each kind."""
    files = cached.files()
    more = (cached.open(cached.extra),)
    found = [replace(files, model=files.model + more), replace(files, data=files.data + more)]
    found += [replace(files, model=files.model[:-1])] if files.model else []
    found += [replace(files, data=files.data[:-1])] if files.data else []
    return found


def closed_descriptors(cached: Cached) -> Iterator[CacheFiles]:
    """Yield the files with one whose handle holds no open descriptor."""
    files = cached.files()
    for i in range(len(files.model)):
        yield replace(files, model=(*files.model[:i], -1, *files.model[i + 1 :]))
    for i in range(len(files.data)):
        yield replace(files, data=(*files.data[:i], -1, *files.data[i + 1 :]))


@pytest.mark.parametrize("wrong", [wrong_numbers, closed_descriptors])
def test_saving_into_wrong_files(cached: Cached, wrong: Callable[[Cached], Iterator[CacheFiles]]) -> None:
    for files in wrong(cached):
        cached.check_network(cached.save(cached.network(), files))
        check_not_loaded(cached.load(files))


@pytest.mark.parametrize("wrong", [wrong_numbers, closed_descriptors])
def test_reading_from_wrong_files(cached: Cached, wrong: Callable[[Cached], Iterator[CacheFiles]]) -> None:
    cached.save(cached.network())
    for files in wrong(cached):
        check_not_loaded(cached.load(files))


def test_saving_into_files_that_cannot_be_written(cached: Cached) -> None:
    for path in (*cached.model_paths, *cached.data_paths):
        files = cached.files({path: os.O_RDONLY})
        cached.check_network(cached.save(cached.network(), files))
        check_not_loaded(cached.load(files))


def test_reading_from_files_that_cannot_be_read(cached: Cached) -> None:
    cached.save(cached.network())
    for path in (*cached.model_paths, *cached.data_paths):
        check_not_loaded(cached.load(cached.files({path: os.O_WRONLY})), FAILED)


@contextlib.contextmanager
def replacing(cached: Cached, folder: Path) -> Iterator[None]:
    """Replace the model files by others in a thread meanwhile."""

    def copy() -> None:
        for path in cached.model_paths:
            path.write_bytes((folder / path.name).read_bytes())

    thread = threading.Thread(target=copy)
    thread.start()
    yield
    thread.join()


def save_products(cached: Cached) -> Path:
    """Save the chain of products and return where its model files are; the token is another one afterwards."""
    cached.save(cached.chain(OperationCode.MUL))
    folder = cached.folder / "products"
    folder.mkdir()
    for path in cached.model_paths:
        shutil.copy(path, folder)
    cached.token = bytes([cached.token[0] + 1]) + cached.token[1:]
    return folder


def check_sums_or_nothing(cached: Cached, found: Preparation) -> None:
    if found.status == ErrorStatus.NONE:
        cached.check_chain(found.prepared)
    else:
        assert found.prepared is None


@pytest.mark.parametrize("while_saving", [True, False])
def test_files_replaced_meanwhile(cached: Cached, while_saving: bool, is_long: bool) -> None:
    """Whatever is read, it is the right model or nothing."""
    if not cached.is_supported:
        return
    folder = save_products(cached)
    sums = cached.chain(OperationCode.ADD)
    for _ in range(LONG_RACES if is_long else RACES):
        with replacing(cached, folder) if while_saving else contextlib.nullcontext():
            cached.save(sums)
        with contextlib.nullcontext() if while_saving else replacing(cached, folder):
            found = cached.load()
        check_sums_or_nothing(cached, found)


def test_model_files_of_another_model(cached: Cached) -> None:
    if not cached.is_supported:
        return
    folder = save_products(cached)
    cached.save(cached.chain(OperationCode.ADD))
    for path in cached.model_paths:
        shutil.copy(folder / path.name, path)
    found = cached.load()
    if cached.model_count:
        check_not_loaded(found, FAILED)
    check_sums_or_nothing(cached, found)


def flip(path: Path, rng: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)


def lengthen(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 257))))


@pytest.mark.parametrize("change", [flip, lengthen])
def test_damaged_files(cached: Cached, change: Callable[[Path, np.random.Generator], None]) -> None:
    """A damaged model file is refused; of a damaged data file a driver may make what it can, but not crash."""
    cached.save(cached.network())
    for path in (*cached.model_paths, *cached.data_paths):
        good = path.read_bytes()
        for seed in SEEDS:
            change(path, np.random.default_rng(seed))
            found = cached.load()
            if path in cached.model_paths:
                check_not_loaded(found, FAILED)
            assert (found.prepared is None) == (found.status != ErrorStatus.NONE)
            path.write_bytes(good)


def test_a_wrong_token(cached: Cached) -> None:
    cached.save(cached.network())
    good = cached.token
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        token = bytearray(good)
        token[rng.integers(len(token))] ^= 1 << int(rng.integers(8))
        cached.token = bytes(token)
        check_not_loaded(cached.load(), FAILED)

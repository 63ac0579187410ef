# SPDX-License-Identifier: Apache-2.0
"""A small model compiled through the NDK level with cache files, what it must answer, and what can happen to files."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import cache_files
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device as RuntimeDevice
from nn_runtime.errors import NNError
from nn_runtime.execution import Execution
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.model import Model
from nn_runtime.operand import OperandType

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.operand import Array

TOKEN = bytes(range(32))
INPUT = np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)
UNITS = 12


class Files:
    """A model and a data file of an application."""

    def __init__(self, folder: Path) -> None:
        self.model, self.data = folder / "model", folder / "data"
        self._opened: list[int] = []

    def request(self, token: bytes = TOKEN) -> CacheRequest:
        fds = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in (self.model, self.data)]
        self._opened += fds
        return CacheRequest((fds[0],), (fds[1],), token)

    def close(self) -> None:
        for fd in self._opened:
            os.close(fd)


def weights(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((UNITS, 8)).astype(np.float32), rng.standard_normal(UNITS).astype(np.float32)


def dense_model(seed: int = 0) -> Model:
    """RELU of a dense layer [2, 8] -> [2, 12], then the logistic function."""
    model = Model()
    tensors = [OperandType(OperandCode.TENSOR_FLOAT32, dims) for dims in ((2, 8), (UNITS, 8), (UNITS,), (2, UNITS))]
    source, matrix, bias, between, result = (model.add_operand(kind) for kind in (*tensors, tensors[-1]))
    fuse = model.add_operand(OperandType(OperandCode.INT32))
    for operand, value in zip((matrix, bias, fuse), (*weights(seed), int(FuseCode.RELU)), strict=True):
        model.set_operand_value(operand, value)
    model.add_operation(OperationCode.FULLY_CONNECTED, [source, matrix, bias, fuse], [between])
    model.add_operation(OperationCode.LOGISTIC, [between], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.finish()
    return model


def wanted(seed: int = 0) -> Array:
    matrix, bias = weights(seed)
    result: Array = 1 / (1 + np.exp(-np.maximum(INPUT @ matrix.T + bias, 0)))
    return result


def compiled(hal: IDevice, folder: Path | str, seed: int = 0, token: bytes = TOKEN) -> Compilation:
    with dense_model(seed) as model:
        compilation = Compilation(model, [RuntimeDevice(hal)])
    compilation.set_caching(folder, token)
    compilation.finish()
    return compilation


def answers_right(compilation: Compilation, seed: int = 0) -> bool:
    result = np.full((2, UNITS), np.nan, np.float32)
    with Execution(compilation) as execution:
        execution.set_input(0, INPUT)
        execution.set_output(0, result)
        execution.compute()
    return bool(np.allclose(result, wanted(seed), rtol=1e-5, atol=1e-6))


def check(hal: IDevice, folder: Path | str, seed: int = 0, token: bytes = TOKEN) -> None:
    """Compile with cache files, run, and check the result."""
    with compiled(hal, folder, seed, token) as compilation:
        assert answers_right(compilation, seed)


def damaged(data: bytes, generator: random.Random) -> bytes:
    """Return other bytes: a bit flipped, cut short, a part zeroed, twice or lengthened."""
    at = generator.randrange(len(data))
    way = generator.randrange(8)
    if way < 4:
        return data[:at] + bytes([data[at] ^ 1 << generator.randrange(8)]) + data[at + 1 :]
    if way < 6:
        return data[:at]
    if way == 6:
        return data[:at] + b"\xff" * len(data[at:])
    return data + data[:at] + b"\0"


def forged(sealed: bytes, generator: random.Random) -> bytes:
    """Return a model file with a header that says something else, sealed as if it were right."""
    payload = cache_files.unseal(sealed)
    assert payload is not None
    (length,) = struct.unpack_from("<I", payload)
    header, rest = payload[4 : 4 + length], payload[4 + length :]
    if generator.random() < 0.4:
        at = generator.randrange(length)
        header = header[:at] + bytes([generator.choice(b'0123456789"[]{},:-.eE')]) + header[at + 1 :]
    else:
        document = json.loads(header)
        _change(document, generator)
        header = json.dumps(document).encode()
    return cache_files.seal(struct.pack("<I", len(header)) + header + rest)


def survives(hal: IDevice, folder: Path | str) -> None:
    """Compile with cache files whose seal is right and whose content is anything; errors may come, nothing worse."""
    try:
        with compiled(hal, folder) as compilation:
            answers_right(compilation)
    except NNError:
        return


def _change(document: object, generator: random.Random) -> None:
    """Change one value somewhere in a document."""
    places: list[tuple[dict[str, object] | list[object], str | int]] = []
    open_parts = [document]
    while open_parts:
        part = open_parts.pop()
        items: list[tuple[str | int, object]] = []
        if isinstance(part, dict):
            items = list(part.items())
        elif isinstance(part, list):
            items = list(enumerate(part))
        for key, value in items:
            places.append((part, key))  # type: ignore[arg-type]
            open_parts.append(value)
    holder, key = generator.choice(places)
    holder[key] = generator.choice(  # type: ignore[index]
        [None, True, -1, 0, 1, 2, 3, 7, 95, 10**9, 2**31, 2**63, 10**30, 0.5, 1e300, "", "ff", [], [[]], {}, [1] * 9]
    )

# SPDX-License-Identifier: Apache-2.0
"""The measured peaks of a device: a few short launches, the best ever seen stored by device and driver.

peaks.cl measures all but matrix units, which peaks_units.cl does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

import kernels_cl
from gpu_driver import cache_files
from gpu_driver.chain.tiles import FEW_REGISTERS
from gpu_driver.discovery.dot_products import AMX
from gpu_driver.discovery.matrix_units import WITHOUT_FLOATS
from nn_runtime.hal.cache_folder import cache_directory
from nn_runtime.hal.files import read_file
from nn_runtime.hal.peaks import Peaks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.kernel import Scalar

SOURCE, UNITS_SOURCE = "peaks.cl", "peaks_units.cl"
_VECTOR = 16
_CHAINS, _FEW_CHAINS = 12, 6
"""Sums of vectors at once; the fewer where registers hold no more (FEW_REGISTERS)."""
_TILE_PRODUCTS = 2 * 16 * 64 * 16
"""Of a work-item and round."""
_UNITS_CHAINS = 8
_UNITS_PRODUCTS, _WARP = {"float": 16 * 8 * 8, "half": 16 * 8 * 16, "uchar": 16 * 8 * 32}, 32
"""Of 32 work-items in one instruction, by type."""
_REPEATS = 7
_TARGET_NS = 4_000_000
"""A launch shall last about that long."""
_MOST_ROUNDS = 1 << 28
_GPU_LOCAL, _GPU_GROUPS_PER_UNIT = 64, 32
_CACHE_BYTES, _MEMORY_BYTES = 128 << 10, 64 << 20
"""For each part on CPU-type devices, and in all."""


def peaks_of(device: DeviceContext) -> Peaks:
    """Return the device's peaks: the most of what is stored for it and what is measured now, which is stored.

    Something else may run at any one time, so that a single measurement can be far too low, but never too high.
    """
    measurement = _Measurement(device)
    path = cache_directory() / "peaks" / f"{measurement.key}.json"
    found = asdict(measurement.run())
    best = {what: max(rate, _stored(path).get(what, 0.0)) for what, rate in found.items()}
    profile = device.profile
    about = {"device": profile.name, "driver": profile.driver_version, "platform": profile.platform_version}
    cache_files.try_write(path, json.dumps({**about, "peaks": best}, indent=1).encode())
    return Peaks(**best)


def _stored(path: Path) -> dict[str, float]:
    """Return the stored peaks by name; empty where there are none, or a damaged file."""
    try:
        return {name: float(value) for name, value in json.loads(read_file(path))["peaks"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return {}


class _Measurement:
    def __init__(self, device: DeviceContext) -> None:
        self._device = device
        profile = device.profile
        self._local = 1 if profile.is_cpu else min(_GPU_LOCAL, profile.max_work_group_size)
        groups = profile.compute_units * (1 if profile.is_cpu else _GPU_GROUPS_PER_UNIT)
        self._items = groups * self._local
        self._chains = _FEW_CHAINS if profile.registers <= FEW_REGISTERS else _CHAINS
        defines = {"DOT4": profile.dot4, "CHAINS": self._chains, "INTERLEAVED": int(not profile.is_cpu)}
        self._program = device.programs.get(SOURCE, defines)

    @property
    def key(self) -> str:
        """Of the device, its driver and the kernels: other kernels may reach more, or count otherwise."""
        if self._device.profile.matrix_units is None:
            return self._program.key
        return hashlib.sha256((self._program.key + kernels_cl.source(UNITS_SOURCE)).encode()).hexdigest()

    def run(self) -> Peaks:
        """Measure and return everything."""
        result = self._device.allocate(self._items * _VECTOR * 4)
        factor, term = np.float32(0.5), np.float32(1)
        kernel = self._program.kernel
        operations = 2 * self._items * _VECTOR * self._chains
        float32 = self._rate(kernel("multiply_add"), operations, lambda rounds: (result.handle, rounds, factor, term))
        float16 = quant8 = float32
        if self._device.profile.matrix_units is not None:
            float16, quant8 = (self._units_rate(element, result.handle) for element in ("half", "uchar"))
            if self._device.profile.matrix_units != WITHOUT_FLOATS:
                float32 = max(float32, self._units_rate("float", result.handle))
        elif self._device.profile.dot4 == AMX:
            products = _TILE_PRODUCTS * self._items
            quant8 = self._rate(kernel("tile_product"), 2 * products, lambda rounds: (result.handle, rounds))
        elif self._device.profile.dot4:
            quant8 = self._rate(kernel("dot_product"), 4 * operations, lambda rounds: (result.handle, rounds))
        return Peaks(float32, float16, quant8, self._copy_rate(_CACHE_BYTES * self._device.profile.compute_units),
                     self._copy_rate(_MEMORY_BYTES))  # fmt: skip

    def _units_rate(self, element: str, result: cl.Buffer) -> float:
        """Return the rate of matrix units, with `result` for as many sums as the other kernels have."""
        level = self._device.profile.matrix_units or 0
        types = {"T": element, "FILTER_T": element}
        program = self._device.programs.get(UNITS_SOURCE, {**types, "MATRIX_UNITS": level, "CHAINS": _UNITS_CHAINS})
        products = _UNITS_PRODUCTS[element] * _UNITS_CHAINS * self._items // _WARP
        return self._rate(program.kernel("unit_product"), 2 * products, lambda rounds: (result, rounds))

    def _copy_rate(self, size_bytes: int) -> float:
        size_bytes = min(size_bytes, self._device.profile.max_alloc_bytes)
        count = max(1, size_bytes // (self._items * _VECTOR * 4))
        moved = count * self._items * _VECTOR * 4
        source, destination = self._device.allocate(moved), self._device.allocate(moved)
        for buffer in (source, destination):
            cl.enqueue_fill_buffer(self._device.profiling_queue, buffer.handle, np.zeros(1, np.uint8), 0, moved)
        return self._rate(
            self._program.kernel("copy"), 2 * moved,
            lambda rounds: (source.handle, destination.handle, np.int32(count), rounds),
        )  # fmt: skip

    def _rate(
        self, kernel: cl.Kernel, per_round: int, arguments: Callable[[Scalar], tuple[cl.Buffer | Scalar, ...]]
    ) -> float:
        """Return the most done in a nanosecond by launches of a kernel whose work grows with its rounds.

        The shortest of several launches says whether the rounds are enough: one may be disturbed at any time.
        """
        rounds = 1
        while True:
            kernel.set_args(*arguments(np.int32(rounds)))
            duration = min(self._duration(kernel) for _ in range(_REPEATS))
            if duration >= _TARGET_NS // 2 or rounds == _MOST_ROUNDS:
                return per_round * rounds / duration
            rounds = min(rounds * max(2, min(64, _TARGET_NS // duration)), _MOST_ROUNDS)

    def _duration(self, kernel: cl.Kernel) -> int:
        """Return the time in ns that one launch takes on the device, at least 1."""
        event = cl.enqueue_nd_range_kernel(self._device.profiling_queue, kernel, (self._items,), (self._local,))
        event.wait()
        return max(1, event.profile.end - event.profile.start)

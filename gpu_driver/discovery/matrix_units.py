# SPDX-License-Identifier: Apache-2.0
"""Which form of NVIDIA's matrix instruction a device has, tried with the header that the kernels use.

The compute capability says what to try. Only what was built by the device's own compiler and gave the right sums is
trusted, so that a driver without inline PTX, or with another, has the kernels that need none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

import kernels_cl
from gpu_driver.discovery.trial import one_line, run_once

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyopencl as cl

    Values = npt.NDArray[np.generic]

_LOG = logging.getLogger(__name__)

EMULATED = 0
"""MATRIX_UNITS of common/mma.h for devices without: for tests."""
FEATURES = {"mma_80": 80, "mma_75": 75, "mma_emulated": EMULATED}
"""MATRIX_UNITS by the feature of a device that says that this works."""
WITHOUT_FLOATS = 75
"""The form that has no instruction for floats."""
_ELEMENT_TYPES = (("half", "half"), ("uchar", "uchar"), ("uchar", "char"), ("char", "char"))
_RANGES = {"half": ("f2", -64, 64), "uchar": ("u1", 0, 255), "char": ("i1", -128, 127), "float": ("f4", -63, 63)}
"""Data type, least and greatest number of the trial."""
_LARGE = 256
"""How many times as large floats of one side are, of each side in one warp: more bits than a part of a factor has."""
_ATTRIBUTES = "cl_nv_device_attribute_query"
_ROWS, _COLUMNS, _LINE_BYTES, _WARP, _WARPS = 16, 8, 32, 32, 2
_UNITS = "common/mma.h"
_KERNEL = """
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void nnrt_probe_units(
    global const uint4 *left, global const uint2 *right, global Sums *sums)
{
    local uint exchange[EXCHANGE_WORDS(64)];
    local uint4 lines[64], nothing[64];
    local uint2 halves[64];
    const size_t i = get_local_id(0);
    nothing[i] = left[i];
    copy_run(nothing + i, left + i, 0);
    end_of_copies();
    copy_run(lines + i, left + i, 1);
    copy_half_run(halves + i, right + i, 1);
    end_of_copies();
    WAIT_FOR_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    const Sums all = multiply_add(lines[i], halves[i], sums[i], exchange);
    sums[i] = multiply_add(nothing[i], halves[i], all, exchange);
}
"""


def feature_of(device: cl.Device, context: cl.Context) -> str | None:
    """Return the name in FEATURES of the best form that works on a device, None where none does."""
    capability = compute_capability(device)
    tried = [name for name, least in FEATURES.items() if EMULATED < least <= capability]
    return next((name for name in tried if works(context, FEATURES[name])), None)


def compute_capability(device: cl.Device) -> int:
    """Return NVIDIA's compute capability, 86 for 8.6; 0 for other devices."""
    import pyopencl as cl

    if _ATTRIBUTES not in device.extensions.split():
        return 0
    try:
        return 10 * int(device.compute_capability_major_nv) + int(device.compute_capability_minor_nv)
    except cl.Error as error:
        _LOG.info("%s: no compute capability: %s", device.name, error)
        return 0


def works(context: cl.Context, level: int) -> bool:
    """Tell whether two warps of a group get the right sums from common/mma.h with this MATRIX_UNITS, in every type."""
    import pyopencl as cl

    try:
        return all(_sums_right(context, level, left, right) for left, right in element_types(level))
    except cl.Error as error:
        _LOG.info("%s: no matrix units: %s", context.devices[0].name, one_line(str(error)))
        return False


def element_types(level: int) -> tuple[tuple[str, str], ...]:
    """Return T and FILTER_T that a form of the instruction is there for."""
    return _ELEMENT_TYPES if level == WITHOUT_FLOATS else (*_ELEMENT_TYPES, ("float", "float"))


def trial_text() -> str:
    """Return all that the sources of the trials are made of."""
    return kernels_cl.source(_UNITS) + _KERNEL


def _sums_right(context: cl.Context, level: int, left_type: str, right_type: str) -> bool:
    rng = np.random.default_rng(level)
    left, right = (_numbers(rng, (_WARPS, lines), name) for lines, name in ((_ROWS, left_type), (_COLUMNS, right_type)))
    if left_type == "float":
        left[0] *= _LARGE
        right[1] *= _LARGE
    sum_type = np.float32 if left_type in ("float", "half") else np.int32
    before = rng.integers(-1000, 1000, (_WARPS, _ROWS, _COLUMNS)).astype(sum_type)
    products = np.einsum("wrk,wck->wrc", left.astype(np.int64), right.astype(np.int64))
    sums = of_sums(before)
    defines = f"#define T {left_type}\n#define FILTER_T {right_type}\n#define MATRIX_UNITS {level}\n"
    source = defines + trial_text()
    size = (_WARPS * _WARP,)
    run_once(context, source, "nnrt_probe_units", size, size, [of_left(left), of_right(right)], [sums])
    return np.array_equal(sums, of_sums(before + products))


def _numbers(rng: np.random.Generator, lines: tuple[int, ...], name: str) -> Values:
    """Return whole numbers of a type, 32 bytes a line: all of 8 bits, of others those that float32 adds exactly."""
    dtype, low, high = _RANGES[name]
    return rng.integers(low, high, (*lines, _LINE_BYTES // np.dtype(dtype).itemsize), endpoint=True).astype(dtype)


def of_left(matrices: Values) -> npt.NDArray[np.uint32]:
    """Return the words [warps, 32, 4] that lanes hold of matrices [warps, 16, terms]: Layout of common/mma.h."""
    row, word = np.divmod(np.arange(_WARP), 4)
    words = matrices.view(np.uint32)
    return np.ascontiguousarray(np.stack([words[:, row + r, word + w] for w in (0, 4) for r in (0, 8)], axis=-1))


def of_right(matrices: Values) -> npt.NDArray[np.uint32]:
    """Return the words [warps, 32, 2] that lanes hold of matrices [warps, 8, terms]."""
    column, word = np.divmod(np.arange(_WARP), 4)
    words = matrices.view(np.uint32)
    return np.ascontiguousarray(np.stack([words[:, column, word + w] for w in (0, 4)], axis=-1))


def of_sums(matrices: Values) -> Values:
    """Return the sums [warps, 32, 4] that lanes hold of matrices [warps, 16, 8]."""
    row, pair = np.divmod(np.arange(_WARP), 4)
    return np.ascontiguousarray(np.stack([matrices[:, row + r, 2 * pair + c] for r in (0, 8) for c in (0, 1)], axis=-1))

# SPDX-License-Identifier: Apache-2.0
"""By which instructions of an x86 processor a device multiplies bytes, tried with the headers that the kernels use.

The processor's flags say what to try. Only what was built by the device's own compiler and gave the right sums is
trusted, so that a runtime without inline assembly, or one that compiles for an older processor, has another form or
products in float.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import kernels_cl
from gpu_driver.discovery.host_cpu import may_use_tiles
from gpu_driver.discovery.pocl_repair import SKX_FLAGS
from gpu_driver.discovery.trial import one_line, run_once

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyopencl as cl

    from gpu_driver.discovery.host_cpu import HostCpu

_LOG = logging.getLogger(__name__)

AVX2, AVX_VNNI, AVX512_VNNI, AMX = 1, 2, 3, 4
"""DOT4 of common/dot4.h."""
WIDE_FORMS = frozenset({AVX512_VNNI, AMX})
"""Those with the registers of AVX-512."""


class _Form(NamedTuple):
    dot4: int
    needed: frozenset[str]
    floats_better_with: frozenset[str] | None = None
    """Flags of processors whose products in float are faster."""

    def suits(self, cpu: HostCpu) -> bool:
        """Tell whether to try it on a processor."""
        better = self.floats_better_with
        return self.needed <= cpu.flags and (better is None or not better <= cpu.flags)


_FORMS = {
    "x86_amx": _Form(AMX, frozenset({"avx512f", "avx512bw", "avx512_vnni", "amx_tile", "amx_int8"})),
    "x86_vnni": _Form(AVX512_VNNI, frozenset({"avx512f", "avx512bw", "avx512_vnni"})),
    "x86_avx_vnni": _Form(AVX_VNNI, frozenset({"avx2", "fma", "avx_vnni"})),
    "x86_avx2": _Form(AVX2, frozenset({"avx2", "fma"}), SKX_FLAGS),
}
FEATURES = {name: form.dot4 for name, form in _FORMS.items()}
"""DOT4 by the feature of a device that says that this works, the best first."""
_PLATFORMS = ("Portable Computing Language", "Intel(R) OpenCL")
_SOURCES = "common/types.h", "common/dot4.h", "common/bytes.h"
_KERNEL = """
kernel void nnrt_probe_dot4(global const int16 *x, global const int16 *w, global const float16 *factors,
                            global int16 *sum, global float16 *scaled)
{
    sum[0] = dot4_16(sum[0], x[0], w[0]);
    const RoundingModes modes = rounding_modes();
    round_down(&modes);
    scaled[0] = multiply_add_down_16(scaled[0], factors[0], factors[1]);
    round_to_nearest(&modes);
}
"""
_VECTOR = 16
_TILE_KERNEL = """
kernel void nnrt_probe_tiles(global const uchar *x, global const int16 *w, global const int16 *bias, global int16 *sums)
{
    int16 sum0[16], sum1[16];
    shape_tiles(QUADS - CHUNK_QUADS);
    begin_tiles(bias, bias + 1);
    multiply_tiles(x, 4 * QUADS, w, w + QUADS, QUADS, 1);
    end_tiles(sum0, sum1);
    release_tiles();
    for (int p = 0; p < 16; ++p) {
        sums[p] = sum0[p];
        sums[16 + p] = sum1[p];
    }
}
"""
_TILE_QUADS = 21


def best_form(features: Collection[str]) -> int:
    """Return DOT4 for a device of these features, 0 where none is among them."""
    return next((form for name, form in FEATURES.items() if name in features), 0)


def features_of(device: cl.Device, context: cl.Context, cpu: HostCpu) -> tuple[str, ...]:
    """Return the names in FEATURES of the forms that work on a device: the best, and behind AMX the next."""
    found: list[str] = []
    for name in _tried(device.platform.name, cpu):
        if works(context, FEATURES[name]):
            found.append(name)
            if FEATURES[name] != AMX:
                break
    return tuple(found)


def usable_here(features: Collection[str]) -> tuple[str, ...]:
    """Return the features of a device without those that this process may not use: tiles, where Linux refuses them."""
    return tuple(name for name in features if FEATURES.get(name) != AMX or may_use_tiles())


def has_instructions(dot4: int, cpu: HostCpu) -> bool:
    """Tell whether a processor has what a form is made of, and lets this process use it."""
    has = any(form.needed <= cpu.flags for form in _FORMS.values() if form.dot4 == dot4)
    return has and (dot4 != AMX or may_use_tiles())


def _tried(platform: str, cpu: HostCpu) -> list[str]:
    if platform not in _PLATFORMS:
        return []
    return [name for name, form in _FORMS.items() if form.suits(cpu)]


def works(context: cl.Context, dot4: int) -> bool:
    """Tell whether GNU inline assembly of this form builds, multiplies bytes right, and rounds where it should."""
    import pyopencl as cl

    try:
        if dot4 == AMX and not (may_use_tiles() and _tiles_right(context)):
            return False
        return _answers_right(context, dot4)
    except cl.Error as error:
        _LOG.info("%s: no products of bytes in form %d: %s", context.devices[0].name, dot4, one_line(str(error)))
        return False


def _answers_right(context: cl.Context, dot4: int) -> bool:
    unsigned, signed = np.arange(4 * _VECTOR).astype(np.uint8) * 3, (np.arange(4 * _VECTOR) - 40).astype(np.int8)
    unsigned[:8], signed[:8] = 255, np.repeat([-128, 127], 4)  # what 16 bits do not hold
    total = np.arange(_VECTOR, dtype=np.int32)
    expected = total + (unsigned.astype(np.int32) * signed).reshape(_VECTOR, 4).sum(1)
    factor, term = np.float32(1 / 3), np.float32(0.5)  # half of the results are greater when rounded to the nearest
    given = (np.arange(_VECTOR) * 37 + 1).astype(np.float32)
    scaled = given.copy()
    exact = given.astype(np.float64) * factor + term
    near = exact.astype(np.float32)
    down = np.where(near > exact, np.nextafter(near, np.float32(0)), near)
    source = "#define T uchar\n" + f"#define DOT4 {dot4}\n" + "".join(map(kernels_cl.source, _SOURCES)) + _KERNEL
    factors = np.repeat([factor, term], _VECTOR).astype(np.float32)
    run_once(context, source, "nnrt_probe_dot4", (1,), (1,), [unsigned, signed, factors], [total, scaled])
    return np.array_equal(total, expected) and np.array_equal(scaled, down)


def _tiles_right(context: cl.Context) -> bool:
    pixels, quads = 16, _TILE_QUADS
    w = (np.arange(2 * quads * _VECTOR * 4) * 23 % 256 - 128).astype(np.int8).reshape(2, quads, _VECTOR, 4)
    bias = np.arange(2 * _VECTOR, dtype=np.int32).reshape(2, 1, _VECTOR) - 9
    for dtype in (np.int8, np.uint8):
        x = (np.arange(pixels * 4 * quads) * 41 % 256).astype(np.uint8).view(dtype).reshape(pixels, quads, 4)
        expected = bias + np.einsum("pqi,vqci->vpc", x.astype(np.int32), w.astype(np.int32))
        sums = np.zeros(expected.shape, np.int32)
        defines = f"#define T_IS_SIGNED {int(dtype == np.int8)}\n#define QUADS {quads}\n"
        source = defines + kernels_cl.source("common/amx.h") + _TILE_KERNEL
        run_once(context, source, "nnrt_probe_tiles", (1,), (1,), [x, w, bias], [sums])
        if not np.array_equal(sums, expected):
            return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""By which instructions of an x86 processor a device multiplies bytes and looks them up, tried with kernels' headers.

The processor's flags say what to try. Only what was built by the device's own compiler and gave the right sums is
trusted, so that a runtime without inline assembly, or one that compiles for an older processor, has another form or
products in float.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import kernels_cl
from gpu_driver import byte_tables
from gpu_driver.discovery.host_cpu import may_use_tiles
from gpu_driver.discovery.pocl_repair import SKX_FLAGS
from gpu_driver.discovery.trial import one_line, run_once

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt
    import pyopencl as cl

    from gpu_driver.discovery.host_cpu import HostCpu

    _Numbers = npt.NDArray[np.generic]

_LOG = logging.getLogger(__name__)

AVX2, AVX_VNNI, AVX512_VNNI, AMX = 1, 2, 3, 4
"""DOT4 of common/dot4.h."""
WIDE_FORMS = frozenset({AVX512_VNNI, AMX})
"""Those with the registers of AVX-512."""
VBMI = "x86_vbmi"
"""The feature of a device that looks bytes up by picking among 128 at once: VBMI of common/bytes.h, for wide forms."""
_VBMI_FLAG = "avx512vbmi"


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
_TILE_SOURCE = "common/amx.h"
_KERNEL = """
kernel void nnrt_probe_dot4(global const int16 *x, global const int16 *w, global const float16 *factors,
                            global const int16 *table,
#if DOT4 == 4
                            global const uchar *pixels, global const int16 *weights, global const int16 *bias,
#endif
                            global int16 *sum, global float16 *scaled, global int16 *found
#if DOT4 == 4
                            , global int16 *unsigned_sums, global int16 *signed_sums
#endif
)
{
    sum[0] = dot4_16(sum[0], x[0], w[0]);
#if DOT4 == 1
    sum[0].lo += add_dot2(x[0].lo, x[0].lo, w[0].lo) - (x[0].lo + dot2(x[0].lo, w[0].lo)); // 0
#endif
    const RoundingModes modes = rounding_modes();
    round_down(&modes);
    global Floats *const values = (global Floats *)scaled;
    global const Floats *const scales = (global const Floats *)factors;
    global const Floats *const offsets = (global const Floats *)(factors + 1);
    for (int i = 0; i < 16 / DOT4_LANES; ++i)
        values[i] = multiply_add_down(values[i], scales[i], offsets[i]);
    round_to_nearest(&modes);
    found[0] = look_up_bytes(table, x[0]);
#if DOT4 == 4
    int16 sums[2][16];
    shape_tiles(QUADS - CHUNK_QUADS);
    for (int is_signed = 0; is_signed < 2; ++is_signed) {
        begin_tiles(bias, bias + 1);
        if (is_signed)
            multiply_signed_tiles(pixels, 4 * QUADS, weights, weights + QUADS, QUADS, 1);
        else
            multiply_unsigned_tiles(pixels, 4 * QUADS, weights, weights + QUADS, QUADS, 1);
        end_tiles(sums[0], sums[1]);
        for (int i = 0; i < 32; ++i)
            (is_signed ? signed_sums : unsigned_sums)[i] = sums[i / 16][i % 16];
    }
    release_tiles();
#endif
}
"""
_VECTOR = 16
_TILE_QUADS = 21


def best_form(features: Collection[str]) -> int:
    """Return DOT4 for a device of these features, 0 where none is among them."""
    return next((form for name, form in FEATURES.items() if name in features), 0)


def features_of(device: cl.Device, context: cl.Context, cpu: HostCpu) -> tuple[str, ...]:
    """Return which of FEATURES work on a device, the best and behind AMX what it contains, and VBMI if that does."""
    for name in forms_to_try(device.platform.name, cpu):
        form = FEATURES[name]
        for vbmi in (True, False) if form in WIDE_FORMS and _VBMI_FLAG in cpu.flags else (False,):
            if works(context, form, vbmi=vbmi):
                return name, *(("x86_vnni",) if form == AMX else ()), *((VBMI,) if vbmi else ())
    return ()


def usable_here(features: Collection[str]) -> tuple[str, ...]:
    """Return the features of a device without those that this process may not use: tiles, where Linux refuses them."""
    return tuple(name for name in features if FEATURES.get(name) != AMX or may_use_tiles())


def forms_to_try(platform: str, cpu: HostCpu) -> list[str]:
    """Return those of FEATURES that the processor has, on a platform whose compiler may know them, the best first."""
    if platform not in _PLATFORMS:
        return []
    return [name for name, form in _FORMS.items() if form.suits(cpu)]


def works(context: cl.Context, dot4: int, *, vbmi: bool = False) -> bool:
    """Tell whether GNU inline assembly of this form builds, multiplies bytes right, and rounds where it should.

    vbmi: whether it looks bytes up by VBMI, too.
    """
    import pyopencl as cl

    if dot4 == AMX and not may_use_tiles():
        return False
    try:
        return _answers_right(context, dot4, vbmi=vbmi)
    except cl.Error as error:
        form = f"{dot4}{' with VBMI' * vbmi}"
        _LOG.info("%s: no products of bytes in form %s: %s", context.devices[0].name, form, one_line(str(error)))
        return False


def _answers_right(context: cl.Context, dot4: int, *, vbmi: bool) -> bool:
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
    factors = np.repeat([factor, term], _VECTOR).astype(np.float32)
    table = (np.arange(256) * 167 + 13).astype(np.uint8)
    inputs: list[_Numbers] = [unsigned, signed, factors, byte_tables.packed(table)]
    outputs: list[_Numbers] = [total, scaled, np.zeros_like(unsigned)]
    right: list[_Numbers] = [expected, down, table[unsigned]]
    if dot4 == AMX:
        tiles = _trial_of_tiles()
        inputs += tiles.inputs
        outputs += [np.zeros_like(sums) for sums in tiles.expected]
        right += tiles.expected
    run_once(context, _source(dot4, vbmi=vbmi), "nnrt_probe_dot4", (1,), (1,), inputs, outputs)
    return all(np.array_equal(found, one) for found, one in zip(outputs, right, strict=True))


def trial_text() -> str:
    """Return all that the sources of the trials are made of."""
    return "".join(map(kernels_cl.source, (*_SOURCES, _TILE_SOURCE))) + _KERNEL


def _source(dot4: int, *, vbmi: bool) -> str:
    names = (*_SOURCES, _TILE_SOURCE) if dot4 == AMX else _SOURCES
    numbers = {"DOT4": dot4, "VBMI": int(vbmi), "QUADS": _TILE_QUADS}
    defines = "#define T uchar\n" + "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    return defines + "".join(map(kernels_cl.source, names)) + _KERNEL


class _TileTrial(NamedTuple):
    inputs: list[_Numbers]
    """Pixels [16, quads, 4] of bytes, weights [2, quads, 16, 4], bias [2, 1, 16]."""
    expected: list[npt.NDArray[np.int32]]
    """Sums [2, 16 pixels, 16 channels] of the pixels as unsigned bytes, and as signed ones."""


def _trial_of_tiles() -> _TileTrial:
    pixels, quads = 16, _TILE_QUADS
    x = (np.arange(pixels * 4 * quads) * 41 % 256).astype(np.uint8).reshape(pixels, quads, 4)
    w = (np.arange(2 * quads * _VECTOR * 4) * 23 % 256 - 128).astype(np.int8).reshape(2, quads, _VECTOR, 4)
    bias = np.arange(2 * _VECTOR, dtype=np.int32).reshape(2, 1, _VECTOR) - 9
    exact = w.astype(np.int32)
    expected = [bias + np.einsum("pqi,vqci->vpc", one.astype(np.int32), exact) for one in (x, x.view(np.int8))]
    return _TileTrial([x, w, bias], expected)

# SPDX-License-Identifier: Apache-2.0
"""types.h: what rounding to half makes of floats, beside numpy's conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

import kernels_cl
from gpu_driver.discovery.platforms import find_devices
from gpu_driver.discovery.trial import run_once

if TYPE_CHECKING:
    from gpu_driver.discovery.platforms import FoundDevice

USABLE = [device for device in find_devices() if device.usable]
SIGN_APART = [(found, apart) for found in USABLE for apart in ((1,) if found.slug == "rusticl" else (0, 1))]
SOURCE = """
kernel void one_by_one(global const float *x, global float *y)
{
    const int i = (int)get_global_id(0);
    y[i] = ROUND(x[i]) + 1.0f;
}

kernel void by_sixteen(global const float *x, global float *y)
{
    const int i = (int)get_global_id(0);
    vstore16(ROUND16(vload16(i, x)) + 1.0f, i, y);
}
"""


@pytest.mark.parametrize("kernel", ["one_by_one", "by_sixteen"])
@pytest.mark.parametrize(("found", "sign_apart"), SIGN_APART, ids=lambda value: getattr(value, "name", str(value)))
def test_rounding_is_what_memory_would_make_of_it(found: FoundDevice, sign_apart: int, kernel: str) -> None:
    """The sum behind it shows whether a compiler left it out."""
    every_half = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = every_half[np.isfinite(every_half)]
    between = (finite[:, None] * np.float32([1, 1 + 2**-11, 1 - 2**-11, 1 + 2**-12])).reshape(-1)
    special = np.float32([np.inf, -np.inf, np.nan, 65519, 65520, -65520, 2**-25, 2**-24, 0, -0.0])
    x = np.resize(np.concatenate([special, between]), (len(special) + len(between)) // 16 * 16 + 16)
    y = np.empty_like(x)
    source = f"#define T half\n#define SIGN_APART {sign_apart}\n{kernels_cl.source('common/types.h')}{SOURCE}"
    items = len(x) // (16 if kernel == "by_sixteen" else 1)
    run_once(cl.Context([found.device]), source, kernel, (items,), (1,), [x], [y])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32) + np.float32(1))

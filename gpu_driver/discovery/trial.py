# SPDX-License-Identifier: Apache-2.0
"""Building a small kernel and running it once, to see whether a device does what it should."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pyopencl as cl


def run_once(
    context: cl.Context,
    source: str,
    kernel_name: str,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    inputs: Sequence[npt.NDArray[np.generic]],
    outputs: Sequence[npt.NDArray[np.generic]],
    scalars: Sequence[np.generic] = (),
) -> None:
    """Build one kernel and run it once; `outputs` go in and come back changed. Raises pyopencl's errors."""
    import pyopencl as cl

    queue = cl.CommandQueue(context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = cl.Program(context, source)
        program.int_ptr  # noqa: B018  # makes the program object now, which takes PyOpenCL's cache out of the way
        program.build()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=array) for array in (*inputs, *outputs)]
    kernel = cl.Kernel(program, kernel_name)
    for number, buffer in enumerate(buffers):
        kernel.set_arg(number, buffer)
    for number, scalar in enumerate(scalars, len(buffers)):
        kernel.set_arg(number, scalar)
    cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
    for array, buffer in zip(outputs, buffers[len(inputs) :], strict=True):
        cl.enqueue_copy(queue, array, buffer)
    queue.finish()


def one_line(text: str, limit: int = 300) -> str:
    """Return a build log in a line, from its first error on."""
    start = text.find("error:")
    return " ".join(text[max(start, 0) :].split())[:limit]

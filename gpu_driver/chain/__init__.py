# SPDX-License-Identifier: Apache-2.0
"""Chains: packed convolutions and what joins them in one launch of chain.cl, for CPU-type devices.

Every step is cut into tasks, and every core owns the same part of the picture in all of them: its queue. Work-groups,
one per core, take the tasks of their queues in order, help others when they have none, and wait, spinning, until the
tasks that made what they read are done. So the host has one kernel to enqueue, no core sleeps between steps, a step
begins while the one before still runs, and most of what a core reads it has written itself. One group alone would end
too: tasks wait for earlier ones only.
"""

from __future__ import annotations

from gpu_driver.chain.conversion import conversion_step
from gpu_driver.chain.copying import copy_step, fill_step
from gpu_driver.chain.kernel import CHAINED, chain_kernel, common_kernel, step_kernel, truth_kernel
from gpu_driver.chain.kinds import Function, Kind, Rescale, Round
from gpu_driver.chain.launches import merge, redirected
from gpu_driver.chain.step import STEP_FIELDS, Memory, Reading, Step, rows_of
from gpu_driver.chain.tasks import CONVOLUTION_BLOCK, Task, reads_of, tasks_of

__all__ = [
    "CHAINED",
    "CONVOLUTION_BLOCK",
    "STEP_FIELDS",
    "Function",
    "Kind",
    "Memory",
    "Reading",
    "Rescale",
    "Round",
    "Step",
    "Task",
    "chain_kernel",
    "common_kernel",
    "conversion_step",
    "copy_step",
    "fill_step",
    "merge",
    "reads_of",
    "redirected",
    "rows_of",
    "step_kernel",
    "tasks_of",
    "truth_kernel",
]

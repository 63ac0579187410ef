# SPDX-License-Identifier: Apache-2.0
"""Processes that look for devices: the OpenCL loader starts once in each, so what depends on its start takes one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gpu_driver.discovery import icd

ROOT = Path(__file__).parents[3]
LIST = """
import json
from gpu_driver.discovery import platforms
print(json.dumps([[d.name, d.usable, d.reason, d.identity] for d in platforms.find_devices()]))
"""
DOCTOR = """
import json
from gpu_driver.diagnosis import diagnose
print(json.dumps(diagnose().to_json()))
"""


def run(code: str, cache: Path | str, **variables: str) -> list[object] | dict[str, object]:
    """Return what a process prints last, as JSON, with variables for it and none that this process has set for itself.

    cache: its folder of caches.
    """
    own = (icd.VENDORS_VARIABLE, "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {"NNRT_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

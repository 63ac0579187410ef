# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of LSH_PROJECTION; keys of other lengths are checked through the operation's cases."""

from __future__ import annotations

import numpy as np

from cpu_driver.operations.fingerprint import fingerprint64


def test_published_value() -> None:
    keys = np.frombuffer(b"hello world" * 2, np.uint8).reshape(2, -1)
    assert fingerprint64(keys).tolist() == [6381520714923946011] * 2

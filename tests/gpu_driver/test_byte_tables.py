# SPDX-License-Identifier: Apache-2.0
"""Tables of bytes in sixteen parts, beside what they stand for."""

from __future__ import annotations

import numpy as np

from gpu_driver import byte_tables


def test_parts_of_a_table_say_what_the_table_says() -> None:
    table = np.random.default_rng(0).integers(0, 256, 256).astype(np.uint8)
    packed = byte_tables.packed(table)
    found = packed[:16]
    assert (found.reshape(16, 4, 16) == found[:, np.newaxis, :16]).all()
    for byte in range(256):
        value, place = 0, byte
        for at, part in enumerate(found):
            if place < 128:
                value ^= int(part[place % 16])
            # Bytes are subtracted from as unsigned ones that wrap, from the ninth part on as signed ones that do not.
            signed = place - 256 if place >= 128 else place
            place = (place - 16) % 256 if at < 8 else max(-128, signed - 16) % 256
        assert value == table[byte]
    assert packed[16:].tobytes() == table.tobytes()

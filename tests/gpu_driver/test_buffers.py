# SPDX-License-Identifier: Apache-2.0
"""The arena: no two temporaries alive at once overlap, memory is used again."""

from __future__ import annotations

import random

from gpu_driver.buffers import Lifetime, plan_arena


def test_memory_is_used_again() -> None:
    plan = plan_arena([Lifetime(100, 0, 1), Lifetime(100, 1, 2), Lifetime(100, 2, 3)], 64)
    assert plan.offsets == (0, 128, 0)
    assert plan.size_bytes == 228


def test_gap_between_two_is_filled() -> None:
    plan = plan_arena([Lifetime(512, 0, 9), Lifetime(256, 0, 1), Lifetime(128, 0, 9), Lifetime(200, 2, 9)], 64)
    assert plan.offsets[3] == 512


def test_nothing_needs_nothing() -> None:
    assert plan_arena([], 64).size_bytes == 0


def test_random_lifetimes_never_overlap() -> None:
    generator = random.Random(5)
    for _ in range(50):
        lifetimes = []
        for _ in range(40):
            first = generator.randrange(60)
            lifetimes.append(Lifetime(generator.randrange(1, 5000), first, first + generator.randrange(10)))
        plan = plan_arena(lifetimes, 128)
        spans = list(zip(plan.offsets, lifetimes, strict=True))
        for i, (offset, one) in enumerate(spans):
            assert offset % 128 == 0
            assert offset + one.size_bytes <= plan.size_bytes
            for other_offset, other in spans[:i]:
                together = one.first <= other.last and other.first <= one.last
                apart = offset + one.size_bytes <= other_offset or other_offset + other.size_bytes <= offset
                assert apart or not together

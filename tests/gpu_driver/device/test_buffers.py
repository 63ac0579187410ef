# SPDX-License-Identifier: Apache-2.0
"""The arena: no two temporaries alive at once overlap, memory is used again."""

from __future__ import annotations

import random

from gpu_driver.device.buffers import ArenaPlan, Lifetime, Place, plan_arenas, plan_whole_buffers, readable_bytes

NO_LIMIT = 2**40


def test_memory_is_used_again() -> None:
    plan = plan_arenas([Lifetime(100, 0, 1), Lifetime(100, 1, 2), Lifetime(100, 2, 3)], 64, NO_LIMIT)
    assert plan.places == (Place(0, 0), Place(0, 128), Place(0, 0))
    assert plan.sizes_bytes == (228,)


def test_gap_between_two_is_filled() -> None:
    lifetimes = [Lifetime(512, 0, 9), Lifetime(256, 0, 1), Lifetime(128, 0, 9), Lifetime(200, 2, 9)]
    assert plan_arenas(lifetimes, 64, NO_LIMIT).places[3] == Place(0, 512)


def test_what_fits_exactly_fits() -> None:
    """Into a gap, and into an arena."""
    lifetimes = [Lifetime(512, 0, 9), Lifetime(128, 0, 1), Lifetime(128, 0, 9), Lifetime(128, 2, 9)]
    plan = plan_arenas(lifetimes, 64, 768)
    assert plan.places == (Place(0, 0), Place(0, 512), Place(0, 640), Place(0, 512))
    assert plan.sizes_bytes == (768,)


def test_what_follows_whole_pages_begins_elsewhere_in_a_page() -> None:
    lifetimes = [Lifetime(8192, at, at + 1) for at in range(4)]
    plan = plan_arenas([*lifetimes, Lifetime(5000, 0, 4)], 64, NO_LIMIT)
    offsets = [place.offset for place in plan.places]
    assert offsets == [0, 8192 + 1088, 0, 8192 + 1088, 2 * (8192 + 1088)]
    assert plan.sizes_bytes == (offsets[-1] + 5000,)


def test_nothing_needs_nothing() -> None:
    assert plan_arenas([], 64, NO_LIMIT) == ArenaPlan((), ())


def test_what_one_buffer_cannot_hold_goes_to_several() -> None:
    lifetimes = [
        Lifetime(600, 0, 2),
        Lifetime(600, 1, 3),
        Lifetime(300, 0, 3),
        Lifetime(600, 3, 4),
        Lifetime(2000, 5, 5),
    ]
    plan = plan_arenas(lifetimes, 64, 1000)
    assert plan.places == (Place(0, 0), Place(1, 0), Place(0, 640), Place(0, 0), Place(0, 0))


def test_random_lifetimes_never_overlap() -> None:
    generator = random.Random(5)
    for _ in range(50):
        lifetimes = []
        for _ in range(40):
            first = generator.randrange(60)
            lifetimes.append(Lifetime(generator.randrange(1, 5000), first, first + generator.randrange(10)))
        plan = plan_arenas(lifetimes, 128, generator.choice((NO_LIMIT, 12_000)))
        spans = list(zip(plan.places, lifetimes, strict=True))
        for i, (place, one) in enumerate(spans):
            assert place.offset % 128 == 0
            assert place.offset + one.size_bytes <= plan.sizes_bytes[place.arena] <= NO_LIMIT
            for other_place, other in spans[:i]:
                together = one.first <= other.last and other.first <= one.last
                end, other_end = place.offset + one.size_bytes, other_place.offset + other.size_bytes
                apart = place.arena != other_place.arena or end <= other_place.offset or other_end <= place.offset
                assert apart or not together


def test_readable_bytes() -> None:
    assert [readable_bytes(n) for n in (7, 1536, 3 * 2**20, 7 * 2**29)] == ["7 bytes", "1.5 KiB", "3.0 MiB", "3.5 GiB"]
    assert [readable_bytes(n) for n in (1023, 2**10, 2**20, 2**30)] == ["1023 bytes", "1.0 KiB", "1.0 MiB", "1.0 GiB"]


def test_whole_buffers_are_used_again_but_never_by_two_at_once() -> None:
    generator = random.Random(3)
    for _ in range(50):
        lifetimes = [
            Lifetime(generator.randrange(1, 5000), first, first + generator.randrange(4))
            for first in (generator.randrange(20) for _ in range(generator.randrange(1, 40)))
        ]
        plan = plan_whole_buffers(lifetimes)
        assert plan.are_whole
        for one, place in zip(lifetimes, plan.places, strict=True):
            assert place.offset == 0
            assert one.size_bytes <= plan.sizes_bytes[place.arena]
            others = [
                other
                for other, its in zip(lifetimes, plan.places, strict=True)
                if its == place and other is not one and other.first <= one.last and one.first <= other.last
            ]
            assert not others


def test_a_row_of_temporaries_takes_two_whole_buffers() -> None:
    plan = plan_whole_buffers([Lifetime(100, 0, 1), Lifetime(300, 1, 2), Lifetime(200, 2, 3), Lifetime(50, 3, 4)])
    assert sorted(plan.sizes_bytes) == [200, 300]
    assert [place.arena for place in plan.places] == [1, 0, 1, 0]


def test_a_temporary_takes_the_smallest_whole_buffer_that_is_free() -> None:
    plan = plan_whole_buffers([Lifetime(300, 0, 1), Lifetime(200, 0, 1), Lifetime(100, 0, 1), Lifetime(50, 2, 2)])
    assert plan.sizes_bytes == (300, 200, 100)
    assert plan.places[3] == Place(2, 0)

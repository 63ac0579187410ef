# SPDX-License-Identifier: Apache-2.0
"""The host's processor, as Linux describes it."""

from __future__ import annotations

from dataclasses import replace

from gpu_driver.discovery.host_cpu import HostCpu, parse_cpuinfo


def test_cpuinfo_of_the_first_processor() -> None:
    cpu = parse_cpuinfo("model name\t: A B\nflags\t\t: avx fma\n\nmodel name\t: C\nflags\t\t: sse\n", "x86_64")
    assert cpu == HostCpu("x86_64", "A B", frozenset({"avx", "fma"}))
    assert cpu.digest != replace(cpu, model="C").digest


def test_kinds_of_processors() -> None:
    assert [HostCpu(name, "", frozenset()).is_x86 for name in ("x86_64", "AMD64", "aarch64", "")] == [
        True,
        True,
        False,
        False,
    ]

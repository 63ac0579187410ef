# SPDX-License-Identifier: Apache-2.0
"""The host's processor, as Linux describes it."""

from __future__ import annotations

from dataclasses import replace

from gpu_driver.discovery.host_cpu import HostCpu, parse_cpuinfo


def test_cpuinfo_of_the_first_processor() -> None:
    cpu = parse_cpuinfo("model name\t: A B\nflags\t\t: avx fma\n\nmodel name\t: C\nflags\t\t: sse\n", "x86_64")
    assert cpu == HostCpu("x86_64", "A B", frozenset({"avx", "fma"}))
    assert cpu.digest != replace(cpu, model="C").digest


def test_cpuinfo_of_an_arm() -> None:
    """Source of the lines: a Raspberry Pi 5 under Linux 6.6."""
    text = """processor	: 0
BogoMIPS	: 108.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x4
CPU part	: 0xd0b
CPU revision	: 1

processor	: 1
"""
    cpu = parse_cpuinfo(text, "aarch64")
    assert cpu.model == "0x41 0xd0b 0x4 1"
    assert {"asimd", "asimddp"} < cpu.flags
    assert cpu.digest != parse_cpuinfo(text.replace("0xd0b", "0xd0c"), "aarch64").digest


def test_kinds_of_processors() -> None:
    assert [HostCpu(name, "", frozenset()).is_x86 for name in ("x86_64", "AMD64", "aarch64", "")] == [
        True,
        True,
        False,
        False,
    ]

# SPDX-License-Identifier: Apache-2.0
"""Which programs are asked for, and with which kernels and local sizes, while something runs on the OpenCL driver.

As a program it counts them over the operation examples of a folder; every example runs in every kind it allows:

    python -m tests.platforms.launches shared/vts --device opencl:pocl
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from gpu_driver.device.programs import ProgramCache, build_options
from nn_runtime.devices import select
from nn_runtime.testing.conformance import Through, make_runner, run_example
from nn_runtime.testing.corpus import read_spec, spec_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_driver.device.programs import Program

Options = tuple[str, ...]


@dataclass
class Launches:
    """What was asked of program caches.

    `launches`: (source, options, kernel, local size). `contained`: (source, kernel) of every program, launched or not.
    """

    launches: set[tuple[str, Options, str, tuple[int, ...] | None]] = field(default_factory=set)
    contained: set[tuple[str, str]] = field(default_factory=set)

    @property
    def programs(self) -> set[tuple[str, Options]]:
        """The different (source, options)."""
        return {(source, options) for source, options, _, _ in self.launches}

    @property
    def kernels(self) -> set[tuple[str, str]]:
        """The different (source, kernel)."""
        return {(source, kernel) for source, _, kernel, _ in self.launches}


@contextlib.contextmanager
def recorded(into: Launches) -> Iterator[None]:
    """Add to `into` what every program cache of this process is asked for while the block runs."""
    original = ProgramCache.get

    def get(
        cache: ProgramCache,
        source_name: str,
        defines: Mapping[str, str | int],
        launches: Iterable[tuple[str, tuple[int, ...] | None]] = (),
    ) -> Program:
        launched = list(launches)
        words = build_options(defines)
        into.launches.update((source_name, words, kernel, local_size) for kernel, local_size in launched)
        program = original(cache, source_name, defines, launched)
        into.contained.update((source_name, kernel) for kernel in program.cl_program.kernel_names.split(";"))
        return program

    with mock.patch.object(ProgramCache, "get", get):
        yield


def main() -> None:
    """Run the examples, print programs and launches per source and in all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the examples")
    parser.add_argument("--device", default=None, help="device selector (default: NNRT_DEVICE)")
    arguments = parser.parse_args()
    device = select(arguments.device).devices[0]
    runner = make_runner(device, Through.HAL)
    found = Launches()
    verdicts: Counter[str] = Counter()
    start = time.monotonic()
    with recorded(found):
        for path in spec_files(arguments.folder):
            for example in read_spec(path):
                verdicts.update(run_example(example, kind, runner).verdict.value for kind in example.kinds)
    programs = Counter(source for source, _ in found.programs)
    launches = Counter(source for source, _, _, _ in found.launches)
    for source in sorted(programs):
        print(f"{source:<36} {programs[source]:>4} programs {launches[source]:>4} launches")
    print(f"{device.name}: {dict(verdicts)} in {time.monotonic() - start:.0f} s")
    print(f"{len(found.programs)} programs, {len(found.launches)} different (program, kernel, local size)")


if __name__ == "__main__":
    main()

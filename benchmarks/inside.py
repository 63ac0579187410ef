# SPDX-License-Identifier: Apache-2.0
"""What our own driver says of one network: its overhead, what measuring costs, programs, memory for temporaries.

python benchmarks/inside.py SELECTOR NETWORK       prints JSON
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import networks

import nn_runtime as nn
from gpu_driver.kernel import Zeroed
from gpu_driver.launch import Launch
from nn_runtime.devices import find_device

if TYPE_CHECKING:
    from gpu_driver.prepared_model import PreparedModel

ROUNDS, RUNS, WARM_UP = 60, 20, 2


def main() -> None:
    """Measure and print."""
    selector, name = sys.argv[1:]
    print(json.dumps(figures(selector, name)))


def figures(selector: str, name: str) -> dict[str, Any]:
    """Return medians in microseconds, counts, and bytes of temporaries."""
    from gpu_driver.prepared_model import PreparedModel

    made: list[PreparedModel] = []
    initialise = PreparedModel.__init__

    def remember(self: PreparedModel, *arguments: object) -> None:
        initialise(self, *arguments)  # type: ignore[arg-type]
        made.append(self)

    PreparedModel.__init__ = remember  # type: ignore[assignment,method-assign]
    data, _ = networks.golden(name)
    with nn.load(networks.model_bytes(name)) as network, network.compile(device=selector) as session:
        (device,) = session.devices_used
        programs = find_device(device).statistics()
        found = _times(session, data)
        memory = _memory(made[0], networks.model_bytes(name)) if made else {}
    counts = {key: programs[key] for key in ("programs_built", "programs_loaded") if key in programs}
    return {"device": device, **found, **counts, **memory}


def _times(session: nn.Session, data: networks.Array) -> dict[str, float]:
    """Return how long runs take as they are, measured, and profiled: medians of rounds, in which all had their turn."""
    wall: dict[str, list[float]] = {"plain": [], "measure": [], "profile": []}
    overhead: list[float] = []
    on_device: list[float] = []
    for _ in range(ROUNDS):
        for kind, times in wall.items():
            options = {} if kind == "plain" else {kind: True}
            of_round: list[float] = []
            for _ in range(WARM_UP + RUNS):
                start = time.perf_counter()
                session.run([data], **options)
                of_round.append((time.perf_counter() - start) * 1e6)
                timing = session.timing
                if kind == "measure" and timing is not None and timing.on_device_ns and timing.in_driver_ns:
                    overhead.append((timing.in_driver_ns - timing.on_device_ns) / 1e3)
                    on_device.append(timing.on_device_ns / 1e3)
            times.append(statistics.median(of_round[WARM_UP:]))
    return {
        "wall_us": statistics.median(wall["plain"]),
        "on_device_us": statistics.median(on_device),
        "in_driver_minus_on_device_us": statistics.median(overhead),
        "measuring_costs": _cost(wall["measure"], wall["plain"]),
        "profiling_costs": _cost(wall["profile"], wall["plain"]),
    }


def _cost(times: list[float], plain: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(times, plain, strict=True)) - 1


def _memory(prepared: PreparedModel, model: bytes) -> dict[str, float]:
    """Return bytes of temporaries, and the largest sum of tensors alive at once."""
    compiled = prepared._graph.static
    if compiled is None:
        return {}
    launches = (command for command in compiled.segment.commands if isinstance(command, Launch))
    counters = (one.size_bytes for launch in launches for one in launch.arguments if isinstance(one, Zeroed))
    taken = sum(compiled.arenas.sizes_bytes) + sum(counters)
    alive = networks.largest_live_bytes(model)
    return {"temporary_bytes": taken, "live_bytes": alive, "temporary_ratio": taken / alive}


if __name__ == "__main__":
    main()

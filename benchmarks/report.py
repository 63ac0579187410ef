# SPDX-License-Identifier: Apache-2.0
"""From measured figures to docs/PERFORMANCE.md (between two marks; the rest is written by hand) and its pictures.

A file of figures is of a kind of processor (`peers.py`), or of a GPU (`gpus.py`), which has "batches".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import networks
from markup import table
from picture import ratios_picture
from summary import gpus_table, processors_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from measure import Figures

DOCUMENT = Path(__file__).parents[1] / "docs" / "PERFORMANCE.md"
RESULTS = DOCUMENT.with_name("performance")
"""Figures and pictures, by kind of processor."""
BEGIN, END = "<!-- figures of benchmarks/peers.py: begin -->", "<!-- figures of benchmarks/peers.py: end -->"
TARGETS = {
    networks.FLOAT: {"Intel": 0.95, "PoCL": 1.0},
    networks.PER_CHANNEL: {"Intel": 1.5, "PoCL": 1.0},
    networks.QUANT: {"Intel": 0.8, "PoCL": 0.55},
    networks.DEEPLAB: {"Intel": 0.9, "PoCL": 0.7},
    **{name: {"Intel": 5.0, "PoCL": 8.0} for name in networks.RECURRENT},
}
"""Ratios to LiteRT with XNNPACK that this project aims at."""
_STARTS = {
    ("PoCL", "empty_seconds"): "PoCL, every cache empty",
    ("PoCL", "filled_seconds"): "PoCL, ours filled",
    ("Intel", "empty_seconds"): "Intel, every cache empty",
    ("Intel", "filled_seconds"): "Intel, ours filled",
    ("LiteRT XNNPACK", "filled_seconds"): "LiteRT XNNPACK",
}
"""Engines and their figures, as `peers.start_up` has them: titles of columns."""


def write_stored() -> bool:
    """Write the report of all figures that are kept; tells whether there are any."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    if kept:
        write_report(kept)
    return bool(kept)


def write_report(machines: Mapping[str, Figures]) -> None:
    """Write tables of every kind of processor and every GPU, first of all together, and pictures of the former."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    gpus = {name: results for name, results in machines.items() if "batches" in results}
    processors = {name: results for name, results in machines.items() if name not in gpus}
    body = "\n\n".join([
        "## At a glance",
        *([processors_table(processors.values())] if processors else []),
        *([gpus_table(gpus.values())] if gpus else []),
        *(part for name, results in processors.items() for part in _parts(name, results)),
        *(part for results in gpus.values() for part in gpu_parts(results)),
    ])  # fmt: skip
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")
    for name, results in processors.items():
        (RESULTS / f"{name}.svg").write_text(ratios_picture(results), encoding="utf-8")


def _parts(name: str, results: Figures) -> Iterable[str]:
    yield f"## {results['machine']['processor']}"
    yield machine_line(results["machine"])
    yield f"![Ratios of our devices and peers to LiteRT with XNNPACK]({RESULTS.name}/{name}.svg)"
    for network, title in networks.TITLES.items():
        if network in results:
            yield _network(title, results[network], TARGETS.get(network, {}))
    if "float16" in results:
        yield _network("MobileNet V2 in float16 and in float32", results["float16"], {})
    for network in networks.MOBILENETS:
        if f"opencl-{network}" in results:
            yield _opencl(network, results[f"opencl-{network}"])
    for network in networks.SCALED:
        if f"sizes-{network}" in results:
            yield _scaling(network, results[f"sizes-{network}"])
    for piece, section in (("steadiness", _steadiness), ("inside", _inside), ("start", _start)):
        if piece in results:
            yield section(results[piece])


def machine_line(machine: Figures) -> str:
    """Return a paragraph on what was measured on."""
    devices = "; ".join(f"`{name}` {version}" for name, version in machine["devices"].items())
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads for every engine; "
        f"{machine['system']}, Python {machine['python']}. Devices: {devices}. Versions: {versions}."
    )


def _network(title: str, piece: Figures, targets: Mapping[str, float]) -> str:
    rows = []
    for engine, row in piece["rows"].items():
        if row["problem"]:
            continue
        target = targets.get(engine)
        low, high = row["ratio_quartiles"]
        rows.append((
            engine, f"{row['best_ms']:.3f}", f"{row['median_ms']:.3f}", f"{row['p99_ms'] / row['median_ms']:.2f}",
            str(row["runs"]), f"**{row['ratio']:.2f}** ({low:.2f}-{high:.2f})", _number(row["ratio_near"]),
            _number(row["ratio_far"]), "" if target is None else f"<= {target:.2f}",
            row["difference"] + ("" if row["agrees"] else ", **disagrees**"),
        ))  # fmt: skip
    absent = [f"{engine} ({row['problem']})" for engine, row in piece["rows"].items() if row["problem"]]
    header = ("engine", "best ms", "median ms", "p99 / median", "runs", "ratio to LiteRT (quartiles)", "cores near",
              "cores far", "aim", "from the reference")  # fmt: skip
    note = (
        f"{piece['rounds']} rounds, {piece['rounds_near']} with near cores, {piece['rounds_far']} with far ones; "
        f"{piece['measured']}, load {piece['load']}."
    )
    left_out = f" Left out: {'; '.join(absent)}." if absent else ""
    return f"### {title}\n\n{table(header, rows)}\n\n{note}{left_out}"


def _opencl(name: str, piece: Figures) -> str:
    rows = [
        (engine, f"{row['median_ms']:.2f}", f"{row['ratio']:.1f}", f"{row['first_seconds']:.2f}", row["difference"])
        for engine, row in piece["rows"].items()
        if not row["problem"]
    ]
    absent = "".join(f" {engine}: {row['problem']}." for engine, row in piece["rows"].items() if row["problem"])
    header = ("engine", "median ms", "times ours", "seconds to load and run once", "from the reference")
    title = f"### OpenCL peers on the same PoCL device, {networks.TITLES[name]}"
    return f"{title}\n\n{table(header, rows)}\n\n{piece['measured']}, load {piece['load']}.{absent}"


def _scaling(name: str, piece: Figures) -> str:
    by_engine = piece["rows"]
    rows = []
    for at, first in enumerate(next(iter(by_engine.values()))):
        cells = [
            f"{row['ms']:.2f} ms, {row['picoseconds']:.2f} ps, {row['over_best']:.2f}"
            if (row := found[at])["ms"] else row["problem"]
            for found in by_engine.values()
        ]  # fmt: skip
        rows.append((f"{first['batches']} x {first['size']} x {first['size']}", *cells))
    title = f"### {networks.TITLES[name]}: more pictures at once, and larger ones"
    note = (
        "Time, time per multiply-add, and that over the engine's own best of the column in the same rounds "
        f"(aim for ours: <= 1.3). {piece['rounds']} rounds; {piece['measured']}, load {piece['load']}."
    )
    return f"{title}\n\n{table(('input', *by_engine), rows)}\n\n{note}"


def _steadiness(piece: Figures) -> str:
    rows = []
    for network, figures in piece["rows"].items():
        cells = ("{:.2f} ({:.2f}-{:.2f})".format(one["p99"], *one["range"]) for one in figures.values())
        least = (str(min(one[what] for one in figures.values())) for what in ("runs", "rounds"))
        rows.append((networks.TITLES[network], *cells, *least))
    header = ("network", *next(iter(piece["rows"].values())), "least runs", "rounds")
    note = (
        "So many runs of each engine without a pause, or more, one engine after the other; the median, the least and "
        f"the greatest over the rounds. Aim: ours no greater than LiteRT's. {piece['measured']}, load {piece['load']}."
    )
    return f"### 99th percentile over the median\n\n{table(header, rows)}\n\n{note}"


def _inside(piece: Figures) -> str:
    rows = [
        (
            networks.TITLES[row["network"]], row["engine"], f"{row['in_driver_minus_on_device_us']:.0f}",
            f"{row['measuring_costs']:+.1%}", f"{row['profiling_costs']:+.1%}", str(row.get("programs_built", "-")),
            f"{row['temporary_bytes']:,}", f"{row['temporary_ratio']:.3f}",
        )
        for row in piece["rows"]
    ]  # fmt: skip
    header = ("network", "device", "in driver - on device, us", "measuring costs", "profiling costs", "programs",
              "bytes of temporaries", "of the largest live sum")  # fmt: skip
    note = (
        "Aims: at most 100 us, 3 %, 6 programs, 1.1. Measuring is `run(measure=True)`: the device's clock for the "
        "whole run. Profiling is `run(profile=True)`: a time for every operation. "
        f"{piece['measured']}, load {piece['load']}."
    )
    return f"### What the driver adds\n\n{table(header, rows)}\n\n{note}"


def _start(piece: Figures) -> str:
    rows = []
    for network in dict.fromkeys(row["network"] for row in piece["rows"]):
        of_engine = {row["engine"]: row for row in piece["rows"] if row["network"] == network}
        found = (of_engine.get(engine, {}).get(key) for engine, key in _STARTS)
        rows.append((networks.TITLES[network], *("-" if one is None else f"{one:.2f}" for one in found)))
    return (
        f"### From process start to the first answer\n\n{table(('network', *_STARTS.values()), rows)}\n\n"
        "Seconds; LiteRT keeps nothing between processes. "
        f"Aims for MobileNet V2 float32 on PoCL: 4 and 0.6. {piece['measured']}, load {piece['load']}."
    )


def gpu_parts(results: Figures) -> Iterable[str]:
    """Yield the section of a GPU, as `gpus.py` measures it."""
    device, machine = results["device"], results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    yield f"## {device['title']}"
    yield (
        f"Device: `{device['name']}`, {device['version']}. Host: {machine['processor']}, {machine['cores']} cores; "
        f"{machine['system']}, Python {machine['python']}. Versions: {versions}. Measured {results['measured']}."
    )
    for piece in results["batches"]:
        yield _gpu_batch(piece["batch"], piece["rows"], device["name"])
    yield _gpu_inside(results["inside"])


def _gpu_batch(batch: int, entries: Sequence[Figures], device: str) -> str:
    rows = [
        (
            "ours" if row["engine"] == device else row["engine"], row["numbers"], row["place"],
            f"{row['best_ms']:.3f}", f"{row['median_ms']:.3f}", f"{batch * 1e3 / row['median_ms']:.0f}",
            f"**{row['ratio']:.2f}**" if row["peer_ran"] else "-",
            row["difference"] + ("" if row["agrees"] else ", **disagrees**"),
        )
        for row in entries
        if not row["problem"]
    ]  # fmt: skip
    reasons = dict.fromkeys(f"{row['engine']} ({row['problem']})" for row in entries if row["problem"])
    left_out = f" Left out: {'; '.join(reasons)}." if reasons else ""
    header = ("engine", "numbers", "data", "best ms", "median ms", "pictures/s", "ratio to PyTorch",
              "from the reference")  # fmt: skip
    title = f"### MobileNet V2, {batch} {'picture' if batch == 1 else 'pictures'} at once"
    note = (
        "Data from the host: it is copied to the GPU and the output back in every run. The ratio is to PyTorch with "
        f"its data in the same place, in float32 or, for float16 and 8 bits, in float16.{left_out}"
    )
    return f"{title}\n\n{table(header, rows)}\n\n{note}"


def _gpu_inside(entries: Sequence[Figures]) -> str:
    rows = [
        (
            row["numbers"], str(row["batch"]), str(row["launches"]), _number(row["on_device_us"], 1),
            _number(row["in_driver_minus_on_device_us"], 1), _number(row["in_launches_us"], 1),
            _number(row["idle_us"], 1), _number(row["median_gap_us"]), _part(row["of_peak"]),
            _part(row["of_roofline"]), _part(row["of_memory"]),
        )
        for row in entries
        if not row["problem"]
    ]  # fmt: skip
    failed = "".join(
        f" {row['numbers']}, {row['batch']} at once: {row['problem']}." for row in entries if row["problem"]
    )
    peaks: Figures = next((row["peaks"] for row in entries if row.get("peaks")), {})
    measured = ", ".join(f"{name} {rate:,.0f}" for name, rate in peaks.items())
    header = ("numbers", "pictures", "launches", "on device, us", "in driver - on device, us", "in launches, us",
              "idle between them, us", "median gap, us", "convolutions: of peak", "of the roofline",
              "depthwise: of memory")  # fmt: skip
    note = (
        "By `nnrt benchmark --profile`: launches and what lies between them are of profiled runs, which launch every "
        "operation by itself; in other runs small ones in a row are one launch. Of peak: the time that the device's "
        "measured peak for these numbers allows, over the time taken, of all convolutions but depthwise ones; of the "
        "roofline: the same where the memory's peak allows less; of memory: by that alone, of depthwise ones. Peaks, "
        "operations or bytes a nanosecond: "
        f"{measured or '-'}.{failed}"
    )
    return f"### Inside the driver\n\n{table(header, rows)}\n\n{note}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"

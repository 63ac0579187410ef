# SPDX-License-Identifier: Apache-2.0
"""`nnrt benchmark --html`: one page with a roofline and bars of time, nothing loaded from elsewhere."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from nn_runtime.cli.labels import HEIGHT, Box, Dot, placed, text_box
from nn_runtime.cli.timings import OUTSIDE
from nn_runtime.reports import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from nn_runtime.cli.labels import Label
    from nn_runtime.cli.timings import Launch, Report
    from nn_runtime.hal.peaks import Arithmetic, Peaks

_COLOURS = (
    *("#2f7ed8", "#d9822b", "#1c9c63", "#b5489a", "#7a6ff0", "#c23b3b", "#3aa6b9", "#8c7a3f"),
    *("#e377c2", "#17608f", "#9ac33a", "#6b3fa0", "#a0522d", "#e0b020", "#0f7b6c", "#d45d79"),
)
_OTHER = "#8a8f98"
_KINDS: Mapping[Arithmetic, str] = {"quant8": "8-bit", "float16": "float16", "float32": "float32"}
_LABELLED = 8
_ONE_LINE = 28
"""Lists of at most so many characters stay in one line of the table."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 920, 440, 64, 46
_INDENT = 14
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2127;--soft:#6b7280;--line:#d7dae0;--page:#fff;--panel:#f6f7f9}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#9aa3af;--line:#3a3f47;--page:#15171b;--panel:#1d2025}}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1000px;margin:2em auto;
padding:0 1em}
h1,p{overflow-wrap:anywhere}h1{font-size:1.4em;margin:0 0 .2em}h2{font-size:1.1em;margin:2em 0 .4em}
p{margin:.3em 0;color:var(--soft)}
.wide{overflow-x:auto}svg{width:100%;min-width:680px;height:auto;background:var(--panel);border-radius:8px}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .soft{fill:var(--soft)}
.grid{stroke:var(--line)}.roof{stroke:var(--ink);stroke-width:1.6;fill:none}.thin{stroke-dasharray:5 4;stroke-width:1.2}
.lead{stroke:var(--soft);stroke-width:.8}.behind{fill:var(--panel);fill-opacity:.8}
.dot{stroke:var(--page);stroke-width:1;fill-opacity:.85}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:3px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500}
td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}td.none{color:var(--soft)}td.long{white-space:normal;min-width:12em}
td.bar{width:26%;padding-right:0}td.bar i{display:block;height:11px;border-radius:3px;min-width:1px}
.legend span{display:inline-block;margin-right:1.2em;color:var(--ink)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:5px;margin-right:.4em}
"""


def profile_page(title: str, report: Report) -> str:
    """Return the page as HTML; every text in it is escaped."""
    colours = _colours(report.launches)
    parts = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in (*_summary(report), " ".join(report.circumstances))),
        *(_roofline(device, peaks, report.launches, colours) for device, peaks in report.peaks.items()),
        "<h2>Time of every launch, in run order</h2>",
        f'<p class="legend">{_legend(colours)}</p>',
        _bars(report, colours),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = "".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'


def _summary(report: Report) -> list[str]:
    placed = ", ".join(f"{counted(count, 'operation')} on {device}" for device, count in report.devices.items())
    lines = [
        f"{placed}. Median {duration_text(report.inference.p50)}, 90th percentile "
        f"{duration_text(report.inference.p90)} over {counted(report.inference.count, 'run')} without profiling."
    ]
    if report.profiled is not None:
        lines.append(
            f"Runs with profiling take {duration_text(report.profiled.p50)} "
            f"({report.profiling_cost(report.profiled)}), of which "
            f"{duration_text(report.outside_launches(report.profiled))} in no launch ({OUTSIDE}). {report.profile_note}"
        )
    return [line.rstrip() for line in lines]


def _colours(launches: Sequence[Launch]) -> dict[str, str]:
    """Return a colour by node type, those that take most time first."""
    totals: dict[str, float] = {}
    for launch in launches:
        totals[launch.node_type] = totals.get(launch.node_type, 0.0) + launch.median
    names = sorted(totals, key=lambda name: -totals[name])
    return {name: _COLOURS[at] if at < len(_COLOURS) else _OTHER for at, name in enumerate(names)}


def _legend(colours: Mapping[str, str]) -> str:
    return "".join(
        f'<span><i style="background:{colour}"></i>{_breakable(name)}</span>' for name, colour in colours.items()
    )


def _list_cell(names: str) -> str:
    if len(names) <= _ONE_LINE:
        return f"<td>{escape(names)}</td>"
    return f'<td class="long">{_breakable(names)}</td>'


def _breakable(name: str) -> str:
    """Return the HTML of a list of operations, which may go on in the next line."""
    return escape(name).replace("+", "+<wbr>").replace(",", ",<wbr>")


def _bars(report: Report, colours: Mapping[str, str]) -> str:
    """Return the table of launches; the last row is the time that a run spends in none."""
    header = ("number", "launch", "operations", "result", "median", "share", "G op/s", "GB/s", "of roof", "time")
    outside = 0.0 if report.profiled is None else report.outside_launches(report.profiled)
    longest = max((outside, *(launch.median for launch in report.launches)), default=1.0) or 1.0
    rows: list[str] = []
    for launch in report.launches:
        names = (launch.node_type, ",".join(map(str, launch.operations)))
        cells = (
            launch.result, duration_text(launch.median), f"{launch.share:.1%}",
            f"{launch.rates.operations_per_ns:.0f}" if launch.flops else "",
            f"{launch.rates.bytes_per_ns:.1f}" if launch.bytes_moved else "",
            "" if launch.rates.of_roof is None else f"{launch.rates.of_roof:.0%} {launch.rates.bound[:1]}",
        )  # fmt: skip
        bar = f'<i style="width:{launch.median / longest:.1%};background:{colours[launch.node_type]}"></i>'
        rows.append(
            f'<tr title="{escape(launch.kernel)}"><td>{len(rows)}</td>'
            + "".join(map(_list_cell, names))
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + f'<td class="bar">{bar}</td></tr>'
        )
    bar = f'<i style="width:{outside / longest:.1%};background:{_OTHER}"></i>'
    rows.append(
        f'<tr title="{OUTSIDE}"><td></td><td class="none">in no launch</td>'
        f'<td></td><td></td><td>{escape(duration_text(outside))}</td>{"<td></td>" * 4}<td class="bar">{bar}</td></tr>'
    )
    heads = "".join(f"<th>{name}</th>" for name in header)
    return f'<div class="wide"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'


class _Axes:
    """Two logarithmic axes."""

    def __init__(self, xs: Iterable[float], ys: Iterable[float]) -> None:
        xs, ys = list(xs), list(ys)
        self.x0, self.x1 = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
        self.y0, self.y1 = math.floor(math.log10(min(ys))), math.log10(max(ys) * 1.6)

    def x(self, value: float) -> float:
        """Return where a value lies, in pixels."""
        part = (math.log10(value) - self.x0) / max(1, self.x1 - self.x0)
        return _LEFT + part * (_WIDTH - _LEFT - 24)

    def y(self, value: float) -> float:
        """Return where a value lies, in pixels."""
        part = (math.log10(value) - self.y0) / max(0.1, self.y1 - self.y0)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - 24)

    @property
    def area(self) -> Box:
        """The rectangle between the axes."""
        return Box(_LEFT, 20, _WIDTH - 24, _HEIGHT - _BOTTOM)

    @property
    def bottom(self) -> float:
        """The least value of the axis upwards."""
        return 10.0**self.y0

    def grid(self) -> str:
        """Return the lines and numbers of whole powers of ten; upwards of others, too, where there is but one."""
        lines = []
        upwards = [10.0**power for power in range(self.y0, math.floor(self.y1) + 1)]
        if len(upwards) == 1:
            upwards += [value for value in (2 * self.bottom, 5 * self.bottom) if math.log10(value) <= self.y1]
        for power in range(self.x0, self.x1 + 1):
            x = self.x(10.0**power)
            lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{_HEIGHT - _BOTTOM}"/>')
            lines.append(
                f'<text class="soft" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
                f'text-anchor="middle">{10.0**power:g}</text>'
            )
        for value in upwards:
            y = self.y(value)
            lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 24}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(f'<text class="soft" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        return "".join(lines)


def _roofline(device: str, peaks: Peaks, launches: Sequence[Launch], colours: Mapping[str, str]) -> str:
    points = [one for one in launches if one.device == device and one.flops and one.bytes_moved and one.median > 0]
    if not points:
        return ""
    xs = [one.flops / one.bytes_moved for one in points]
    arithmetic = _arithmetic_peaks(peaks, {one.arithmetic for one in points})
    top = max(arithmetic.values())
    axes = _Axes([*xs, 2 * top / peaks.cache], [*(one.rates.operations_per_ns for one in points), top])
    left, right = 10.0**axes.x0, 10.0**axes.x1
    roofs = [_roof(axes, left, right, rate, peaks.cache, _roof_name(name, rate)) for name, rate in arithmetic.items()]
    memory = _slope(axes, left, min(right, top / peaks.memory), peaks.memory)
    slowest = sorted(zip(points, xs, strict=True), key=lambda pair: -pair[0].median)
    dots = "".join(_dot(axes, one, x, colours[one.node_type]) for one, x in slowest)
    marks = [
        Dot(axes.x(x), axes.y(one.rates.operations_per_ns), _radius(one), str(launches.index(one)) * (at < _LABELLED))
        for at, (one, x) in enumerate(slowest)
    ]
    names = [
        text_box(axes.x(right) - 4 - 7.2 * len(name), axes.y(rate) - 7, name)
        for name, rate in ((_roof_name(name, rate), rate) for name, rate in arithmetic.items())
    ]
    labels = "".join(_label(label) for label in placed(marks, axes.area, names))
    cache = _slope(axes, left, min(right, top / peaks.cache), peaks.cache)
    slopes = _slope_name(axes, cache, f"cache {peaks.cache:.0f} GB/s", -6)
    slopes += _slope_name(axes, memory, f"memory {peaks.memory:.0f} GB/s", 15)
    axis_names = (
        f'<text class="soft" x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">operations per byte</text>'
        f'<text class="soft" transform="translate(16,{_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">G op/s</text>'
    )
    return (
        f"<h2>Roofline of {escape(device)}</h2><p>A dot is a launch that does arithmetic, larger where it takes "
        "longer; the numbers are those of the table below, where a and m say whether arithmetic or the caches are the "
        f"roof. Lines are the peaks measured on this device: caches {peaks.cache:.0f} GB/s, memory "
        f"{peaks.memory:.0f} GB/s.</p>"
        f'<div class="wide"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{axes.grid()}{"".join(roofs)}'
        f'<path class="roof thin" d="{_path(axes, memory)}"/>{slopes}{dots}{labels}{axis_names}</svg></div>'
    )


def _arithmetic_peaks(peaks: Peaks, kinds: Set[Arithmetic]) -> Mapping[str, float]:
    """Return the peaks of these kinds by name, those that are equal under one."""
    names: dict[float, str] = {}
    for kind, name in _KINDS.items():
        rate = peaks.of_arithmetic(kind)
        if kind in kinds:
            names[rate] = f"{names[rate]}, {name}" if rate in names else name
    return {name: rate for rate, name in names.items()}


def _roof_name(name: str, rate: float) -> str:
    return f"{name} {rate:.0f} G op/s"


def _label(label: Label) -> str:
    """Return a text, and the line to its dot where that is not beside it."""
    x, y = (label.box.left + label.box.right) / 2, (label.box.top + label.box.bottom) / 2
    line = (
        f'<line class="lead" x1="{label.dot.x:.1f}" y1="{label.dot.y:.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'
        f'<rect class="behind" x="{label.box.left:.1f}" y="{label.box.top:.1f}" '
        f'width="{label.box.right - label.box.left:.1f}" height="{HEIGHT:.0f}"/>'
    )
    text = f'<text x="{x:.1f}" y="{y + HEIGHT * 0.35:.1f}" text-anchor="middle">{label.dot.text}</text>'
    return line + text if label.is_far else text


def _slope(axes: _Axes, left: float, right: float, bandwidth: float) -> list[tuple[float, float]]:
    """Return the ends of a bandwidth's line as far as it lies on the picture, nothing where it does not."""
    start = max(left, axes.bottom / bandwidth)
    return [(start, start * bandwidth), (right, right * bandwidth)] if start < right else []


def _slope_name(axes: _Axes, line: Sequence[tuple[float, float]], name: str, below: int) -> str:
    """Return a name, written along a bandwidth's line so many pixels below it, nothing where the line is shorter."""
    if not line:
        return ""
    (x0, y0), (x1, y1) = ((axes.x(x), axes.y(y)) for x, y in line)
    across, up = x1 - x0, y0 - y1
    if math.hypot(across, up) < _INDENT + text_box(0, 0, name).right:
        return ""
    angle = math.atan2(up, across)
    x, y = x0 + _INDENT * math.cos(angle), y0 - _INDENT * math.sin(angle)
    turned = f"translate({x:.1f},{y:.1f}) rotate({-math.degrees(angle):.1f})"
    return f'<text class="soft" transform="{turned}" dy="{below}">{name}</text>'


def _roof(axes: _Axes, left: float, right: float, rate: float, bandwidth: float, name: str) -> str:
    knee = min(max(rate / bandwidth, left), right)
    path = _path(axes, [*_slope(axes, left, knee, bandwidth)[:1], (knee, rate), (right, rate)])
    return (
        f'<path class="roof" d="{path}"/><text x="{axes.x(right) - 4:.0f}" y="{axes.y(rate) - 7:.0f}" '
        f'text-anchor="end">{escape(name)}</text>'
    )


def _path(axes: _Axes, points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points) if points else ""


def _radius(launch: Launch) -> float:
    return 3 + 16 * math.sqrt(launch.share)


def _dot(axes: _Axes, launch: Launch, x: float, colour: str) -> str:
    roof = "" if launch.rates.of_roof is None else f", {launch.rates.of_roof:.0%} of the roof"
    speed = f"{duration_text(launch.median)}, {launch.rates.operations_per_ns:.0f} G op/s{roof}"
    text = f"{launch.node_type} {','.join(map(str, launch.operations))}: {speed}"
    place = f'cx="{axes.x(x):.1f}" cy="{axes.y(launch.rates.operations_per_ns):.1f}" r="{_radius(launch):.1f}"'
    return f'<circle class="dot" {place} fill="{colour}"><title>{escape(text)}</title></circle>'

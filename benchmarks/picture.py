# SPDX-License-Identifier: Apache-2.0
"""A picture of docs/PERFORMANCE.md: bars of ratios to LiteRT with XNNPACK, as SVG for light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import networks

if TYPE_CHECKING:
    from measure import Figures

SHOWN = {
    "PoCL": "ours, PoCL",
    "Intel": "ours, Intel's OpenCL",
    "LiteRT XNNPACK": "LiteRT XNNPACK",
    "ONNX Runtime": "ONNX Runtime",
    "OpenVINO": "OpenVINO",
}
COLOURS = {
    "PoCL": "#1c7c54",
    "Intel": "#2f6fb3",
    "LiteRT XNNPACK": "#8a8a8a",
    "ONNX Runtime": "#b08bc9",
    "OpenVINO": "#d9a441",
}
PICTURED = (networks.FLOAT, networks.QUANT, networks.PER_CHANNEL, networks.DEEPLAB)
LEFT, BAR, GAP, WIDTH, SCALE = 150, 18, 30, 760, 230
LONGEST = 2.3


def ratios_picture(results: Figures) -> str:
    """Return the SVG."""
    y = 40
    parts: list[str] = []
    for name in PICTURED:
        if name not in results:
            continue
        parts.append(f'<text x="12" y="{y}" class="title">{escape(networks.TITLES[name])}</text>')
        y += 10
        top = y
        for engine, label in SHOWN.items():
            row = results[name]["rows"].get(engine, {"problem": "absent"})
            if row["problem"]:
                continue
            length = min(row["ratio"], LONGEST) * SCALE
            text = f"{row['ratio']:.2f}  ({row['median_ms']:.2f} ms)"
            parts += [
                f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR - 4}" rx="2" fill="{COLOURS[engine]}"/>',
                f'<text x="{LEFT + length + 6:.0f}" y="{y + 12}">{escape(text)}</text>',
            ]
            y += BAR
        parts.append(f'<line x1="{LEFT + SCALE}" x2="{LEFT + SCALE}" y1="{top - 4}" y2="{y}" class="one"/>')
        y += GAP
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1d1f22}.title{font-weight:600;font-size:13px}"
        ".one{stroke:#1d1f22;stroke-dasharray:3 3}.page{fill:#fff}"
        "@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.one{stroke:#e6e6e6}.page{fill:#16181c}}"
    )
    head = "time beside LiteRT with XNNPACK, paired runs, 2 threads: shorter is faster, the dashed line is LiteRT"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{head}">'
        f'<style>{style}</style><rect class="page" width="{WIDTH}" height="{y}"/>'
        f'<text x="12" y="18">{head}</text>{"".join(parts)}</svg>\n'
    )

# SPDX-License-Identifier: Apache-2.0
"""benchmarks/summary.py: the tables of all processors and GPUs."""

from __future__ import annotations

from typing import Any


def rows_of(**ratios: float | None) -> dict[str, Any]:
    """Figures of engines by name; None for one that did not run."""
    names = {name.replace("_", " "): ratio for name, ratio in ratios.items()}
    return {
        "rows": {name: {"problem": "" if ratio else "absent", "ratio": ratio or 0.0} for name, ratio in names.items()}
    }


def test_every_processor_has_a_row_that_leads_to_its_section() -> None:
    import summary

    float32 = "mobilenet_v2_1.0_224_float"
    first = {
        "machine": {"processor": "EPYC (family 25, model 1; no AVX-512)"},
        float32: rows_of(PoCL=0.934, Intel=0.956, LiteRT_XNNPACK=1.0),
        "deeplabv3_mnv2_pascal_quant": rows_of(PoCL=0.5, Intel=None),
        f"opencl-{float32}": rows_of(PoCL=1.0, tinygrad_OpenCL=10.9, OpenCV_OpenCL=70.2),
    }
    second = {"machine": {"processor": "other"}}
    header, _, *rows = summary.processors_table([first, second]).splitlines()[2:]
    assert header.startswith("| processor | MobileNet V2 float32 | MobileNet V2 8-bit per tensor |")
    assert rows == [
        "| [EPYC (family 25, model 1; no AVX-512)](#epyc-family-25-model-1-no-avx-512) | 0.93 / 0.96 | - | - | 0.50 "
        "| - | - | - | 11 / 70 |",
        "| [other](#other) | - | - | - | - | - | - | - | - |",
    ]


def test_a_gpu_has_a_row_for_every_number_of_pictures() -> None:
    import summary

    def row(engine: str, numbers: str, place: str, ratio: float, **more: Any) -> dict[str, Any]:
        figures = {"numbers": numbers, "place": place, "ratio": ratio, "problem": "", "peer_ran": True}
        return {"engine": engine, **figures, **more}

    one = [
        row("gpu-0", "float32", "from the host", 0.65),
        row("gpu-0", "float32", "on the device", 0.5),
        row("PyTorch", "float32", "on the device", 1.0),
        row("gpu-0", "float16", "on the device", 0.0, problem="no room"),
        row("gpu-0", "float16", "from the host", 0.7, peer_ran=False),
    ]
    device = {"title": "Some GPU", "name": "gpu-0"}
    found = summary.gpus_table([{"device": device, "batches": [{"batch": 1, "rows": one}, {"batch": 64, "rows": []}]}])
    assert found.splitlines()[2:] == [
        "| GPU | pictures at once | float32 | float16 |",
        "|---|---|---|---|",
        "| [Some GPU](#some-gpu) | 1 | 0.50 / 0.65 | - |",
        "| [Some GPU](#some-gpu) | 64 | - | - |",
    ]

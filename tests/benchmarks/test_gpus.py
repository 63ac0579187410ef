# SPDX-License-Identifier: Apache-2.0
"""benchmarks/gpus.py: what it makes of a profile, its section of the report, data that stays on the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn

if TYPE_CHECKING:
    from nn_runtime.device import Device

ROOT = Path(__file__).parents[2]
NETWORK = ROOT / "nn_runtime" / "demo" / "digits_float.tflite"


def launch(kind: str, start: float, median: float, **more: Any) -> dict[str, Any]:
    counts = {"flops": 0, "bytes_moved": 0, "arithmetic": "float32"}
    return {"node_type": kind, "start": start, "median": median, **counts, **more}


def test_parts_of_peaks_and_gaps_of_a_profile() -> None:
    """Convolutions: 3000 operations by float32 (peak 2) and 4000 by halves (peak 8) take 2000 ns at best, of 4000.

    The latter's bytes take 900 ns in place of 500.
    """
    import gpus

    launches = [
        launch("CONV_2D", 0, 3000, flops=3000, arithmetic="float32"),
        launch("DEPTHWISE_CONV_2D", 5000, 1000, flops=10, bytes_moved=400),
        launch("CONV_2D+ADD", 6000, 1000, flops=4000, bytes_moved=900, arithmetic="float16"),
        launch("SOFTMAX", 7500, 500),
    ]
    peaks = {"float32": 2.0, "float16": 8.0, "quant8": 16.0, "cache": 4.0, "memory": 1.0}
    timed = {"on_device": {"p50": 9000.0}, "in_driver": {"p50": 12000.0}}
    found = gpus.inside_figures({"launches": launches, "timed": timed, "peaks": {"gpu": peaks}}, "gpu")
    assert (found["of_peak"], found["of_roofline"], found["of_memory"]) == (0.5, 0.6, 0.4)
    assert (found["launches"], found["in_launches_us"], found["idle_us"]) == (4, 5.5, 2.5)
    assert (found["on_device_us"], found["in_driver_minus_on_device_us"]) == (9.0, 3.0)
    assert found["median_gap_us"] == 0.5
    unknown = gpus.inside_figures({"launches": launches, "timed": None, "peaks": {}}, "gpu")
    assert (unknown["of_peak"], unknown["on_device_us"]) == (None, None)


def test_section_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import report

    document = tmp_path / "P.md"
    monkeypatch.setattr(report, "DOCUMENT", document)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    document.write_text(f"{report.BEGIN}\n{report.END}\n")
    times = {"problem": "", "best_ms": 0.4, "median_ms": 0.5, "ratio": 0.8, "agrees": True, "difference": "1e-6"}
    rows = [
        {"engine": "opencl-x-0", "numbers": "float32", "place": "on the device", "peer_ran": True, **times},
        {"engine": "opencl-x-0", "numbers": "float16", "place": "on the device", "peer_ran": False, **times},
        {"engine": "ORT", "numbers": "float32", "place": "from the host", "peer_ran": False, "problem": "no module"},
        {"engine": "ORT", "numbers": "float16", "place": "from the host", "peer_ran": False, "problem": "no module"},
    ]
    inside = {
        **{"numbers": "float32", "batch": 64, "problem": "", "launches": 55, "on_device_us": 410.0},
        **{"in_driver_minus_on_device_us": None, "in_launches_us": 300.0, "idle_us": 100.0, "median_gap_us": 2.0},
        **{"of_peak": 0.61, "of_roofline": 0.7, "of_memory": 0.5, "peaks": {"float32": 50000.0}},
    }
    machine = {"processor": "cpu", "cores": 2, "system": "os", "python": "3", "versions": {"torch": "2"}}
    report.write_report({
        "gpu-x": {
            **{"machine": machine, "device": {"name": "opencl-x-0", "title": "X", "version": "1"}, "measured": "today"},
            "batches": [{"batch": 64, "rows": rows}],
            "inside": [inside, {"numbers": "float16", "batch": 1, "problem": "out of memory"}],
        }
    })  # fmt: skip
    text = document.read_text()
    assert "## X\n" in text
    assert "| ours | float32 | on the device | 0.400 | 0.500 | 128000 | **0.80** | 1e-6 |" in text
    assert "| ours | float16 | on the device | 0.400 | 0.500 | 128000 | - | 1e-6 |" in text
    assert text.count("ORT (no module)") == 1
    assert "| float32 | 64 | 55 | 410.0 | - | 300.0 | 100.0 | 2.00 | 61% | 70% | 50% |" in text
    assert "float32 50,000" in text
    assert "float16, 1 at once: out of memory." in text
    assert not list(tmp_path.glob("*.svg"))


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpus

    monkeypatch.setattr(gpus.nn, "devices", list)
    with pytest.raises(SystemExit, match="OpenCL has no GPU here"):
        gpus._devices(None)
    with pytest.raises(SystemExit, match="no_such_device"):
        gpus._devices("no_such_device")


def test_every_engine_has_a_peer_that_is_measured() -> None:
    import gpus

    entries = list(gpus._entries("opencl:x"))
    assert len(entries) == len(set(entries)) == 15
    for _, numbers, place in entries:
        assert (gpus.PYTORCH, gpus._peer_numbers(numbers), place) in entries


@pytest.mark.parametrize("halves", [False, True])
def test_data_that_stays_on_the_device(halves: bool, device: Device) -> None:
    import gpu_engines
    import networks

    content = NETWORK.read_bytes()
    inputs = [np.random.default_rng(0).uniform(0, 1, nn.load(content).inputs[0].shape).astype(np.float32)]
    given = [inputs[0].astype(np.float16)] if halves else inputs
    wanted = nn.load(networks.halved(content) if halves else content).compile(device=device.name).run(given)[0]
    run = gpu_engines.ours_on_device(content, device.name, halves=halves)
    outputs = [np.asarray(run(inputs)), np.asarray(run(inputs)), np.asarray(run([1 - inputs[0]]))]
    np.testing.assert_array_equal(outputs[0], wanted)
    np.testing.assert_array_equal(outputs[1], wanted)
    assert not np.array_equal(outputs[2], wanted)


def test_a_network_in_pytorch_agrees() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import conversion
    import networks
    import torch_network

    if networks.missing():
        pytest.skip("the trained networks are not there (NNRT_MODEL_DIR)")
    picture, wanted = networks.golden(networks.FLOAT)
    content = networks.rescaled(networks.model_bytes(networks.FLOAT), 2, picture.shape[1])
    network = torch_network.Network(conversion.to_onnx(content)).eval()
    with torch.no_grad():
        found = network(torch.from_numpy(np.repeat(picture, 2, axis=0))).numpy()
    np.testing.assert_allclose(found, np.repeat(wanted, 2, axis=0), rtol=0, atol=1e-5)

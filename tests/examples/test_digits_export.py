# SPDX-License-Identifier: Apache-2.0
"""The digit example: its exporter, and the files committed for `nnrt demo`."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tflite

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "digits"
ASSETS = ROOT / "nn_runtime" / "demo"


@pytest.fixture(scope="module")
def export() -> ModuleType:
    """Load the exporter, which lies beside the example's script and in no package."""
    spec = importlib.util.spec_from_file_location("digits_export", EXAMPLE / "export.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def quantized_file(export: ModuleType, weights: tuple[float, float]) -> bytes:
    """CONV_2D of two 1x1 filters (biases 0.5 and -1, outputs in 0..2.55), then MAX_POOL_2D, as an int8 file."""
    graph = export.Graph("toy")
    source = graph.add_input("source", (1, 2, 2, 1))
    filters = np.array(weights, np.float32).reshape(2, 1, 1, 1)
    conv = graph.add_conv_2d("conv", source, filters, np.array([0.5, -1], np.float32), export.RELU)
    graph.outputs.append(graph.add_max_pool_2d("pool", conv, 2))
    inputs = {"source": export.Quantization((1 / 16,), (0,))}
    file: bytes = export.serialize(export.quantize(graph, {"conv": (0.0, 2.55)}, inputs))
    return file


def test_quantized_tensors(export: ModuleType) -> None:
    """Scales, zero points and stored integers, worked out by hand."""
    model = tflite.Model.GetRootAs(quantized_file(export, (1.27, -0.5)))
    subgraph = model.Subgraphs(0)
    tensors = {subgraph.Tensors(i).Name().decode(): subgraph.Tensors(i) for i in range(subgraph.TensorsLength())}
    scales = {name: tensor.Quantization().ScaleAsNumpy() for name, tensor in tensors.items()}
    zero_points = {name: tensor.Quantization().ZeroPointAsNumpy().tolist() for name, tensor in tensors.items()}

    def stored(name: str, dtype: type[np.generic]) -> list[int]:
        integers: list[int] = model.Buffers(tensors[name].Buffer()).DataAsNumpy().view(dtype).tolist()
        return integers

    np.testing.assert_allclose(scales["conv/weights"], [0.01, 0.5 / 127], rtol=1e-6)
    assert stored("conv/weights", np.int8) == [127, -127]
    np.testing.assert_allclose(scales["conv/bias"], [0.01 / 16, 0.5 / 127 / 16], rtol=1e-6)
    assert stored("conv/bias", np.int32) == [800, -4064]
    np.testing.assert_allclose([scales["conv"], scales["pool"]], 0.01, rtol=1e-6)
    assert zero_points == {
        "source": [0],
        "conv/weights": [0, 0],
        "conv/bias": [0, 0],
        "conv": [-128],
        "pool": [-128],
    }


def test_constants_are_aligned(export: ModuleType) -> None:
    """Every constant starts at a multiple of 16 bytes, so that it may be used where it lies in the file."""
    file = np.frombuffer(quantized_file(export, (1, 2)), np.uint8)
    model = tflite.Model.GetRootAs(file)
    constants = [model.Buffers(i).DataAsNumpy() for i in range(model.BuffersLength()) if model.Buffers(i).DataLength()]
    assert [(constant.ctypes.data - file.ctypes.data) % 16 for constant in constants] == [0, 0]


def test_signature_and_versions(export: ModuleType) -> None:
    """The signature names the interface; int8 operators carry the version that introduced int8."""
    model = tflite.Model.GetRootAs(quantized_file(export, (1, 2)))
    signature = model.SignatureDefs(0)
    assert (signature.SignatureKey(), signature.Inputs(0).Name(), signature.Outputs(0).Name()) == (
        b"serving_default",
        b"source",
        b"pool",
    )
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    assert {code.BuiltinCode(): code.Version() for code in codes} == {
        tflite.BuiltinOperator.CONV_2D: 3,
        tflite.BuiltinOperator.MAX_POOL_2D: 2,
    }


def test_refusals(export: ModuleType) -> None:
    """What cannot be exported is refused with the reason."""
    with pytest.raises(ValueError, match="0 for a whole output channel"):
        quantized_file(export, (0, 1))
    with pytest.raises(ValueError, match="bias this large"):
        quantized_file(export, (1e-9, 1))
    graph = export.Graph("toy")
    graph.add_input("x", (1,))
    with pytest.raises(ValueError, match="already a tensor 'x'"):
        graph.add_input("x", (1,))


def test_held_back_scans() -> None:
    """The committed scans are whole, of every digit, and say where they come from."""
    with np.load(ASSETS / "digits_test.npz") as data:
        images, labels, source, licence = (data[name] for name in ("images", "labels", "source", "licence"))
    assert (images.shape, images.dtype, images.min(), images.max()) == ((360, 8, 8), np.uint8, 0, 16)
    assert (labels.shape, labels.dtype) == ((360,), np.uint8)
    assert np.bincount(labels).min() >= 35
    assert "UCI Machine Learning Repository" in str(source)
    assert "CC BY 4.0" in str(licence)


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_stated_accuracy(kind: str) -> None:
    """LiteRT's reference kernels, another implementation than ours, reach the stated accuracy, at least 98 %."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    with np.load(ASSETS / "digits_test.npz") as data:
        images, labels = data["images"][..., None], data["labels"]
    scans = images.astype(np.int8) if kind == "int8" else (images / 16).astype(np.float32)
    interpreter = litert.Interpreter(
        model_content=(ASSETS / f"digits_{kind}.tflite").read_bytes(),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
    )
    run = interpreter.get_signature_runner("serving_default")
    answers = np.array([run(scan=scan[None])["probabilities"].argmax() for scan in scans])
    accuracy = (answers == labels).mean()
    stated = json.loads((EXAMPLE / "accuracy.json").read_text())["accuracy"][f"tflite_{kind}"]
    assert accuracy == pytest.approx(stated, abs=5e-5)
    assert accuracy >= 0.98

# SPDX-License-Identifier: Apache-2.0
"""Train the digit network of `nnrt demo` on real scans and export it to .tflite, as float and as 8-bit.

Writes digits_float.tflite, digits_int8.tflite and digits_test.npz into nn_runtime/demo, accuracy.json beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from export import NO_ACTIVATION, RELU, FloatArray, Graph, Quantization, quantize, serialize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

HERE = Path(__file__).resolve().parent
ASSETS = HERE.parents[1] / "nn_runtime" / "demo"

SOURCE = (
    "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, "
    "https://doi.org/10.24432/C50P49; from its test set as scikit-learn ships it (sklearn.datasets.load_digits)"
)
LICENCE = "Creative Commons Attribution 4.0 International (CC BY 4.0), https://creativecommons.org/licenses/by/4.0/"

SEED = 1998
HELD_BACK = 360
INK_LEVELS = 16  # a scan's pixel counts the inked ones of 4x4 finer pixels; the network's input is pixel / 16
# int8 input: scale 1/16 and zero point 0 take a scan's pixels as they are.
SCAN_QUANTIZATION = Quantization((1 / INK_LEVELS,), (0,))

DEPTH = 16
WIDE_DEPTH = 32
EPOCHS = 40
BATCH = 64
LEARNING_RATE = 1e-2
WEIGHT_DECAY = 1e-2

Scans: TypeAlias = npt.NDArray[np.uint8]
Labels: TypeAlias = npt.NDArray[np.uint8]


class Split(NamedTuple):
    """Scans [n, 8, 8] of 0..16 and labels [n] of 0..9."""

    scans: Scans
    labels: Labels

    def pixels(self) -> FloatArray:
        """Return the network's float input, [n, 8, 8, 1] of 0..1."""
        return (self.scans[..., None] / INK_LEVELS).astype(np.float32)


class NormalizedConv(nn.Module):
    """A convolution that keeps height and width, and its batch normalisation."""

    def __init__(self, depth_in: int, depth_out: int, size: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(depth_in, depth_out, size, padding=size // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(depth_out)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return [n, depth_out, height, width] of features [n, depth_in, height, width]."""
        normalized: torch.Tensor = self.norm(self.conv(features))
        return normalized

    def folded(self) -> tuple[FloatArray, FloatArray]:
        """Return weights [depth_out, height, width, depth_in] and bias [depth_out] of the two as one convolution."""
        fused = fuse_conv_bn_eval(self.conv, self.norm)
        weights, bias = fused.weight.detach(), fused.bias
        if bias is None:
            raise ValueError("a folded convolution has a bias")
        return weights.permute(0, 2, 3, 1).contiguous().numpy(), bias.detach().numpy()


class DigitNetwork(nn.Module):
    """Convolution, a depthwise-separable residual block, convolution, classifier: [n, 1, 8, 8] -> logits [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = NormalizedConv(1, DEPTH, 3)
        self.depthwise = NormalizedConv(DEPTH, DEPTH, 3, groups=DEPTH)
        self.pointwise = NormalizedConv(DEPTH, DEPTH, 1)
        self.widen = NormalizedConv(DEPTH, WIDE_DEPTH, 3)
        self.classify = nn.Linear(2 * 2 * WIDE_DEPTH, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the logits [n, 10] of pixels [n, 1, 8, 8]."""
        stem = functional.relu(self.stem(pixels))
        residual = self.pointwise(functional.relu(self.depthwise(stem)))
        block = functional.max_pool2d(functional.relu(stem + residual), 2)
        features = functional.avg_pool2d(functional.relu(self.widen(block)), 2)
        logits: torch.Tensor = self.classify(features.permute(0, 2, 3, 1).flatten(1))  # depth last, as in TFLite
        return logits


def load_splits() -> tuple[Split, Split]:
    """Return the training scans and the held-back ones, both with the same share of each digit."""
    digits = load_digits()
    scans, held_back_scans, labels, held_back_labels = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.uint8),
        test_size=HELD_BACK,
        stratify=digits.target,
        random_state=SEED,
    )
    return Split(scans, labels), Split(held_back_scans, held_back_labels)


def train(split: Split) -> DigitNetwork:
    """Return a network trained on the scans, in evaluation mode."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # sums in one order, whatever the machine's core count
    network = DigitNetwork()
    pixels = torch.from_numpy(split.pixels()).permute(0, 3, 1, 2)
    labels = torch.from_numpy(split.labels.astype(np.int64))
    steps = len(labels) // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=EPOCHS * steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels))[: steps * BATCH].view(steps, BATCH):
            loss = functional.cross_entropy(network(pixels[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return network.eval()


def describe(network: DigitNetwork) -> Graph:
    """Return the trained network as a .tflite graph, batch normalisation folded into the convolutions."""
    graph = Graph("handwritten digits")
    scan = graph.add_input("scan", (1, 8, 8, 1))
    stem = graph.add_conv_2d("stem", scan, *network.stem.folded(), RELU)
    depthwise_weights, depthwise_bias = network.depthwise.folded()
    depthwise = graph.add_depthwise_conv_2d(
        "depthwise", stem, depthwise_weights.transpose(3, 1, 2, 0), depthwise_bias, RELU
    )
    pointwise = graph.add_conv_2d("pointwise", depthwise, *network.pointwise.folded(), NO_ACTIVATION)
    residual = graph.add_add("residual", stem, pointwise, RELU)
    block = graph.add_max_pool_2d("block", residual, 2)
    widen = graph.add_conv_2d("widen", block, *network.widen.folded(), RELU)
    features = graph.add_flatten("features", graph.add_average_pool_2d("average", widen, 2))
    weights, bias = (parameter.detach().numpy() for parameter in (network.classify.weight, network.classify.bias))
    logits = graph.add_fully_connected("logits", features, weights, bias, NO_ACTIVATION)
    graph.outputs.append(graph.add_softmax("probabilities", logits))
    return graph


def calibrate(float_file: bytes, split: Split) -> dict[str, tuple[float, float]]:
    """Return (least, greatest) of every float tensor of the file over the scans."""
    interpreter = Interpreter(
        model_content=float_file,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    pixels = split.pixels()
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], pixels.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
    interpreter.invoke()
    tensors = {
        details["name"]: interpreter.get_tensor(details["index"])
        for details in interpreter.get_tensor_details()
        if details["dtype"] is np.float32
    }
    return {name: (float(value.min()), float(value.max())) for name, value in tensors.items()}


def torch_accuracy(network: DigitNetwork, split: Split) -> float:
    """Return the share of scans that the network itself reads rightly."""
    with torch.no_grad():
        answers = network(torch.from_numpy(split.pixels()).permute(0, 3, 1, 2)).argmax(1).numpy()
    return accuracy(answers, split.labels)


def tflite_accuracy(file: bytes, split: Split, resolver: OpResolverType) -> float:
    """Return the share of scans that LiteRT, running the file scan by scan, reads rightly."""
    interpreter = Interpreter(model_content=file, experimental_op_resolver_type=resolver, num_threads=1)
    run = interpreter.get_signature_runner("serving_default")
    is_int8 = interpreter.get_input_details()[0]["dtype"] is np.int8
    inputs = split.scans[..., None].astype(np.int8) if is_int8 else split.pixels()
    answers = [run(scan=scan[None])["probabilities"].argmax() for scan in inputs]
    return accuracy(np.array(answers), split.labels)


def accuracy(answers: npt.NDArray[np.int64], labels: Labels) -> float:
    """Return the share of right answers, to four decimals."""
    return round(float((answers == labels).mean()), 4)


def main() -> None:
    """Train, export, measure; print and store the accuracies."""
    training, held_back = load_splits()
    network = train(training)
    graph = describe(network)
    float_file = serialize(graph)
    ranges = calibrate(float_file, training)
    int8_file = serialize(quantize(graph, ranges, {"scan": SCAN_QUANTIZATION}))
    report = {
        "training_scans": len(training.labels),
        "held_back_scans": len(held_back.labels),
        "accuracy": {
            "torch_float": torch_accuracy(network, held_back),
            "tflite_float": tflite_accuracy(float_file, held_back, OpResolverType.BUILTIN_REF),
            "tflite_int8": tflite_accuracy(int8_file, held_back, OpResolverType.BUILTIN_REF),
            "tflite_float_xnnpack": tflite_accuracy(float_file, held_back, OpResolverType.AUTO),
            "tflite_int8_xnnpack": tflite_accuracy(int8_file, held_back, OpResolverType.AUTO),
        },
        "torch_version": torch.__version__,
    }
    (ASSETS / "digits_float.tflite").write_bytes(float_file)
    (ASSETS / "digits_int8.tflite").write_bytes(int8_file)
    np.savez_compressed(
        ASSETS / "digits_test.npz",
        images=held_back.scans,
        labels=held_back.labels,
        source=np.array(SOURCE),
        licence=np.array(LICENCE),
    )
    text = json.dumps(report, indent=2)
    (HERE / "accuracy.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

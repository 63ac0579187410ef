# SPDX-License-Identifier: Apache-2.0
"""Networks of PyTorch's own modules as its exporter makes .tflite files of them, for `files.py`; weights are random.

    python -m venv pt && pt/bin/pip install litert-torch==0.10.0 torch==2.13.0
    pt/bin/python benchmarks/torch_module_files.py torch-2.13.0
    python benchmarks/files.py torch-2.13.0/*.tflite

Small ones of kinds that people write by hand: detectors, style transfer, generators, embeddings of faces, separation of
sounds, enlargement, recurrent networks. Pictures have their channels first, as PyTorch has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch_export import FirstOutput, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch_export import Networks


class Residual(nn.Module):  # type: ignore[misc]  # torch is not in the environment of the type checker
    """Modules whose result is added to what they were given."""

    def __init__(self, *modules: nn.Module) -> None:
        """Take the modules, one after the other."""
        super().__init__()
        self.modules_inside = nn.Sequential(*modules)

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return source + self.modules_inside(source)


class Normalised(nn.Module):  # type: ignore[misc]
    """Vectors of length 1."""

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """Return vectors [batch, size] over their lengths."""
        return nn.functional.normalize(source)


def detector(activation: Callable[[], nn.Module]) -> nn.Module:
    """Return a small YOLO: convolutions with an activation, and pooling between them."""
    sizes = [(3, 16), (16, 32), (32, 64), (64, 128), (128, 256), (256, 128), (128, 256)]
    parts: list[nn.Module] = []
    for at, (before, after) in enumerate(sizes):
        width = 1 if before > after else 3
        convolution = nn.Conv2d(before, after, width, padding=width // 2, bias=False)
        parts += [convolution, nn.BatchNorm2d(after), activation()]
        parts += [nn.MaxPool2d(2)] if at < 4 else []
    return nn.Sequential(*parts, nn.Conv2d(256, 255, 1))


def style_transfer() -> nn.Module:
    """Return a network that paints a picture anew: mirrored padding, normalisations of each channel of a picture."""

    def layer(before: int, after: int, width: int, stride: int = 1) -> Sequence[nn.Module]:
        padding = nn.ReflectionPad2d(width // 2)
        return padding, nn.Conv2d(before, after, width, stride), nn.InstanceNorm2d(after, affine=True), nn.ReLU()

    residuals = [Residual(*layer(64, 64, 3), *layer(64, 64, 3)[:-1]) for _ in range(2)]
    wider = [part for before in (64, 32) for part in (nn.Upsample(scale_factor=2), *layer(before, before // 2, 3))]
    end = nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9)
    return nn.Sequential(*layer(3, 16, 9), *layer(16, 32, 3, 2), *layer(32, 64, 3, 2), *residuals, *wider, *end)


def generator() -> nn.Module:
    """Return DCGAN's generator of pictures of 64 x 64."""
    parts: list[nn.Module] = [nn.ConvTranspose2d(100, 256, 4, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
    for before in (256, 128, 64):
        convolution = nn.ConvTranspose2d(before, before // 2, 4, 2, 1, bias=False)
        parts += [convolution, nn.BatchNorm2d(before // 2), nn.ReLU()]
    return nn.Sequential(*parts, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())


def face_embedding() -> nn.Module:
    """Return a small MobileFaceNet: depthwise convolutions with PRELU, and a vector of length 1."""

    def layer(before: int, after: int, width: int = 1, stride: int = 1, groups: int = 1) -> Sequence[nn.Module]:
        convolution = nn.Conv2d(before, after, width, stride, width // 2, groups=groups, bias=False)
        return convolution, nn.BatchNorm2d(after), nn.PReLU(after)

    def bottleneck(stride: int) -> Sequence[nn.Module]:
        return *layer(64, 128), *layer(128, 128, 3, stride, 128), nn.Conv2d(128, 64, 1, bias=False), nn.BatchNorm2d(64)

    end = nn.Conv2d(512, 512, 7, groups=512), nn.Flatten(), nn.Linear(512, 128), Normalised()
    return nn.Sequential(
        *layer(3, 64, 3, 2), *layer(64, 64, 3, 1, 64), *bottleneck(2), Residual(*bottleneck(1)), *bottleneck(2),
        Residual(*bottleneck(1)), *bottleneck(2), *layer(64, 512), *end,
    )  # fmt: skip


def separation() -> nn.Module:
    """Return blocks of Conv-TasNet between a learnt transform of a sound and back: normalisations of whole sounds."""

    def block(dilation: int) -> nn.Module:
        depthwise = nn.Conv1d(128, 128, 3, padding=dilation, dilation=dilation, groups=128)
        inside = nn.Conv1d(64, 128, 1), nn.PReLU(), nn.GroupNorm(1, 128), depthwise, nn.PReLU(), nn.GroupNorm(1, 128)
        return Residual(*inside, nn.Conv1d(128, 64, 1))

    blocks = [block(dilation) for dilation in (1, 2, 4)]
    return nn.Sequential(nn.Conv1d(1, 64, 16, 8), nn.ReLU(), *blocks, nn.ConvTranspose1d(64, 1, 16, 8))


def enlargement() -> nn.Module:
    """Return ESPCN: channels that become pixels."""
    parts = nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()
    return nn.Sequential(*parts, nn.Conv2d(32, 4, 3, padding=1), nn.PixelShuffle(2))


PICTURE, SOUND = (1, 3, 256, 256), (1, 1, 8000)
NETWORKS: Networks = {
    "detector_leaky_relu": (lambda: detector(lambda: nn.LeakyReLU(0.1)), PICTURE),
    "detector_mish": (lambda: detector(nn.Mish), PICTURE),
    "detector_elu": (lambda: detector(nn.ELU), PICTURE),
    "style_transfer": (style_transfer, PICTURE),
    "generator": (generator, (1, 100, 1, 1)),
    "face_embedding": (face_embedding, (1, 3, 112, 112)),
    "separation": (separation, SOUND),
    "enlargement": (enlargement, (1, 1, 96, 96)),
    "lstm_2_layers": (lambda: FirstOutput(nn.LSTM(40, 64, 2, batch_first=True)), (1, 50, 40)),
    "gru": (lambda: FirstOutput(nn.GRU(40, 64, batch_first=True)), (1, 50, 40)),
    "transformer_block": (lambda: nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), (1, 64, 128)),
}


if __name__ == "__main__":
    write_files(str(__doc__), NETWORKS)

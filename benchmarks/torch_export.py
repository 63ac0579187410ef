# SPDX-License-Identifier: Apache-2.0
"""PyTorch's networks as its exporter makes .tflite files of them: what `torch_files.py` and its kin share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import litert_torch
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Networks = Mapping[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]]
    """What makes each network, and the shape of its input."""


class FirstOutput(torch.nn.Module):  # type: ignore[misc]  # torch is not in the environment of the type checker
    """A network with the first of its outputs alone."""

    def __init__(self, network: torch.nn.Module) -> None:
        """Take the network."""
        super().__init__()
        self.network = network

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """Return the first output."""
        return self.network(source)[0]


def write_files(description: str, networks: Networks, words: Collection[tuple[int, ...]] = ()) -> None:
    """Write the files into the folder that the command line names; those that are there stay.

    words: shapes of inputs that are numbers of words.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, shape) in networks.items():
        path = folder / f"{name}.tflite"
        if path.exists():
            continue
        torch.manual_seed(0)
        network = make().eval()
        source = torch.randint(0, 1000, shape) if shape in words else torch.randn(shape)
        litert_torch.convert(network, (source,)).export(str(path))
        print(name, flush=True)

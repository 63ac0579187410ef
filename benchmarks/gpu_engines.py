# SPDX-License-Identifier: Apache-2.0
"""Engines on a GPU, by names that `gpus.py` puts together: an engine, its numbers, and where the data is.

"from the host": inputs are copied to the GPU and the output back in every run. "on the device": both stay there, and
a run has ended when the output is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from engines import onnx_runtime_on, ours, ours_float16

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import torch
    from engines import Array, Run

    import nn_runtime as nn

PYTORCH, ONNX_RUNTIME = "PyTorch, CUDA graph", "ONNX Runtime CUDA"
FLOAT16 = "float16"
FROM_HOST, ON_DEVICE = "from the host", "on the device"
_SEPARATOR = " / "
_WARM_UP = 5


def name_of(engine: str, numbers: str, place: str) -> str:
    """Return the name by which a worker knows an engine: PYTORCH, ONNX_RUNTIME, or the selector of one of ours."""
    return _SEPARATOR.join((engine, numbers, place))


def loader_of(name: str) -> Callable[[bytes], Run]:
    """Return the loader of an engine by that name; networks come in their own numbers, float32 ones for float16."""
    engine, numbers, place = name.split(_SEPARATOR)
    halves = numbers == FLOAT16
    if engine == PYTORCH:
        return lambda model: pytorch(model, halves=halves, stays=place == ON_DEVICE)
    if engine == ONNX_RUNTIME:
        if halves or place == ON_DEVICE:
            raise ValueError(f"{name}: not measured")
        return onnx_runtime_on("CUDAExecutionProvider")
    if place == FROM_HOST:
        return ours_float16(engine) if halves else ours(engine)
    return lambda model: ours_on_device(model, engine, halves=halves)


class OnDevice:
    """An output that is read only where somebody wants an array of it."""

    def __init__(self, read: Callable[[], Array]) -> None:
        """Take what reads it."""
        self._read = read

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return the values, as numpy wants them."""
        return np.asarray(self._read(), np.dtype(dtype) if dtype else None)


def ours_on_device(model: bytes, selector: str, *, halves: bool) -> Run:
    """Our device with input and output in its own memory (`MemoryDesc`), by a reusable execution."""
    from networks import halved

    import nn_runtime as nn
    from nn_runtime.devices import select

    network = nn.load(halved(model) if halves else model)
    compilation = nn.Compilation.for_selection(network.model, select(selector))
    compilation.finish()
    execution = nn.Execution(compilation)
    execution.set_reusable(True)
    source, result = _memory(compilation, is_input=True), _memory(compilation, is_input=False)
    execution.set_input_from_memory(0, source)
    execution.set_output_from_memory(0, result)
    info = network.outputs[0]
    given: list[int] = []

    def run(data: Sequence[Array]) -> OnDevice:
        if given != [id(data)]:
            values = data[0].astype(np.float16) if halves else data[0]
            nn.Memory.copy(nn.Memory.from_array(values), source)
            given[:] = [id(data)]
        execution.compute()
        return OnDevice(lambda: result.to_array(info.dtype, info.shape))

    return run


def _memory(compilation: nn.Compilation, *, is_input: bool) -> nn.Memory:
    import nn_runtime as nn

    with nn.MemoryDesc() as desc:
        add = desc.add_input_role if is_input else desc.add_output_role
        add(compilation, 0, 1.0)
        desc.finish()
        return nn.Memory.from_desc(desc)


def pytorch(model: bytes, *, halves: bool, stays: bool) -> Run:
    """PyTorch on CUDA: channels last, cuDNN's algorithms by trial, float32 without TF32, a replay of a graph a run."""
    import torch
    from conversion import to_onnx
    from torch_network import Network

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no CUDA device")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    network = Network(to_onnx(model)).to("cuda", torch.float16 if halves else torch.float32).eval()
    captured: dict[int, _Captured] = {}

    def run(data: Sequence[Array]) -> Array | OnDevice:
        if id(data) not in captured:
            captured[id(data)] = _Captured(network, data[0].astype(np.float16) if halves else data[0])
        graph = captured[id(data)]
        if not stays:
            graph.take()
        graph.replay()
        if not stays:
            return graph.output()
        torch.cuda.synchronize()
        return OnDevice(graph.output)

    return run


class _Captured:
    """A network of PyTorch as a CUDA graph for one input, with pinned memory on its way to the GPU."""

    def __init__(self, network: torch.nn.Module, values: Array) -> None:
        import torch

        self._host = torch.from_numpy(values)
        self._pinned = self._host.pin_memory()
        self._source = self._pinned.cuda()
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP):
                    network(self._source)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(self._graph):
                self._result = network(self._source)
        self.replay = self._graph.replay

    def take(self) -> None:
        """Bring the input to the GPU once more."""
        self._pinned.copy_(self._host)
        self._source.copy_(self._pinned, non_blocking=True)

    def output(self) -> Array:
        """Wait for the output and return it."""
        output: Array = self._result.cpu().numpy()
        return output

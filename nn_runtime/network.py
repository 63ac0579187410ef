# SPDX-License-Identifier: Apache-2.0
"""The high level: a network is an NDK model with an interface of names, dtypes and shapes; `load` reads one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nn_runtime.codes import PreferenceCode, PriorityCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import Device, Selection, select
from nn_runtime.errors import BadData
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np

    from nn_runtime.hal.types import Operand
    from nn_runtime.model import Model
    from nn_runtime.plan import PartitionMode
    from nn_runtime.session import Session


@dataclass(frozen=True)
class TensorInfo:
    """One input or output as the user sees it.

    `dtype` is that of the interface: the runtime casts where the model computes in another. A size 0 is open, () is a
    scalar or an open rank. Real value = scale * (q - zero_point); scale 0 means not quantised. `signature_name` is a
    second name, "" if there is none; `index` the tensor's in its file, -1 without a file.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    signature_name: str = ""
    index: int = -1

    def __str__(self) -> str:
        quantized = f" scale {self.scale:g} zero point {self.zero_point}" if self.scale else ""
        return f"{self.name}: {self.dtype} {list(self.shape)}{quantized}"


@dataclass(frozen=True)
class State:
    """A value kept between runs, zero at first: an input of the model, and the output that gives its next value.

    Without an output it stays zero.
    """

    input: int
    output: int | None


@dataclass(frozen=True)
class Interface:
    """How the arguments of a model look to the user.

    `inputs` are the model's first inputs in order; `output_positions` tells which of the model's outputs each of
    `outputs` is.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    output_positions: tuple[int, ...]
    states: tuple[State, ...] = ()


class Network:
    """A finished model and its interface; `compile` makes it ready to run."""

    def __init__(self, model: Model, interface: Interface) -> None:
        """`interface` must fit the finished model; `from_model` derives one."""
        self.model = model
        self.interface = interface

    @classmethod
    def from_model(
        cls, model: Model, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> Network:
        """Return a network over a finished hand-made model; names default to input0, output0, ...

        Raises BadState for an unfinished model, BadData for a wrong number of names.
        """
        main = model.hal.main
        output_infos = _infos("output", [main.operands[i] for i in main.output_indexes], outputs)
        interface = Interface(
            _infos("input", [main.operands[i] for i in main.input_indexes], inputs),
            output_infos,
            tuple(range(len(output_infos))),
        )
        return cls(model, interface)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """What `Session.run` takes."""
        return self.interface.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """What `Session.run` returns."""
        return self.interface.outputs

    def compile(
        self,
        device: str | Device | Sequence[Device] | None = None,
        *,
        partition: PartitionMode | str = "cost",
        preference: PreferenceCode = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: PriorityCode = PriorityCode.MEDIUM,
    ) -> Session:
        """Prepare the network for devices and return a session.

        `device`: a selector (default: NNRT_DEVICE, else `opencl,cpu`), or devices to use without fallback.
        `partition`: "cost" (least estimated time) or "aosp" (by capabilities, as Android does). Raises NNError:
        UnavailableDevice for a selector that matches nothing, BadData for an operation that no device takes.
        """
        from nn_runtime.session import Session

        compilation = Compilation.for_selection(self.model, _selection(device))
        compilation.set_partition(partition)
        compilation.set_preference(preference)
        compilation.set_priority(priority)
        compilation.finish()
        return Session(compilation, self.interface)

    def close(self) -> None:
        """Let the model's constants go; sessions keep what they need."""
        self.model.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    shapes: Mapping[str | int, Sequence[int]] | None = None,
) -> Network:
    """Return the network in a .tflite file, given by path or content.

    `shapes` changes shapes of inputs, by name or position, and the network with them: sizes that the file leaves open
    are otherwise as in the file (1 from the usual exporters). Raises BadData (content, an operator that cannot be
    converted), OSError (path).
    """
    from nn_runtime.tflite.convert import convert
    from nn_runtime.tflite.reader import read

    return convert(read(source), shapes)


def _selection(device: str | Device | Sequence[Device] | None) -> Selection:
    if device is None or isinstance(device, str):
        return select(device)
    chosen = (device,) if isinstance(device, Device) else tuple(device)
    if not chosen:
        raise BadData("compile: the list of devices is empty")
    return Selection(chosen, strict=True)


def _infos(what: str, operands: Sequence[Operand], names: Sequence[str] | None) -> tuple[TensorInfo, ...]:
    if names is None:
        names = [f"{what}{position}" for position in range(len(operands))]
    if len(names) != len(operands) or len(set(names)) != len(names):
        raise BadData(f"{what} names: wanted {len(operands)} different ones, got {list(names)}")
    return tuple(
        TensorInfo(name, dtype_of(operand.type), operand.dimensions, operand.scale, operand.zero_point)
        for name, operand in zip(names, operands, strict=True)
    )

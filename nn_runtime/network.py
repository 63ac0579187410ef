# SPDX-License-Identifier: Apache-2.0
"""The high level: a network is an NDK model with an interface of names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nn_runtime.caching import made_directory, token_of
from nn_runtime.checks import check_kind, listed
from nn_runtime.codes import PreferenceCode, PriorityCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device, checked_devices
from nn_runtime.devices import Selection, select
from nn_runtime.errors import BadData
from nn_runtime.interface import Interface, TensorInfo
from nn_runtime.model import Model
from nn_runtime.operand import dtype_of
from nn_runtime.session import Session

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from nn_runtime.hal.types import Operand
    from nn_runtime.plan import PartitionMode


class Network:
    """A finished model and its interface; `compile` makes it ready to run."""

    def __init__(self, model: Model, interface: Interface, *, dynamic_quantization: bool = False) -> None:
        """`interface` must fit the finished model; `from_model` derives one. Raises UnexpectedNull, BadData.

        `dynamic_quantization`: whether `compile` allows products on bytes where nothing else is said: the network was
        made for it.
        """
        check_kind("network: the model", model, Model)
        check_kind("network: the interface", interface, Interface)
        check_kind("network: dynamic_quantization", dynamic_quantization, bool)
        self.model = model
        self.interface = interface
        self.dynamic_quantization = dynamic_quantization

    @classmethod
    def from_model(
        cls, model: Model, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> Network:
        """Return a network over a finished hand-made model; names default to input0, output0, ...

        Raises BadState for an unfinished model, BadData for a wrong number of names.
        """
        check_kind("network: the model", model, Model)
        main = model.hal.main
        output_infos = _infos("output", [main.operands[i] for i in main.output_indexes], outputs)
        interface = Interface(
            _infos("input", [main.operands[i] for i in main.input_indexes], inputs),
            output_infos,
            tuple(range(len(output_infos))),
        )
        return cls(model, interface)

    def __repr__(self) -> str:
        return f"<Network {self.interface}>"

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
        cache_dir: str | os.PathLike[str] | None = None,
        model_token: str | None = None,
        trial: bool = True,
        dynamic_quantization: bool | None = None,
    ) -> Session:
        """Prepare the network for devices and return a session.

        `device`: a selector (default: NNRT_DEVICE, PYOPENCL_CTX or `opencl,cpu`), or devices to use without fallback.
        `partition`: "cost" (least estimated time) or "aosp" (by capabilities, as Android does). `cache_dir`: a folder,
        made if missing, where drivers keep what they prepare, so that later processes need not, under a hash of all
        that the network is made of; `model_token`: a name that keeps equal networks apart there.

        `trial`: in mode "cost", let the first run time the single devices that may be as fast as the plan by the
        estimates, and keep the fastest (in `cache_dir` for later processes too); False goes by the estimates alone,
        which are the same in every process, unless `cache_dir` holds what an earlier trial found.

        `dynamic_quantization`: whether drivers may make bytes of what is multiplied with weights that were bytes, which
        is faster, and what TensorFlow Lite does; False keeps real numbers. The default is what the network says: True
        for a file with such operators.

        Raises NNError: UnavailableDevice for a selector that matches nothing, BadData for an operation that no device
        takes.
        """
        check_kind("compile: trial", trial, bool)
        compilation = Compilation.for_selection(self.model, _selection(device))
        compilation.set_partition(partition)
        compilation.set_preference(preference)
        compilation.set_priority(priority)
        allowed = self.dynamic_quantization if dynamic_quantization is None else dynamic_quantization
        check_kind("compile: dynamic_quantization", allowed, bool)
        if allowed:
            compilation.set_dynamic_quantization(True)
        if cache_dir is None and model_token is not None:
            raise BadData("compile: model_token without cache_dir")
        directory = None if cache_dir is None else made_directory(cache_dir)
        if directory is not None:
            compilation.set_caching(directory, token_of(self.model.hal, model_token))
        compilation.finish()
        return Session(compilation, self.interface, compilation.rivals() if trial else ())

    def close(self) -> None:
        """Let the model's constants go; sessions keep what they need."""
        self.model.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _selection(device: str | Device | Sequence[Device] | None) -> Selection:
    if device is None or isinstance(device, str):
        return select(device)
    chosen = tuple(device) if isinstance(device, Iterable) else (device,)
    if chosen and all(isinstance(one, str) for one in chosen):
        raise BadData(f"compile: device: a selector of several devices is one string: {','.join(map(str, chosen))!r}")
    return Selection(checked_devices("compile", chosen), strict=True)


def _infos(what: str, operands: Sequence[Operand], names: Sequence[str] | None) -> tuple[TensorInfo, ...]:
    if names is None:
        names = [f"{what}{position}" for position in range(len(operands))]
    names = listed(f"{what} names", names, str)
    if len(names) != len(operands) or len(set(names)) != len(names):
        raise BadData(f"{what} names: wanted {len(operands)} different ones, got {list(names)}")
    return tuple(
        TensorInfo(name, dtype_of(operand.type), operand.dimensions, operand.scale, operand.zero_point)
        for name, operand in zip(names, operands, strict=True)
    )

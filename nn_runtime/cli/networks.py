# SPDX-License-Identifier: Apache-2.0
"""What the commands that take a network share: its arguments, loading and compiling it, where it runs."""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.cli.output import UsageError, named_path
from nn_runtime.codes import OperationCode
from nn_runtime.devices import find_device, select, selector_in_force
from nn_runtime.errors import ShapesError
from nn_runtime.loading import load
from nn_runtime.plan import PartitionMode
from nn_runtime.reports import counted
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.cli.inputs import Array
    from nn_runtime.device import Device
    from nn_runtime.interface import TensorInfo
    from nn_runtime.network import Network
    from nn_runtime.reports import Explanation
    from nn_runtime.session import Session

_SAME_VALUES = frozenset(
    {
        *(OperationCode.RESHAPE, OperationCode.SQUEEZE, OperationCode.EXPAND_DIMS),
        *(OperationCode.QUANTIZE, OperationCode.DEQUANTIZE),
    }
)
_MOST_DIGITS, _SHOWN = 9, 40
_MOST_RANDOM_INTEGER = 100
"""Random integers other than 8-bit ones stay below this: they are often indices."""


@dataclass(frozen=True)
class Place:
    """A device and what it runs."""

    device: str
    operations: int
    steps: int


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL and --shape, for `loaded`."""
    parser.add_argument("model", metavar="MODEL", help=".tflite file")
    parser.add_argument("--shape", metavar="[NAME=]N,N,...", type=shape, action="append", default=[],
                        help="another shape of an input, and so of the network, as 8,224,224,3")  # fmt: skip


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, --shape, --device and how to compile."""
    add_model_arguments(parser)
    add_device_argument(parser)
    modes = [mode.value for mode in PartitionMode]
    parser.add_argument("--partition", choices=modes, default=PartitionMode.COST.value,
                        help="place operations by estimated time, or as Android does (default: cost)")  # fmt: skip
    parser.add_argument("--cache-dir", metavar="DIR", type=named_path, default=None,
                        help="keep what drivers prepare in DIR, and use what is kept there")  # fmt: skip
    parser.add_argument("--dynamic-quantization", action=argparse.BooleanOptionalAction, default=None,
                        help="multiply weights of 8 bits with bytes made of real data in every run, or with the data "
                             "(default: bytes where a file has real data and such weights, as LiteRT)")  # fmt: skip


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --device."""
    wanted = "cpu, opencl, opencl:pocl, opencl,cpu ... (default: NNRT_DEVICE, PYOPENCL_CTX or opencl,cpu)"
    parser.add_argument("--device", metavar="SELECTOR", default=None, help=wanted)


def positive(text: str) -> int:
    """Return an argument that must be a number of at least 1."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"wanted a whole number from 1 to 10^{_MOST_DIGITS} - 1, got {text[:_SHOWN]!r}"
        )
    return int(text)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name, "" for none, and the sizes of `[NAME=]N,N,...`."""
    name, _, sizes = text.rpartition("=")  # names may have any sign
    try:
        return name, tuple(positive(size.strip()) for size in sizes.split(","))
    except argparse.ArgumentTypeError as error:
        wanted = f"wanted [NAME=]N,N,... with sizes from 1 to 10^{_MOST_DIGITS} - 1, as 8,224,224,3"
        raise argparse.ArgumentTypeError(f"{wanted}, got {text[:_SHOWN]!r}") from error


def seconds(text: str) -> float:
    """Return an argument that must be a time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number of seconds > 0, got {text[:_SHOWN]!r}")
    return value


def loaded(args: argparse.Namespace) -> Network:
    """Return the network of MODEL, with what --shape gives to inputs by name, or in turn."""
    given: list[tuple[str, tuple[int, ...]]] = args.shape
    turn = itertools.count()
    shapes: dict[str | int, tuple[int, ...]] = {}
    for name, sizes in given:
        key = name or next(turn)
        if key in shapes:
            raise UsageError(f"--shape: input {key!r} is given twice")
        shapes[key] = sizes
    try:
        return load(args.model, shapes)
    except ShapesError as error:
        raise UsageError(f"--shape: {error.problem}") from error


def compiled(network: Network, args: argparse.Namespace) -> Session:
    """Compile a network as the arguments say."""
    return network.compile(
        args.device,
        partition=args.partition,
        cache_dir=args.cache_dir,
        dynamic_quantization=args.dynamic_quantization,
    )


def softmax_outputs(network: Network) -> frozenset[str]:
    """Return the names of the outputs that SOFTMAX makes, also behind what leaves the values as they are."""
    main = network.model.hal.main
    makers = {index: operation for operation in main.operations for index in operation.outputs}

    def is_softmax(index: int) -> bool:
        maker = makers.get(index)
        while maker is not None and maker.type in _SAME_VALUES:
            maker = makers.get(maker.inputs[0])
        return maker is not None and maker.type == OperationCode.SOFTMAX

    places = zip(network.interface.output_positions, network.outputs, strict=True)
    return frozenset(info.name for position, info in places if is_softmax(main.output_indexes[position]))


def compile_for_timing(
    network: Network,
    selector: str | None,
    partition: str,
    cache_dir: str | None = None,
    dynamic_quantization: bool | None = None,
) -> tuple[Session, bool]:
    """Compile, and tell whether `run(..., measure=True)` works.

    Times are measured on exactly one explicit device, so a network that runs whole on one of several devices is
    compiled for that one: the one where its first run leaves it.
    """

    def compiled_for(device: str | Device | None) -> Session:
        return network.compile(
            device, partition=partition, cache_dir=cache_dir, dynamic_quantization=dynamic_quantization
        )

    selection = select(selector)
    if len(selection.devices) == 1:
        return compiled_for(selection.devices[0]), True
    session = compiled_for(selector)
    if session.rivals:
        rng = np.random.default_rng(0)
        session.run([random_input(info, rng) for info in session.inputs])
    if len(session.devices_used) > 1:
        return session, False
    used = find_device(session.devices_used[0])
    session.close()
    return compiled_for(used), True


def places(explanation: Explanation) -> list[Place]:
    """Return what each device runs, in order of first use."""
    operations = Counter(row.device for row in explanation.operations)
    steps = Counter(device for device, _ in {(row.device, row.step) for row in explanation.operations})
    return [Place(device, count, steps[device]) for device, count in operations.items()]


def places_text(explanation: Explanation) -> str:
    """Return what each device runs as one line: `64 operations on opencl-pocl-0, 1 on nnapi-reference (3 steps)`."""
    found = places(explanation)
    steps = sum(place.steps for place in found)
    text = ", ".join(f"{counted(place.operations, 'operation')} on {place.device}" for place in found)
    return f"{text} ({counted(steps, 'step')})" if steps > 1 else text


def missing_opencl_lines(selector: str | None) -> list[str]:
    """Return a line that says so where OpenCL is asked for and none of its devices is there, so that the CPU computes.

    Raises SelectorError.
    """
    is_asked_for = "opencl" in (item.strip().lower() for item in selector_in_force(selector).split(","))
    is_missing = is_asked_for and all(one.is_reference for one in select(selector).devices)
    return ["no OpenCL device could be used, numpy computes all; nnrt doctor says why"] if is_missing else []


def statistics_text(statistics: Mapping[str, int | float]) -> str:
    """Return counts as one line: `programs_built 2, build_seconds 0.71, allocated_bytes 14,204,112`."""
    return ", ".join(
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value:,}" for name, value in statistics.items()
    )


def random_input(info: TensorInfo, random: np.random.Generator) -> Array:
    """Return random values for an input, open sizes taken as 1: floats of -1..1, 8-bit integers of the whole range."""
    shape = tuple(size or 1 for size in info.shape)
    if info.dtype.kind == "f":
        real: Array = random.uniform(-1, 1, shape).astype(info.dtype)
        return real
    if info.dtype.kind == "b":
        return random.integers(0, 2, shape).astype(np.bool_)
    limits = np.iinfo(info.dtype.name)
    whole = info.dtype.itemsize == 1
    low, high = (limits.min, limits.max + 1) if whole else (0, _MOST_RANDOM_INTEGER)
    return random.integers(low, high, shape, dtype=info.dtype.name)

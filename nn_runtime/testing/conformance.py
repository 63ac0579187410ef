# SPDX-License-Identifier: Apache-2.0
"""Runs a corpus of operation examples on one device and judges the results.

The device is driven through its HAL methods or through the NDK-level API (strictly that one device). Every example is
executed twice, so that what a driver keeps between executions is judged too.
"""

from __future__ import annotations

import logging
import multiprocessing
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.errors import NNError, OutputInsufficientSize
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    OperandLifeTime,
    Priority,
    Request,
    RequestArgument,
)
from nn_runtime.hal.types import Model as HalModel
from nn_runtime.hal.types import Operand as HalOperand
from nn_runtime.hal.types import Operation as HalOperation
from nn_runtime.hal.types import Subgraph as HalSubgraph
from nn_runtime.operand import OperandType, has_unknown_dimensions
from nn_runtime.operations import definitions
from nn_runtime.testing.corpus import Kind, as_kind, judge, read_spec, result_buffer, spec_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from nn_runtime.compilation import Compilation
    from nn_runtime.devices import Device
    from nn_runtime.execution import Execution
    from nn_runtime.hal.interfaces import IBuffer, IDevice, IPreparedModel
    from nn_runtime.memory import Memory
    from nn_runtime.model import Model
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.testing.corpus import Example, ExampleGraph, ExampleOperand

EXECUTIONS = 2
_REUSES = 3
_PARTS = 3
_INFINITE_LOOP_TIMEOUT_NS = 1_000_000
_ALIGNMENT = 64


class Verdict(Enum):
    """How one run of an example ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


class Through(Enum):
    """The interface by which the device is driven; all but HAL are ways through the NDK level."""

    NDK = "ndk"
    HAL = "hal"
    ASYNCHRONOUS = "async"
    BURST = "burst"
    FENCED = "fenced"
    """Where all output dimensions are known; else synchronous."""
    REUSED = "reused"
    """One execution, computed three times."""
    INSUFFICIENT = "insufficient"
    """First with outputs of unknown size one element too small, which must tell the true shapes."""
    SPLIT = "split"
    """Cut over three devices with disjoint operations, which all compute by the device, and the CPU."""


@dataclass(frozen=True)
class Result:
    """One run of one example; `message` says why it failed, or what is not supported."""

    example: str
    spec: str
    operation: str
    kind: Kind
    verdict: Verdict
    message: str = ""


@dataclass
class Report:
    """All results of a corpus on a device."""

    device: str
    results: list[Result] = field(default_factory=list)

    def counts(self) -> Counter[Verdict]:
        """Return how many runs ended how."""
        return Counter(result.verdict for result in self.results)

    def by_operation(self) -> dict[str, Counter[Verdict]]:
        """Return the counts per main operation, sorted by name."""
        table: dict[str, Counter[Verdict]] = {}
        for result in sorted(self.results, key=lambda result: result.operation):
            table.setdefault(result.operation, Counter())[result.verdict] += 1
        return table


@dataclass(frozen=True)
class Filter:
    """Which examples are run: `only` and `exclude` are parts of names, `operations` main operations (() for all)."""

    kinds: Collection[Kind] = tuple(Kind)
    only: str = ""
    exclude: str = ""
    operations: Collection[str] = ()

    def accepts(self, example: Example) -> bool:
        """Tell whether an example is run."""
        name = f"{example.spec}/{example.name}"
        wanted = self.only in name and not (self.exclude and self.exclude in name)
        return wanted and (not self.operations or example.main_op in self.operations)


class Unsupported(Exception):
    """The device does not take the example."""


class WrongShapes(Exception):
    """An execution into buffers that are too small did not tell the true shapes."""


class FinishRefused(Exception):
    """The model would not finish though all its parts were accepted: wrong even where a failure is expected."""


@dataclass(frozen=True)
class Outcome:
    """Dimensions and data of one output."""

    dimensions: Dimensions
    data: Array


class Runner(Protocol):
    """Builds and executes examples on one device."""

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        """Yield the outputs of each execution; raises Unsupported, NNError or HalError."""


def run_corpus(
    folder: Path,
    device_selector: str | None,
    chosen: Filter | None = None,
    jobs: int = 1,
    through: Through = Through.NDK,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run the examples of a folder on the first device that a selector names.

    `progress` gets the number of files done and of all files. Raises FileNotFoundError, UnavailableDevice.
    """
    chosen = chosen or Filter()
    files = spec_files(folder)
    report = Report(_select(device_selector).name)
    for done, results in enumerate(_all_results(files, device_selector, chosen, jobs, through), 1):
        report.results += results
        if progress is not None:
            progress(done, len(files))
    report.results.sort(key=lambda result: (result.spec, result.example, result.kind.value))
    return report


def run_example(example: Example, kind: Kind, runner: Runner) -> Result:
    """Run one example in one kind and judge every execution."""
    verdict, message = _verdict(as_kind(example, kind), kind, runner)
    return Result(example.name, example.spec, example.main_op, kind, verdict, message)


def make_runner(device: Device, through: Through) -> Runner:
    """Return a runner for a device."""
    return HalRunner(device.hal) if through == Through.HAL else NdkRunner(device, through)


def _select(selector: str | None) -> Device:
    from nn_runtime.devices import select  # loads drivers, which a user of HalRunner may not want

    return select(selector).devices[0]


def _all_results(
    files: Sequence[Path], selector: str | None, chosen: Filter, jobs: int, through: Through
) -> Iterator[list[Result]]:
    if jobs <= 1:
        for file in files:
            yield _run_file(file, selector, chosen, through)
        return
    # A started OpenCL runtime does not survive a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_run_file, file, selector, chosen, through) for file in files]
        for future in as_completed(futures):
            yield future.result()


def _run_file(file: Path, selector: str | None, chosen: Filter, through: Through) -> list[Result]:
    if through == Through.SPLIT:
        logging.getLogger("nn_runtime").setLevel(logging.ERROR)  # fallbacks are to be expected
    runner = make_runner(_select(selector), through)
    return [
        run_example(example, kind, runner)
        for example in read_spec(file)
        if chosen.accepts(example)
        for kind in example.kinds
        if kind in chosen.kinds
    ]


def _verdict(example: Example, kind: Kind, runner: Runner) -> tuple[Verdict, str]:
    missing = _missing_definition(example)
    if missing:
        return Verdict.UNSUPPORTED, missing
    try:
        for attempt, outcomes in enumerate(runner.run(example, kind), 1):
            problem = _judged(example, outcomes)
            if problem:
                return Verdict.FAILED, problem if attempt == 1 else f"execution {attempt}: {problem}"
    except Unsupported as refusal:
        return Verdict.UNSUPPORTED, str(refusal)
    except (NNError, HalError) as error:
        return _judged_error(example, error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return Verdict.FAILED, f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
    return (Verdict.FAILED, "wanted a failure, but it ran") if example.expect_failure else (Verdict.PASSED, "")


def _missing_definition(example: Example) -> str:
    known = definitions()
    names = {op.type.name for graph in example.graphs for op in graph.operations if op.type not in known}
    return f"no definition for {', '.join(sorted(names))} yet" if names else ""


def _judged(example: Example, outcomes: Sequence[Outcome]) -> str:
    if example.expect_failure:
        return "wanted a failure, but it ran"
    problems = (judge(example, i, outcome.dimensions, outcome.data) for i, outcome in enumerate(outcomes))
    return next((problem for problem in problems if problem), "")


def _judged_error(example: Example, error: NNError | HalError) -> tuple[Verdict, str]:
    what = error.status.name if isinstance(error, HalError) else error.code.name
    if not example.expect_failure:
        return Verdict.FAILED, f"{what}: {error}"
    crash = _crash_behind(error)
    if crash is not None:
        return Verdict.FAILED, f"wanted a refusal, got a crash: {type(crash).__name__}: {crash}"
    if example.infinite_loop and not what.startswith("MISSED_DEADLINE"):
        return Verdict.FAILED, f"wanted MISSED_DEADLINE, got {what}: {error}"
    return Verdict.PASSED, ""


def _crash_behind(error: BaseException) -> BaseException | None:
    """Return the foreign exception that a failure was made from, if there is one: a crash is no refusal."""
    cause: BaseException | None = error
    while isinstance(cause, (NNError, HalError)):
        cause = cause.__cause__
    return cause


class HalRunner:
    """Drives a device by its HAL methods."""

    def __init__(self, device: IDevice) -> None:
        """Keep the device."""
        self._device = device

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        """Yield the outputs of each execution."""
        model = hal_model(example)
        supported = self._device.get_supported_operations(model)
        if not all(supported):
            at = list(supported).index(False)
            raise Unsupported(f"operation {at} {example.main.operations[at].type.name}: {self._reason(model, at)}")
        prepared = self._device.prepare_model(
            model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
        )
        try:
            for _ in range(EXECUTIONS):
                if kind == Kind.DEVICE_MEMORY:
                    yield self._execute_on_buffers(example, prepared)
                else:
                    yield _execute_on_arrays(example, prepared)
        finally:
            prepared.close()

    def _reason(self, model: HalModel, at: int) -> str:
        from nn_runtime.hal.interfaces import ExplainsOperations

        if isinstance(self._device, ExplainsOperations):
            return self._device.explain_operations(model)[at].reason
        return "not supported"

    def _execute_on_buffers(self, example: Example, prepared: IPreparedModel) -> list[Outcome]:
        buffers: list[IBuffer] = []
        pools: list[BufferToken] = []

        def allocate(role: BufferRole, is_output: bool) -> IBuffer:
            inputs, outputs = ((), (role,)) if is_output else ((role,), ())
            buffer, token = _allocated(self._device, prepared, inputs, outputs)
            buffers.append(buffer)
            pools.append(BufferToken(token))
            return buffer

        arguments: list[RequestArgument] = []
        for i, data in enumerate(example.inputs):
            if data is None:
                arguments.append(RequestArgument(has_no_value=True))
                continue
            buffer = allocate(BufferRole(0, i, 1.0), False)
            buffer.copy_from(_shared_copy(data), ())
            arguments.append(RequestArgument(location=DataLocation(pool_index=len(pools) - 1)))
        outputs = [allocate(BufferRole(0, i, 1.0), True) for i in range(len(example.outputs))]
        first = len(pools) - len(outputs)
        results = tuple(
            RequestArgument(location=DataLocation(pool_index=first + i)) for i in range(len(example.outputs))
        )
        try:
            result = prepared.execute_synchronously(Request(tuple(arguments), results, tuple(pools)), False, None, None)
            shapes = [shape.dimensions for shape in result.output_shapes] or _declared(example)
            data_out = []
            for buffer, expected, code in zip(outputs, example.outputs, _output_types(example), strict=True):
                destination = _shared_copy(result_buffer(code, expected.dimensions))
                buffer.copy_to(destination)
                data_out.append(destination.array().view(expected.values.dtype))
        finally:
            for buffer in buffers:
                buffer.close()
        return [Outcome(dims, data) for dims, data in zip(shapes, data_out, strict=True)]


def _allocated(
    device: IDevice, prepared: IPreparedModel, inputs: Sequence[BufferRole], outputs: Sequence[BufferRole]
) -> tuple[IBuffer, int]:
    try:
        return device.allocate(BufferDesc(), [prepared], inputs, outputs)
    except HalError as error:
        if error.status != ErrorStatus.GENERAL_FAILURE:
            raise
        raise Unsupported(f"allocate: {error}") from error


def _execute_on_arrays(example: Example, prepared: IPreparedModel) -> list[Outcome]:
    inputs = tuple(
        RequestArgument(has_no_value=True)
        if data is None
        else RequestArgument(location=DataLocation(length=data.nbytes, pointer=data))
        for data in example.inputs
    )
    pairs = zip(_output_types(example), example.outputs, strict=True)
    buffers = [result_buffer(code, expected.dimensions) for code, expected in pairs]
    outputs = tuple(RequestArgument(location=DataLocation(length=b.nbytes, pointer=b)) for b in buffers)
    loop_timeout_ns = _INFINITE_LOOP_TIMEOUT_NS if example.infinite_loop else None
    result = prepared.execute_synchronously(Request(inputs, outputs), False, None, loop_timeout_ns)
    shapes = [shape.dimensions for shape in result.output_shapes] or _declared(example)
    return [_outcome(dims, buffer) for dims, buffer in zip(shapes, buffers, strict=True)]


def _outcome(dimensions: Dimensions, buffer: Array) -> Outcome:
    """Cut a buffer to the elements that the dimensions mean."""
    return Outcome(dimensions, buffer[: int(np.prod(dimensions, dtype=np.int64))])


def _declared(example: Example) -> list[Dimensions]:
    return [example.main.operands[i].dimensions for i in example.main.outputs]


def _output_types(example: Example) -> list[int]:
    return [example.main.operands[i].type for i in example.main.outputs]


def _shared_copy(data: Array) -> SharedMemory:
    memory = SharedMemory.create(data.nbytes)
    memory.array()[:] = data.reshape(-1).view(np.uint8)
    return memory


def hal_model(example: Example) -> HalModel:
    """Return an example's model in HAL form: constants inline or in a pool, as its lifetimes say."""
    inline = bytearray()
    pooled = bytearray()
    graphs = [
        HalSubgraph(
            tuple(_hal_operand(operand, inline, pooled) for operand in graph.operands),
            tuple(HalOperation(op.type, op.inputs, op.outputs) for op in graph.operations),
            graph.inputs,
            graph.outputs,
        )
        for graph in example.graphs
    ]
    pools = (_shared_copy(np.frombuffer(bytes(pooled), np.uint8)),) if pooled else ()
    return HalModel(graphs[0], tuple(graphs[1:]), bytes(inline), pools, example.relaxed)


def _hal_operand(operand: ExampleOperand, inline: bytearray, pooled: bytearray) -> HalOperand:
    location = DataLocation()
    if isinstance(operand.value, int):
        location = DataLocation(offset=operand.value)
    elif operand.value is not None:
        location = _appended(inline if operand.lifetime == OperandLifeTime.CONSTANT_COPY else pooled, operand.value)
    return HalOperand(
        operand.type,
        operand.dimensions,
        operand.scale,
        operand.zero_point,
        operand.lifetime,
        location,
        operand.channel_quant,
    )


def _appended(values: bytearray, data: Array) -> DataLocation:
    values += bytes(-len(values) % _ALIGNMENT)
    location = DataLocation(offset=len(values), length=data.nbytes)
    values += data.tobytes()
    return location


class NdkRunner:
    """Drives a device by the NDK-level API, in one of its ways: a compilation for that device alone unless split."""

    def __init__(self, device: Device, through: Through = Through.NDK) -> None:
        """Keep the device."""
        self._device = device
        self._through = through

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        """Yield the outputs of each execution."""
        model = ndk_model(example)
        supported = model.supported_operations([self._device])
        if not all(supported):
            at = supported.index(False)
            raise Unsupported(f"operation {at} {example.main.operations[at].type.name}: not supported")
        with self._compilation(model) as compilation:
            compilation.finish()
            if self._through == Through.INSUFFICIENT and kind == Kind.DYNAMIC_OUTPUT_SHAPE:
                _check_insufficient(example, compilation)
            for _ in range(EXECUTIONS):
                if kind == Kind.DEVICE_MEMORY:
                    yield _ndk_execute_on_memories(example, compilation, self._through)
                else:
                    yield _ndk_execute_on_arrays(example, compilation, self._through)

    def _compilation(self, model: Model) -> Compilation:
        from nn_runtime.compilation import Compilation
        from nn_runtime.devices import Device, Selection, reference_device
        from nn_runtime.testing.sample_drivers import SampleDevice

        if self._through != Through.SPLIT:
            return Compilation(model, [self._device])
        codes = [code for code in OperationCode if code not in (OperationCode.IF, OperationCode.WHILE)]
        parts = [
            SampleDevice(
                f"part-{at}", set(codes[at::_PARTS]), inner=self._device.hal, feature_level=FeatureLevel.LEVEL_8
            )
            for at in range(_PARTS)
        ]
        devices = (*map(Device, parts), reference_device())
        return Compilation.for_selection(model, Selection(devices, strict=False))


def _compute(execution: Execution, compilation: Compilation, through: Through) -> None:
    """Compute in one of the ways."""
    from nn_runtime.burst import Burst

    if through == Through.ASYNCHRONOUS:
        execution.start_compute().wait()
    elif through == Through.BURST:
        with Burst(compilation) as burst:
            execution.burst_compute(burst)
    elif through == Through.FENCED and _has_known_outputs(compilation):
        with execution.start_compute_with_dependencies([]) as event:
            event.wait()
    elif through == Through.REUSED:
        execution.set_reusable(True)
        for _ in range(_REUSES):
            execution.compute()
    else:
        execution.compute()


def _has_known_outputs(compilation: Compilation) -> bool:
    if compilation.plan is None:
        return False
    main = compilation.plan.model.main
    operands = [main.operands[i] for i in main.output_indexes]
    return not any(has_unknown_dimensions(operand.type, operand.dimensions) for operand in operands)


def _check_insufficient(example: Example, compilation: Compilation) -> None:
    """Execute with every output of several elements one too small; raises WrongShapes, or what else it fails with."""
    from nn_runtime.execution import Execution

    pairs = zip(_output_types(example), example.outputs, strict=True)
    buffers = [result_buffer(code, expected.dimensions) for code, expected in pairs]
    if example.expect_failure or all(buffer.size == 1 for buffer in buffers):
        return
    with Execution(compilation) as execution:
        for i, data in enumerate(example.inputs):
            execution.set_input(i, data)
        for i, buffer in enumerate(buffers):
            execution.set_output(i, buffer[: max(1, buffer.size - 1)])
        try:
            execution.compute()
        except OutputInsufficientSize:
            shapes = _ndk_shapes(example, execution)
        else:
            raise WrongShapes("it ran into outputs that are too small")
    wanted = [expected.dimensions for expected in example.outputs]
    known = [shape for shape, buffer in zip(shapes, buffers, strict=True) if buffer.size > 1]
    if known != [dims for dims, buffer in zip(wanted, buffers, strict=True) if buffer.size > 1]:
        raise WrongShapes(f"too small outputs of {wanted} told the shapes {shapes}")


def ndk_model(example: Example) -> Model:
    """Return an example's finished NDK model; raises NNError where it is refused."""
    finished: dict[int, Model] = {}

    def referenced(index: int) -> Model:
        if index not in finished:
            finished[index] = _ndk_graph(example.referenced[index], example.relaxed, referenced)
        return finished[index]

    return _ndk_graph(example.main, example.relaxed, referenced)


def _ndk_graph(graph: ExampleGraph, relaxed: bool, referenced: Callable[[int], Model]) -> Model:
    from nn_runtime.model import Model

    model = Model()
    for operand in graph.operands:
        quant = operand.channel_quant
        index = model.add_operand(OperandType(operand.type, operand.dimensions, operand.scale, operand.zero_point))
        if quant is not None:
            model.set_operand_symm_per_channel_quant_params(index, quant)
        _set_value(model, index, operand, referenced)
    for operation in graph.operations:
        model.add_operation(operation.type, operation.inputs, operation.outputs)
    model.identify_inputs_and_outputs(graph.inputs, graph.outputs)
    model.relax_computation_float32_to_float16(relaxed)
    try:
        model.finish()
    except NNError as error:
        # What was added without an error makes a valid model, even where a failure is expected.
        raise FinishRefused(f"Model.finish: {error}") from error
    return model


def _set_value(model: Model, index: int, operand: ExampleOperand, referenced: Callable[[int], Model]) -> None:
    from nn_runtime.memory import Memory

    if isinstance(operand.value, int):
        model.set_operand_value_from_model(index, referenced(operand.value))
    elif operand.value is not None and operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
        memory = Memory.from_array(operand.value)
        model.set_operand_value_from_memory(index, memory, 0, operand.value.nbytes)
    elif operand.value is not None:
        model.set_operand_value(index, operand.value)
    elif operand.lifetime == OperandLifeTime.NO_VALUE:
        model.set_operand_value(index, None)


def _ndk_execute_on_arrays(example: Example, compilation: Compilation, through: Through) -> list[Outcome]:
    from nn_runtime.execution import Execution

    pairs = zip(_output_types(example), example.outputs, strict=True)
    buffers = [result_buffer(code, expected.dimensions) for code, expected in pairs]
    with Execution(compilation) as execution:
        for i, data in enumerate(example.inputs):
            execution.set_input(i, data)
        for i, buffer in enumerate(buffers):
            execution.set_output(i, buffer)
        if example.infinite_loop:
            execution.set_loop_timeout(_INFINITE_LOOP_TIMEOUT_NS)
        _compute(execution, compilation, through)
        shapes = _ndk_shapes(example, execution)
    return [_outcome(dims, buffer) for dims, buffer in zip(shapes, buffers, strict=True)]


def _ndk_execute_on_memories(example: Example, compilation: Compilation, through: Through) -> list[Outcome]:
    from nn_runtime.execution import Execution
    from nn_runtime.memory import Memory

    memories: list[Memory] = []
    with Execution(compilation) as execution:
        for i, data in enumerate(example.inputs):
            if data is None:
                execution.set_input(i, None)
                continue
            memory = _device_memory(compilation, i, is_output=False)
            memories.append(memory)
            Memory.copy(Memory.from_array(data), memory)
            execution.set_input_from_memory(i, memory)
        outputs = [_device_memory(compilation, i, is_output=True) for i in range(len(example.outputs))]
        memories += outputs
        for i, memory in enumerate(outputs):
            execution.set_output_from_memory(i, memory)
        _compute(execution, compilation, through)
        shapes = _ndk_shapes(example, execution)
    pairs = zip(outputs, example.outputs, shapes, strict=True)
    results = [Outcome(dims, np.array(memory.to_array(out.values.dtype, dims))) for memory, out, dims in pairs]
    for memory in memories:
        memory.close()
    return results


def _device_memory(compilation: Compilation, index: int, is_output: bool) -> Memory:
    from nn_runtime.memory import Memory, MemoryDesc

    with MemoryDesc() as desc:
        (desc.add_output_role if is_output else desc.add_input_role)(compilation, index, 1.0)
        desc.finish()
        return Memory.from_desc(desc)


def _ndk_shapes(example: Example, execution: Execution) -> list[Dimensions]:
    scalars = [not operand for operand in _declared(example)]
    return [
        () if scalar and execution.get_output_operand_rank(i) == 0 else execution.get_output_operand_dimensions(i)
        for i, scalar in enumerate(scalars)
    ]

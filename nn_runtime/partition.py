# SPDX-License-Identifier: Apache-2.0
"""Who runs what: asking the devices, the best device for each operation, and cutting a model into step models.

Source: SURFACE section (k). Mode "aosp" follows it exactly; `cost.py` is the other way to place operations.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import CONTROL_FLOW, FeatureLevel, OperandCode, OperationCode, operation_name
from nn_runtime.errors import BadData
from nn_runtime.failures import guarded
from nn_runtime.hal.capabilities import WORST, lookup
from nn_runtime.hal.interfaces import ExplainsOperations, OperationSupport
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.references import innermost_first, referenced_by
from nn_runtime.hal.types import (
    WRITTEN_LIFETIMES,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    OperandLifeTime,
    Operation,
    PerformanceInfo,
    Subgraph,
)
from nn_runtime.hal.versions.slicing import slice_of, with_main
from nn_runtime.operand import has_unknown_dimensions
from nn_runtime.order import ReadyOperations
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import IDevice

_log = logging.getLogger("nn_runtime.compilation")

INTERPRETER = -1
"""In place of a device index: IF and WHILE that the plan itself interprets, so that their models may be split."""
MAX_INTERPRETED = 256
"""Models inside an IF or WHILE that is interpreted, counted by reference: each time they are cut into steps anew."""


@dataclass(frozen=True)
class Placement:
    """Where one operation goes and why: the answer of every device by name, refusals with their reasons."""

    operation: int
    """Original index."""
    code: int
    device: Device
    step: int
    support: Mapping[str, OperationSupport]
    estimated_ns: float | None
    """The device's own estimate, or mode "cost"'s."""
    elsewhere_ns: Mapping[str, float]
    """Mode "cost"'s estimates for the other devices that take it, by name."""


@dataclass(frozen=True)
class StepModel:
    """A model cut out of another: `operations` by position, `inputs` and `outputs` by operand index of the source."""

    device: int
    operations: tuple[int, ...]
    model: Model
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def query_support(model: Model, device: Device) -> list[OperationSupport]:
    """Ask a device about every operation in run order; a device that fails or miscounts supports nothing.

    A device of an older version of the HAL is asked about the slice of the model that the version can express.
    """
    part = slice_of(model, device.feature_level)
    refusal = OperationSupport(False, f"its HAL, feature level {device.feature_level}, cannot express it")
    answers = [refusal] * len(model.main.operations)
    if part.model is not None:
        for at, answer in zip(part.operations, _answers(part.model, device), strict=True):
            answers[at] = answer
    return answers


def _answers(model: Model, device: Device) -> list[OperationSupport]:
    count = len(model.main.operations)
    try:
        answers = _asked(model, device.hal)
    except HalError as error:
        _log.warning("%s could not be asked for its operations: %s", device.name, error)
        return [OperationSupport(False, f"the device could not be asked: {error}")] * count
    if len(answers) != count:
        reason = f"the device answered for {len(answers)} of {count} operations"
        _log.warning("%s: %s", device.name, reason)
        return [OperationSupport(False, reason)] * count
    for at, answer in enumerate(answers):
        if not answer.supported:
            _log.debug(
                "operation %d %s: %s refuses it: %s",
                at,
                operation_name(model.main.operations[at].type),
                device.name,
                answer.reason,
            )
    return answers


def _asked(model: Model, hal: IDevice) -> list[OperationSupport]:
    """Return the answers as the driver gives them; raises HalError."""
    if isinstance(hal, ExplainsOperations):
        what = "explain_operations"
        return [
            of_kind(OperationSupport, one, what) for one in guarded(lambda: list(hal.explain_operations(model)), what)
        ]
    answers = guarded(lambda: [bool(yes) for yes in hal.get_supported_operations(model)], "get_supported_operations")
    return [OperationSupport(yes, "" if yes else "not supported") for yes in answers]


def support_for_plan(model: Model, device: Device) -> list[OperationSupport]:
    """Return `query_support`, less the IF and WHILE operations of unknown sizes unless the device asks for them.

    The CPU device takes them always.
    """
    answers = query_support(model, device)
    if device.takes_unknown_sizes:
        return answers
    refusal = OperationSupport(False, "sizes at the boundary of its models are not known")
    return [
        refusal if answer.supported and has_unknown_boundary(model, operation) else answer
        for operation, answer in zip(model.main.operations, answers, strict=True)
    ]


def has_unknown_boundary(model: Model, operation: Operation) -> bool:
    """Tell whether an IF or WHILE has operands of unknown size, or its models such inputs or outputs."""
    if operation.type not in CONTROL_FLOW:
        return False
    outer = [model.main.operands[i] for i in (*operation.inputs, *operation.outputs)]
    graphs = [model.referenced[o.location.offset] for o in outer if o.lifetime == OperandLifeTime.SUBGRAPH]
    inner = [graph.operands[i] for graph in graphs for i in (*graph.input_indexes, *graph.output_indexes)]
    return any(has_unknown_dimensions(operand.type, operand.dimensions) for operand in (*outer, *inner))


def place_by_capabilities(
    model: Model,
    devices: Sequence[Device],
    support: Sequence[Sequence[OperationSupport]],
    preference: ExecutionPreference,
    numbers: Sequence[int],
) -> list[int]:
    """Return for each operation the index of its best device, by the capability tables.

    The lower figure wins; on a tie the earlier device, except that the CPU wins any tie. IF and WHILE that the CPU wins
    go to the INTERPRETER if all sizes are known, as do those that nobody takes whole, for what a vendor's device alone
    computes inside, up to MAX_INTERPRETED models. `numbers` are the original indices, for messages. Raises BadData for
    an operation that no device takes.
    """
    has_cpu = any(device.is_reference for device in devices)
    scores = [operation_scores(model, device, preference) for device in devices]
    inner = _models_inside(model)
    chosen = []
    for at, operation in enumerate(model.main.operations):
        is_small = inner[at] <= MAX_INTERPRETED
        may_interpret = has_cpu and inner[at] > 0 and is_small and not has_unknown_boundary(model, operation)
        best = -1
        best_score = 0.0
        for index, device in enumerate(devices):
            if not support[index][at].supported:
                continue
            score = scores[index][at]
            if best < 0 or score < best_score or (score == best_score and device.is_reference):
                best, best_score = index, score
        if best < 0 and not may_interpret:
            failure = no_device(operation, numbers[at], devices, [answers[at] for answers in support])
            raise BadData(failure if is_small else f"{failure}; {inner[at]} models inside are too many to cut up")
        chosen.append(INTERPRETER if may_interpret and (best < 0 or devices[best].is_reference) else best)
    return chosen


def _models_inside(model: Model) -> list[int]:
    """Return of each operation of the main model how many models are inside, each as often as it is referred to."""
    inside: dict[int, int] = {}

    def count(graph: Subgraph, operation: Operation) -> int:
        return sum(1 + inside[number] for number in referenced_by(graph, operation))

    for number in innermost_first(model.main, model.referenced):
        graph = model.referenced[number]
        inside[number] = sum(count(graph, operation) for operation in graph.operations)
    return [count(model.main, operation) for operation in model.main.operations]


def no_device(operation: Operation, number: int, devices: Sequence[Device], support: Sequence[OperationSupport]) -> str:
    """Say that no device takes an operation, with every device's reason."""
    reasons = "; ".join(f"{device.name}: {answer.reason}" for device, answer in zip(devices, support, strict=True))
    return f"operation {number} {operation_name(operation.type)}: no device can run it ({reasons})"


def operation_scores(model: Model, device: Device, preference: ExecutionPreference) -> list[float]:
    """Return a device's figure for every operation of the main subgraph, relative to the CPU; lower is better."""
    referenced: dict[int, float] = {}
    for number in innermost_first(model.main, model.referenced):
        graph = model.referenced[number]
        referenced[number] = sum(_score(model, graph, one, device, preference, referenced) for one in graph.operations)
    return [_score(model, model.main, one, device, preference, referenced) for one in model.main.operations]


def _score(
    model: Model,
    graph: Subgraph,
    operation: Operation,
    device: Device,
    preference: ExecutionPreference,
    referenced: Mapping[int, float],
) -> float:
    table = device.capabilities
    inner = sum(referenced[number] for number in referenced_by(graph, operation))
    if operation.type == OperationCode.IF:
        return _figure(table.if_performance, preference) + 0.5 * inner
    if operation.type == OperationCode.WHILE:
        return _figure(table.while_performance, preference) + inner
    if not operation.inputs:
        return _figure(WORST, preference)
    code = graph.operands[operation.inputs[0]].type
    if model.relax_computation_float32_to_float16 and code == OperandCode.FLOAT32:
        return _figure(table.relaxed_float32_to_float16_scalar, preference)
    if model.relax_computation_float32_to_float16 and code == OperandCode.TENSOR_FLOAT32:
        return _figure(table.relaxed_float32_to_float16_tensor, preference)
    return _figure(lookup(table, code), preference)


def _figure(info: PerformanceInfo, preference: ExecutionPreference) -> float:
    return info.power_usage if preference == ExecutionPreference.LOW_POWER else info.exec_time


def cut(model: Model, devices: Sequence[Device], chosen: Sequence[int], *, as_android: bool = False) -> list[StepModel]:
    """Cut a model into steps, each on one device, in an order in which they can run.

    A step of the INTERPRETER is one IF or WHILE, and has no model of its own. A step may have no inputs, where all that
    it reads is constant; one whose results nobody reads gives them out all the same. as_android: both are failures.
    Raises HalError(GENERAL_FAILURE) for these, and for a step whose device is too old for the operands of unknown size
    that it produces.
    """
    groups = _grouped(model.main, chosen, _queue_order(devices))
    producer = {index: at for at, operation in enumerate(model.main.operations) for index in operation.outputs}
    group_of = {at: number for number, (_, members) in enumerate(groups) for at in members}
    crossing = {
        index
        for at, operation in enumerate(model.main.operations)
        for index in operation.inputs
        if index in producer and group_of[producer[index]] != group_of[at]
    }
    steps = [
        _interpreted_step(model, members[0]) if device == INTERPRETER else _step_model(model, device, members, crossing)
        for device, members in groups
    ]
    read = crossing | set(model.main.output_indexes)
    for step in steps:
        if step.device != INTERPRETER:
            if as_android:
                _check_ends(step, devices[step.device], read)
            _check_step(step, devices[step.device])
    return steps


def _interpreted_step(model: Model, at: int) -> StepModel:
    operation = model.main.operations[at]
    return StepModel(INTERPRETER, (at,), model, operation.inputs, operation.outputs)


def _queue_order(devices: Sequence[Device]) -> list[int]:
    """Return the queues as they are looked through: the interpreter, the CPU, then the last device to the first."""
    return [INTERPRETER, *sorted(range(len(devices)), key=lambda i: (not devices[i].is_reference, -i))]


def _grouped(graph: Subgraph, chosen: Sequence[int], order: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Return (device, operations) per step: ready operations wait per device, and a step drains one queue."""
    queues: dict[int, deque[int]] = {device: deque() for device in order}
    written = {i for i, operand in enumerate(graph.operands) if operand.lifetime in WRITTEN_LIFETIMES}
    operations = ReadyOperations(graph.operations, written)
    for at in operations.first():
        queues[chosen[at]].append(at)
    groups: list[tuple[int, list[int]]] = []
    while True:
        device = next((device for device in order if queues[device]), None)
        if device is None:
            return groups
        members: list[int] = []
        while queues[device]:
            at = queues[device].popleft()
            members.append(at)
            for ready in operations.after(at):
                queues[chosen[ready]].append(ready)
        groups += [(device, [at]) for at in members] if device == INTERPRETER else [(device, members)]


class _StepBuilder:
    """Collects the operands of a step model in order of use, inputs before outputs."""

    def __init__(self, graph: Subgraph) -> None:
        self.graph = graph
        self.numbers: dict[int, int] = {}
        self.model_inputs: list[int] = []
        self.temporaries_read: list[int] = []
        self.outputs_read: list[int] = []
        self.model_outputs: list[int] = []

    def add(self, index: int, is_input: bool) -> int:
        if index not in self.numbers:
            self.numbers[index] = len(self.numbers)
            lifetime = self.graph.operands[index].lifetime
            if lifetime == OperandLifeTime.SUBGRAPH_INPUT:
                self.model_inputs.append(index)
            elif lifetime == OperandLifeTime.TEMPORARY_VARIABLE and is_input:
                self.temporaries_read.append(index)
            elif lifetime == OperandLifeTime.SUBGRAPH_OUTPUT:
                (self.outputs_read if is_input else self.model_outputs).append(index)
        return self.numbers[index]


def _step_model(model: Model, device: int, members: Sequence[int], crossing: set[int]) -> StepModel:
    graph = model.main
    builder = _StepBuilder(graph)
    operations = []
    for at in members:
        operation = graph.operations[at]
        inputs = tuple(builder.add(index, True) for index in operation.inputs)
        outputs = tuple(builder.add(index, False) for index in operation.outputs)
        operations.append(Operation(operation.type, inputs, outputs))
    written = {index for at in members for index in graph.operations[at].outputs}
    if not written & crossing and not builder.model_outputs:
        crossing = written  # nobody reads what it makes, but a model has results
    temporaries = sorted(
        index for index in written & crossing if graph.operands[index].lifetime == OperandLifeTime.TEMPORARY_VARIABLE
    )
    inputs = (*builder.model_inputs, *builder.temporaries_read, *builder.outputs_read)
    outputs = (*builder.model_outputs, *temporaries)
    lifetimes = dict.fromkeys(inputs, OperandLifeTime.SUBGRAPH_INPUT)
    lifetimes.update(dict.fromkeys(outputs, OperandLifeTime.SUBGRAPH_OUTPUT))
    operands = tuple(
        replace(graph.operands[index], lifetime=lifetimes[index]) if index in lifetimes else graph.operands[index]
        for index in builder.numbers
    )
    cut_out = Subgraph(
        operands,
        tuple(operations),
        tuple(builder.numbers[index] for index in inputs),
        tuple(builder.numbers[index] for index in outputs),
    )
    return StepModel(device, tuple(members), with_main(model, cut_out), inputs, outputs)


def _check_ends(step: StepModel, device: Device, read: set[int]) -> None:
    missing = "inputs" if not step.inputs else "outputs" if read.isdisjoint(step.outputs) else ""
    if missing:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{_where(step, device)} has no {missing}")


def _where(step: StepModel, device: Device) -> str:
    return f"the step of operation {step.operations[0]} on {device.name}"


def _check_step(step: StepModel, device: Device) -> None:
    graph = step.model.main
    results = [graph.operands[i] for i in graph.output_indexes]
    dynamic = any(has_unknown_dimensions(operand.type, operand.dimensions) for operand in results)
    if dynamic and device.feature_level < FeatureLevel.HAL_1_2:
        problem = "gives results of unknown size, which takes a device of HAL 1.2"
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{_where(step, device)} {problem}")

# SPDX-License-Identifier: Apache-2.0
"""The process that hosts a driver: takes calls over channels, and ends when the application's end is closed.

Every object that the application may name (devices, prepared models, requests, pools ...) has a number that the
application gave it; `BufferToken`s given out are random, so that those of another process mean nothing here.
"""

from __future__ import annotations

import ast
import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from nn_runtime import vlog
from nn_runtime.hal import fences
from nn_runtime.hal.costs import HasCosts
from nn_runtime.hal.interfaces import (
    CacheRequest,
    DescribesDevice,
    ExplainsOperations,
    IBuffer,
    IBurstContext,
    IFencedExecutionCallback,
    IPreparedModel,
    OperationSupport,
    ReportsProfile,
    ReportsStatistics,
    TakesCompilationAttributes,
    TakesExecutionAttributes,
    TakesUnknownSizes,
    UnusableDevice,
)
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.remote_channel import BadMessage, Channel, ChannelClosed, attach_pool, connect
from nn_runtime.hal.types import BufferToken, ErrorStatus, ExecutionResult, HalError, Timing
from nn_runtime.operand import register_extension_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nn_runtime.hal.costs import CostTable
    from nn_runtime.hal.interfaces import Attributes, IDevice
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.remote_channel import PoolDescription
    from nn_runtime.hal.types import BufferDesc, BufferRole, ExecutionPreference, Model, Priority, Request
    from nn_runtime.operand import Dimensions

_log = logging.getLogger("nn_runtime.driver")

DRIVER_HOST = "NNRT_DRIVER_HOST"
_TOKEN_BITS = 62
_PLAIN = Timing()


class _Objects(dict[int, Any]):
    """Objects by number; raises HalError(INVALID_ARGUMENT) for one that is closed."""

    def __missing__(self, number: int) -> NoReturn:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"object {number} is closed")


class Host:
    """The objects of one application, and what it may do with them."""

    def __init__(self, entry: str) -> None:
        """Load the driver: `entry` is `module:function` as in an entry point."""
        module, _, function = entry.partition(":")
        self._offered = list(getattr(importlib.import_module(module), function)())
        self._objects = _Objects(
            {at: item for at, item in enumerate(self._offered) if not isinstance(item, UnusableDevice)}
        )
        self._tokens: dict[int, int] = {}
        self._token_of: dict[int, int] = {}

    def hello(self) -> list[UnusableDevice | dict[str, object]]:
        """Return what the driver offers: for each device its constant answers."""
        return [item if isinstance(item, UnusableDevice) else _constants(item) for item in self._offered]

    def serve(self, channel: Channel) -> None:
        """Answer calls until the channel is closed."""
        while True:
            given: Sequence[int] = ()
            try:
                try:
                    message, descriptors = channel.receive_with_descriptors()
                    answer, given = self._answer(message, descriptors)
                    channel.send(answer, given)
                except BadMessage as error:
                    channel.send(("error", int(ErrorStatus.GENERAL_FAILURE), f"bad message: {error}", ()))
            except ChannelClosed:
                channel.close()
                return
            finally:
                for fd in given:
                    fences.close(fd)

    def _answer(self, message: object, descriptors: list[int]) -> tuple[object, Sequence[int]]:
        method, target, arguments, forgotten = cast("tuple[str, int, tuple[object, ...], list[int]]", message)
        for number in forgotten:
            self._forget(number)
        try:
            call: Callable[..., tuple[object, Sequence[int]]] = getattr(self, f"call_{method}")
            result, given = call(target, descriptors, *arguments)
        except HalError as error:
            return ("error", int(error.status), str(error), error.output_shapes), ()
        except (Exception, SystemExit) as error:
            detail = f"the driver failed with {type(error).__name__}: {error}"
            _log.debug("%s: %s", method, detail, exc_info=True)
            is_memory = isinstance(error, MemoryError)
            status = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT if is_memory else ErrorStatus.GENERAL_FAILURE
            return ("error", int(status), detail, ()), ()
        return ("ok", result), given

    def _forget(self, number: int) -> None:
        self._objects.pop(number, None)
        token = self._token_of.pop(number, None)
        if token is not None:
            self._tokens.pop(token, None)

    # Calls. Each gets the number of its object, the descriptors that came, and its arguments.

    def call_open_channel(
        self, _target: int, descriptors: list[int], address: tuple[int, bytes] | None
    ) -> tuple[None, Sequence[int]]:
        """Serve another channel."""
        channel = Channel(socket.socket(fileno=descriptors[0])) if address is None else connect(address)
        threading.Thread(target=self.serve, args=(channel,), name="driver host", daemon=True).start()
        return None, ()

    def call_pool(
        self, target: int, descriptors: list[int], description: PoolDescription
    ) -> tuple[None, Sequence[int]]:
        """Attach to shared memory."""
        self._objects[target] = attach_pool(description, descriptors)
        return None, ()

    def call_status(self, target: int, _descriptors: list[int]) -> tuple[int, Sequence[int]]:
        """IDevice.get_status."""
        return int(self._objects[target].get_status()), ()

    def call_statistics(self, target: int, _descriptors: list[int]) -> tuple[Mapping[str, object], Sequence[int]]:
        """ReportsStatistics.statistics."""
        return dict(self._objects[target].statistics()), ()

    def call_costs(self, target: int, _descriptors: list[int]) -> tuple[CostTable, Sequence[int]]:
        """HasCosts.cost_table."""
        return self._objects[target].cost_table(), ()

    def call_explain(
        self,
        target: int,
        _descriptors: list[int],
        model: Model,
        pools: Sequence[int],
        extension_types: Mapping[int, tuple[bool, int]],
    ) -> tuple[list[OperationSupport], Sequence[int]]:
        """ExplainsOperations.explain_operations, or what get_supported_operations says."""
        device = self._objects[target]
        complete = self._model(model, pools, extension_types)
        if isinstance(device, ExplainsOperations):
            return list(device.explain_operations(complete)), ()
        answers = device.get_supported_operations(complete)
        return [OperationSupport(bool(yes), "" if yes else "not supported") for yes in answers], ()

    def call_prepare(
        self,
        target: int,
        descriptors: list[int],
        number: int,
        model: Model,
        pools: Sequence[int],
        extension_types: Mapping[int, tuple[bool, int]],
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: tuple[int, bytes] | None,
        attributes: Attributes | None,
    ) -> tuple[list[str], Sequence[int]]:
        """IDevice.prepare_model; returns what the prepared model can do beside the necessary."""
        try:
            device = self._objects[target]
            complete = self._model(model, pools, extension_types)
            arguments = (complete, preference, priority, deadline_ns, _cache(descriptors, cache))
            if attributes is None:
                prepared = device.prepare_model(*arguments)
            else:
                prepared = device.prepare_model_with_attributes(*arguments, attributes)
        finally:
            _close_all(descriptors)
        self._objects[number] = of_kind(IPreparedModel, prepared, "prepare_model")
        return _abilities(prepared), ()

    def call_prepare_from_cache(
        self,
        target: int,
        descriptors: list[int],
        number: int,
        deadline_ns: int | None,
        cache: tuple[int, bytes],
    ) -> tuple[list[str], Sequence[int]]:
        """IDevice.prepare_model_from_cache."""
        try:
            prepared = self._objects[target].prepare_model_from_cache(deadline_ns, _cache(descriptors, cache))
        finally:
            _close_all(descriptors)
        self._objects[number] = of_kind(IPreparedModel, prepared, "prepare_model_from_cache")
        return _abilities(prepared), ()

    def call_allocate(
        self,
        target: int,
        _descriptors: list[int],
        number: int,
        desc: BufferDesc,
        prepared: Sequence[int],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[int, Sequence[int]]:
        """IDevice.allocate; the token given out is our own."""
        models = [self._objects[one] for one in prepared]
        buffer, token = self._objects[target].allocate(desc, models, input_roles, output_roles)
        of_kind(IBuffer, buffer, "allocate")
        if of_kind(int, token, "allocate: the token") <= 0:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"allocate: wanted a token > 0, got {token}")
        given_out = secrets.randbits(_TOKEN_BITS) + 1
        self._objects[number] = buffer
        self._tokens[given_out] = token
        self._token_of[number] = given_out
        return given_out, ()

    def call_copy_to(self, target: int, _descriptors: list[int], pool: int) -> tuple[None, Sequence[int]]:
        """IBuffer.copy_to."""
        self._objects[target].copy_to(self._objects[pool])
        return None, ()

    def call_copy_from(
        self, target: int, _descriptors: list[int], pool: int, dimensions: Dimensions
    ) -> tuple[None, Sequence[int]]:
        """IBuffer.copy_from."""
        self._objects[target].copy_from(self._objects[pool], dimensions)
        return None, ()

    def call_keep_request(
        self,
        target: int,
        _descriptors: list[int],
        request: Request,
        pools: Sequence[int | BufferToken],
    ) -> tuple[None, Sequence[int]]:
        """Keep a request, to be executed by its number."""
        self._objects[target] = replace(request, pools=tuple(self._pool(pool) for pool in pools))
        return None, ()

    def call_execute(
        self,
        target: int,
        _descriptors: list[int],
        request: int,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        extra: Attributes | str | None,
    ) -> tuple[object, Sequence[int]]:
        """Execute a request on a prepared model or burst: plainly, profiled (`extra` a string), or with attributes."""
        executor = self._objects[target]
        kept = self._objects[request]
        if extra is None:
            method = getattr(executor, "execute_synchronously", None) or executor.execute
            return _encoded(method(kept, measure, deadline_ns, loop_timeout_ns)), ()
        if isinstance(extra, str):
            result, profile = executor.execute_profiled(kept, deadline_ns, loop_timeout_ns)
            return (_encoded(result), profile), ()
        result = executor.execute_with_attributes(kept, measure, deadline_ns, loop_timeout_ns, extra)
        return _encoded(result), ()

    def call_execute_fenced(
        self,
        target: int,
        descriptors: list[int],
        request: int,
        callback: int,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_ns: int | None,
    ) -> tuple[bool, Sequence[int]]:
        """IPreparedModel.execute_fenced; the fence comes back as a descriptor."""
        try:
            fence, info = self._objects[target].execute_fenced(
                self._objects[request], descriptors, measure, deadline_ns, loop_timeout_ns, duration_ns
            )
        finally:
            _close_all(descriptors)
        self._objects[callback] = of_kind(IFencedExecutionCallback, info, "execute_fenced")
        given = [] if fence is None or fence < 0 else [fence]
        return bool(given), given

    def call_execution_info(self, target: int, _descriptors: list[int]) -> tuple[object, Sequence[int]]:
        """IFencedExecutionCallback.get_execution_info."""
        return self._objects[target].get_execution_info(), ()

    def call_open_burst(self, target: int, _descriptors: list[int], number: int) -> tuple[None, Sequence[int]]:
        """IPreparedModel.configure_execution_burst."""
        what = "configure_execution_burst"
        self._objects[number] = of_kind(IBurstContext, self._objects[target].configure_execution_burst(), what)
        return None, ()

    def call_free_memory(self, target: int, _descriptors: list[int], pool: int) -> tuple[None, Sequence[int]]:
        """IBurstContext.free_memory."""
        self._objects[target].free_memory(self._objects[pool])
        return None, ()

    def call_close(self, target: int, _descriptors: list[int]) -> tuple[None, Sequence[int]]:
        """Close an object and forget it."""
        closed = self._objects.get(target)
        self._forget(target)
        if closed is not None:
            closed.close()
        return None, ()

    def _pool(self, pool: int | BufferToken) -> SharedMemory | BufferToken:
        if not isinstance(pool, BufferToken):
            return cast("SharedMemory", self._objects[pool])
        token = self._tokens.get(pool.value)
        if token is None:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"no buffer has the token {pool.value}")
        return BufferToken(token)

    def _model(self, model: Model, pools: Sequence[int], extension_types: Mapping[int, tuple[bool, int]]) -> Model:
        for code, (is_tensor, element_bytes) in extension_types.items():
            register_extension_type(code, is_tensor, element_bytes)
        return replace(model, pools=tuple(self._objects[pool] for pool in pools))


def _encoded(result: ExecutionResult) -> object:
    """Return a result as plain values; None where there is nothing to say."""
    timing = of_kind(ExecutionResult, result, "execute").timing
    if not of_kind(Sequence, result.output_shapes, "output shapes") and timing == _PLAIN:
        return None
    shapes = [(shape.dimensions, shape.is_sufficient) for shape in result.output_shapes]
    return shapes, timing.time_on_device_ns, timing.time_in_driver_ns


def _constants(device: IDevice) -> dict[str, object]:
    """Return a device's answers that never change, or the reason why it gives none."""
    try:
        return {
            "name": device.name,
            "capabilities": device.get_capabilities(),
            "version": device.get_version_string(),
            "type": int(device.get_type()),
            "feature_level": int(device.get_feature_level()),
            "extensions": tuple(device.get_supported_extensions()),
            "cache_files": tuple(device.get_number_of_cache_files_needed()),
            "description": device.description() if isinstance(device, DescribesDevice) else None,
            "statistics": isinstance(device, ReportsStatistics),
            "attributes": isinstance(device, TakesCompilationAttributes),
            "unknown_sizes": device.takes_unknown_sizes() if isinstance(device, TakesUnknownSizes) else None,
            "costs": isinstance(device, HasCosts),
        }
    except Exception as error:
        name = getattr(device, "name", type(device).__name__)
        return {"name": str(name), "failure": f"{type(error).__name__}: {error}"}


def _abilities(prepared: object) -> list[str]:
    found = [("execute_profiled", ReportsProfile), ("execute_with_attributes", TakesExecutionAttributes)]
    return [name for name, protocol in found if isinstance(prepared, protocol)]


def _cache(descriptors: Sequence[int], cache: tuple[int, bytes] | None) -> CacheRequest | None:
    """Return the cache files: so many model files, then data files."""
    if cache is None:
        return None
    count, token = cache
    return CacheRequest(tuple(descriptors[:count]), tuple(descriptors[count:]), token)


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def start(descriptor: int) -> None:
    """Begin in a new process: the channel is a descriptor, or (-1) its address stands on the standard input."""
    if descriptor >= 0:
        main(Channel(socket.socket(fileno=descriptor)))
    else:
        port, secret = ast.literal_eval(sys.stdin.readline())
        main(connect((port, secret)))


def main(channel: Channel) -> None:
    """Host the driver that the first message names, until the application closes the channel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the application's; it ends us by closing the channel
    os.environ.pop(DRIVER_HOST, None)
    vlog.read_tags()
    try:
        entry = channel.receive()
        try:
            host = Host(str(entry))
            answer: object = ("ok", host.hello())
            channel.send(answer)
        except ChannelClosed:
            raise
        except (Exception, SystemExit) as error:
            channel.send(("error", f"{type(error).__name__}: {error}"))
            return
        host.serve(channel)
    except ChannelClosed:
        return
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # threads may be inside the driver

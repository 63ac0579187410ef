# SPDX-License-Identifier: Apache-2.0
"""Models made ready by drivers: with what options, from a cache where there is one."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from nn_runtime.caching import prepare_cached, step_token
from nn_runtime.failures import guarded
from nn_runtime.hal.interfaces import IPreparedModel, PreparesAgain, TakesCompilationAttributes
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.types import ExecutionPreference, Priority
from nn_runtime.observe import trace
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.caching import CacheInfo
    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import Attributes, CacheRequest
    from nn_runtime.hal.types import Model

_log = logging.getLogger("nn_runtime.compilation")


@dataclass(frozen=True)
class PrepareOptions:
    """What a compilation asks of every prepared model; `cache` says where to keep it.

    `attributes`: of vendor extensions, by name and code.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    cache: CacheInfo | None = None
    attributes: Attributes = ()


def prepare(
    device: Device,
    model: Model,
    options: PrepareOptions,
    deadline_ns: int | None,
    operations: Sequence[tuple[int, ...]] = (),
) -> tuple[IPreparedModel, bytes | None]:
    """Prepare a model on a device, from its cache where that is possible; return it and its cache token, if any.

    `operations` as in `step_token`. Raises HalError.
    """
    token = None
    if options.cache is not None and any(device.cache_files):
        token = step_token(options.cache, device, options.preference, options.priority, operations, options.attributes)
    count = len(model.main.operations)
    started = time.perf_counter_ns()
    prepared = _prepared(device, model, options, deadline_ns, token)
    ended = time.perf_counter_ns()
    tracer = trace.current
    if tracer is not None:
        tracer.add(trace.DRIVER, "PC", f"{device.name} prepare", started, ended, operations=count)
    _log.debug("%s prepared %d operations in %.1f ms", device.name, count, (ended - started) / 1e6)
    return prepared, token


def _prepared(
    device: Device, model: Model, options: PrepareOptions, deadline_ns: int | None, token: bytes | None
) -> IPreparedModel:
    """Return the model prepared by the driver: from the cache files of a token, if one is given and they serve."""
    hal = device.hal

    def from_model(cache: CacheRequest | None, deadline_ns: int | None) -> IPreparedModel:
        def call() -> IPreparedModel:
            if options.attributes and isinstance(hal, TakesCompilationAttributes):
                return hal.prepare_model_with_attributes(
                    model, options.preference, options.priority, deadline_ns, cache, options.attributes
                )
            return hal.prepare_model(model, options.preference, options.priority, deadline_ns, cache)

        return _checked(call, "prepare_model")

    def from_cache(cache: CacheRequest) -> IPreparedModel:
        prepared = _checked(lambda: hal.prepare_model_from_cache(deadline_ns, cache), "prepare_model_from_cache")
        if isinstance(prepared, PreparesAgain):
            prepared.prepare_again_by(lambda: from_model(None, None))
        return prepared

    if options.cache is None or token is None:
        return from_model(None, deadline_ns)
    return prepare_cached(device, options.cache, token, from_cache, lambda cache: from_model(cache, deadline_ns))


def _checked(call: Callable[[], IPreparedModel], what: str) -> IPreparedModel:
    """Return the prepared model that a driver gives; raises HalError."""
    return of_kind(IPreparedModel, guarded(call, what), what)

# SPDX-License-Identifier: Apache-2.0
"""The CPU driver's functions evaluated in float64: the same code, with float64 where it says float32 or float16.

While `float64_functions` lasts, `np.float32` and `np.float16` mean `np.float64` inside `cpu_driver.operations`, and
float operand types have float64 arrays there. What differs from the driver's results then is rounding alone. Integer
and fixed-point arithmetic stays what it is, and so do factors that `nn_runtime.operations` computes in float32.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import cpu_driver.operations
from cpu_driver.operations import function_of
from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations import OperationView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from nn_runtime.operand import Array
    from nn_runtime.testing.drawing import Value
    from nn_runtime.testing.random_graph import Node, RandomGraph

HALF_TYPES = (OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT16)
FLOAT_TYPES = (OperandCode.TENSOR_FLOAT32, OperandCode.FLOAT32, *HALF_TYPES)


class WideNumpy:
    """numpy, but for its narrow float types."""

    def __getattr__(self, name: str) -> Any:
        return np.float64 if name in ("float32", "float16") else getattr(np, name)


def wide_dtype_of(code: int) -> np.dtype[Any]:
    return np.dtype(np.float64) if code in FLOAT_TYPES else dtype_of(code)


@contextlib.contextmanager
def float64_functions() -> Iterator[None]:
    """Let the CPU driver's functions compute in float64."""
    modules = list(_modules())
    saved = [(module, name, vars(module)[name]) for module in modules for name in ("np", "dtype_of")
             if name in vars(module)]  # fmt: skip
    _forget(modules)
    for module in modules:
        if "np" in vars(module):
            module.np = WideNumpy()  # type: ignore[attr-defined]
        if "dtype_of" in vars(module):
            module.dtype_of = wide_dtype_of  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, name, original in saved:
            setattr(module, name, original)
        _forget(modules)


def execute_wide(graph: RandomGraph) -> list[Array]:
    """Return the flat outputs of a graph, floats in float64; inside `float64_functions`."""
    wide: dict[int, Value] = {}
    for node in graph.nodes:
        inputs = [_promoted(value, wide) for value in node.inputs]
        for output, array in zip(node.outputs, _outputs(node, inputs), strict=True):
            wide[id(output)] = replace(output, array=array)
    return [_data(wide[id(value)]).reshape(-1) for value in graph.outputs]


def _promoted(value: Value, wide: dict[int, Value]) -> Value:
    if id(value) not in wide:
        array = value.array
        wide[id(value)] = value if array is None else replace(value, array=array.astype(wide_dtype_of(value.type)))
    return wide[id(value)]


def _outputs(node: Node, inputs: list[Value]) -> Iterator[Array]:
    function = function_of(node.code)
    assert function is not None
    arrays = function(OperationView(node.code, inputs, node.outputs))
    for output, array in zip(node.outputs, arrays, strict=True):
        assert array.dtype == wide_dtype_of(output.type), f"{node.code.name} computed in {array.dtype}"
        if output.exact and output.type in HALF_TYPES:
            # What every device has bit for bit, because it is rounded there, has to be rounded here too.
            array = array.astype(np.float16).astype(np.float64)
        yield array.reshape(output.dimensions)


def _data(value: Value) -> Array:
    assert value.array is not None
    return value.array


def _modules() -> Iterator[ModuleType]:
    package = cpu_driver.operations
    for found in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{found.name}")


def _forget(modules: list[ModuleType]) -> None:
    """Empty the caches of functions, whose entries depend on what `np` means."""
    for module in modules:
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == module.__name__:
                value.cache_clear()

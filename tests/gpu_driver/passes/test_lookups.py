# SPDX-License-Identifier: Apache-2.0
"""What GATHER and EMBEDDING_LOOKUP take over: a DEQUANTIZE, and the rule that counts negative indices from the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, results

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

CODES, FLOAT, INT32 = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
SCALE, ZERO = 0.25, -7
ROWS, DEPTH = 6, 5
TABLE = np.random.default_rng(0).integers(-128, 128, (ROWS, DEPTH)).astype(np.int8)
INDICES = np.array([0, -1, 5, -6, 3], np.int32)


@dataclass
class Lookup:
    """Rows of a table of 8 bits as Keras's Embedding looks them up: SELECT(x < limit, x + added, x).

    limit_first: SELECT(limit < x, x + added, x).
    """

    code: OperationCode = OperationCode.GATHER
    added: int = ROWS
    limit: int = 0
    limit_first: bool = False
    otherwise: str = "indices"
    read_twice: str = ""
    guards: int = 1

    def model(self) -> Model:
        graph, dims = Graph(), INDICES.shape
        names = {"chosen": graph.input(dims, INT32)}
        for _ in range(self.guards):
            names = {"indices": names["chosen"]}
            for name in ("sum", "chosen"):
                names[name] = (graph.output if name == self.read_twice else graph.temporary)(dims, INT32)
            is_less = graph.temporary(dims, OperandCode.TENSOR_BOOL8)
            limit, added = (graph.constant(np.array([one], np.int32)) for one in (self.limit, self.added))
            compared = [limit, names["indices"]] if self.limit_first else [names["indices"], limit]
            graph.operation(OperationCode.LESS, compared, is_less)
            graph.operation(OperationCode.ADD, [names["indices"], added, graph.integer(FuseCode.NONE)], names["sum"])
            graph.operation(OperationCode.SELECT, [is_less, names["sum"], names[self.otherwise]], names["chosen"])
        table = graph.constant(TABLE, CODES, SCALE, ZERO)
        found = graph.temporary((*dims, DEPTH), CODES, SCALE, ZERO)
        lookup = [names["chosen"], table]
        if self.code == OperationCode.GATHER:
            lookup = [table, graph.integer(0), names["chosen"]]
        graph.operation(self.code, lookup, found)
        graph.operation(OperationCode.DEQUANTIZE, [found], graph.output((*dims, DEPTH)))
        return graph.model()


CASES = {"GATHER": OperationCode.GATHER, "EMBEDDING_LOOKUP": OperationCode.EMBEDDING_LOOKUP}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES)
def test_one_operation_is_left(opencl_device: Device, code: OperationCode) -> None:
    model = Lookup(code).model()
    assert operations_left(model) == [code.name]
    (result,) = results(opencl_device, model, [INDICES])
    np.testing.assert_array_equal(result, SCALE * (TABLE[INDICES].astype(np.float32) - ZERO))


@pytest.mark.parametrize("code", CASES.values(), ids=CASES)
@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1])
def test_what_is_outside_the_table_is_wrong(opencl_device: Device, code: OperationCode, wrong: int) -> None:
    indices = INDICES.copy()
    indices[2] = wrong
    with pytest.raises(HalError, match=r"(indices|lookups) .*must be in \[0, 6\)"):
        results(opencl_device, Lookup(code).model(), [indices])


@pytest.mark.parametrize(
    "other",
    [Lookup(added=ROWS - 1), Lookup(limit=1), Lookup(otherwise="sum"), Lookup(limit_first=True)],
    ids=["another size", "another limit", "another choice", "another order"],
)
def test_other_rules_stay(opencl_device: Device, other: Lookup) -> None:
    model = other.model()
    assert operations_left(model) == ["LESS", "ADD", "SELECT", "GATHER"]
    indices = np.array([2, 3, 0, 1, 4], np.int32)
    added = indices + other.added
    is_less = other.limit < indices if other.limit_first else indices < other.limit
    chosen = np.where(is_less, added, added if other.otherwise == "sum" else indices)
    if (chosen >= ROWS).any():
        with pytest.raises(HalError, match="must be in"):
            results(opencl_device, model, [indices])
    else:
        (result,) = results(opencl_device, model, [indices])
        np.testing.assert_array_equal(result, SCALE * (TABLE[chosen].astype(np.float32) - ZERO))


def test_only_one_of_two_rules_goes(opencl_device: Device) -> None:
    """What is less than -size is counted from the end twice."""
    model = Lookup(guards=2).model()
    assert operations_left(model) == ["LESS", "ADD", "SELECT", "GATHER"]
    (result,) = results(opencl_device, model, [INDICES - ROWS])
    np.testing.assert_array_equal(result, SCALE * (TABLE[(INDICES - ROWS) % ROWS].astype(np.float32) - ZERO))


@pytest.mark.parametrize("name", ["sum", "chosen"])
def test_what_others_read_is_computed(opencl_device: Device, name: str) -> None:
    model = Lookup(read_twice=name).model()
    left = operations_left(model)
    assert left == (["ADD", "GATHER"] if name == "sum" else ["LESS", "ADD", "SELECT", "GATHER"])
    read, result = results(opencl_device, model, [INDICES])
    wanted: Array = INDICES + ROWS if name == "sum" else INDICES % ROWS
    np.testing.assert_array_equal(read, wanted)
    np.testing.assert_array_equal(result, SCALE * (TABLE[INDICES].astype(np.float32) - ZERO))

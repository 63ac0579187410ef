# SPDX-License-Identifier: Apache-2.0
"""What GATHER and EMBEDDING_LOOKUP take over: a DEQUANTIZE, and the rule that counts negative indices from the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from nn_runtime.operand import dtype_of
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
    """Rows of a table of 8 bits as Keras's Embedding looks them up: SELECT(x < limit, x + added, x), DEQUANTIZE.

    limit_first: SELECT(limit < x, x + added, x). shift: of codes and zero point, to those without a sign.
    """

    code: OperationCode = OperationCode.GATHER
    added: int | tuple[int, ...] = ROWS
    limit: int = 0
    limit_first: bool = False
    otherwise: str = "indices"
    read_twice: str = ""
    guards: int = 1
    compare: OperationCode = OperationCode.LESS
    combine: OperationCode = OperationCode.ADD
    follow: OperationCode = OperationCode.DEQUANTIZE
    made: OperandCode = FLOAT
    shift: int = 0

    def model(self) -> Model:
        graph, dims = Graph(), INDICES.shape
        names = {"chosen": graph.input(dims, INT32)}
        for _ in range(self.guards):
            names = {"indices": names["chosen"]}
            for name in ("sum", "chosen"):
                names[name] = (graph.output if name == self.read_twice else graph.temporary)(dims, INT32)
            is_less = graph.temporary(dims, OperandCode.TENSOR_BOOL8)
            limit, added = (graph.constant(np.atleast_1d(np.int32(one))) for one in (self.limit, self.added))
            compared = [limit, names["indices"]] if self.limit_first else [names["indices"], limit]
            graph.operation(self.compare, compared, is_less)
            graph.operation(self.combine, [names["indices"], added, graph.integer(FuseCode.NONE)], names["sum"])
            graph.operation(OperationCode.SELECT, [is_less, names["sum"], names[self.otherwise]], names["chosen"])
        codes = OperandCode.TENSOR_QUANT8_ASYMM if self.shift else CODES
        data = (TABLE + np.int16(self.shift)).astype(dtype_of(codes))
        table = graph.constant(data, codes, SCALE, ZERO + self.shift)
        found = graph.temporary((*dims, DEPTH), codes, SCALE, ZERO + self.shift)
        lookup = [names["chosen"], table]
        if self.code == OperationCode.GATHER:
            lookup = [table, graph.integer(0), names["chosen"]]
        graph.operation(self.code, lookup, found)
        graph.operation(self.follow, [found], graph.output((*dims, DEPTH), self.made))
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
    [
        Lookup(added=ROWS - 1), Lookup(limit=1), Lookup(otherwise="sum"), Lookup(limit_first=True),
        Lookup(added=(ROWS, 0, 0, 0, 0)), Lookup(compare=OperationCode.LESS_EQUAL), Lookup(combine=OperationCode.SUB),
    ],
    ids=["another size", "another limit", "another choice", "another order",
         "a size for each", "another comparison", "another sum"],
)  # fmt: skip
def test_other_rules_stay(opencl_device: Device, other: Lookup) -> None:
    model = other.model()
    assert operations_left(model) == [other.compare.name, other.combine.name, "SELECT", "GATHER"]
    indices = np.array([2, 3, 0, 1, -1 if other.combine == OperationCode.SUB else 4], np.int32)
    added = indices + np.array(other.added) * (-1 if other.combine == OperationCode.SUB else 1)
    compare = np.less_equal if other.compare == OperationCode.LESS_EQUAL else np.less
    is_less = compare(other.limit, indices) if other.limit_first else compare(indices, other.limit)
    chosen = np.where(is_less, added, added if other.otherwise == "sum" else indices)
    if (chosen >= ROWS).any() or (chosen < 0).any():
        with pytest.raises(HalError, match="must be in"):
            results(opencl_device, model, [indices])
    else:
        (result,) = results(opencl_device, model, [indices])
        np.testing.assert_array_equal(result, SCALE * (TABLE[chosen].astype(np.float32) - ZERO))


@pytest.mark.parametrize("code", CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    ("follow", "made", "shift"),
    [(OperationCode.CAST, FLOAT, 128), (OperationCode.DEQUANTIZE, OperandCode.TENSOR_FLOAT16, 0)],
)
def test_codes_as_numbers_and_halves_are_made_behind(
    opencl_device: Device, code: OperationCode, follow: OperationCode, made: OperandCode, shift: int
) -> None:
    model = Lookup(code, follow=follow, made=made, shift=shift).model()
    assert operations_left(model) == [code.name, follow.name]
    (result,) = results(opencl_device, model, [INDICES])
    numbers = TABLE[INDICES].astype(np.float32)
    is_cast = follow == OperationCode.CAST
    np.testing.assert_array_equal(result, numbers + shift if is_cast else SCALE * (numbers - ZERO))


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

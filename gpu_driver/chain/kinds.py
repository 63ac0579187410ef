# SPDX-License-Identifier: Apache-2.0
"""Numbers in the tables of a chain, under the names by which kernels_cl defines them."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a step does: KIND_* in chain.cl."""

    CONVOLVE = 0
    DEPTHWISE = 1
    FLIP_SIGNS = 2
    AVERAGE = 3
    DEPTHWISE_BYTES = 4
    EXPANDED = 5
    SOFTMAX = 6
    WINOGRAD = 7
    QUANTIZE = 8
    DEQUANTIZE = 9
    ELEMENTWISE = 10
    REDUCE = 11
    COPY = 12
    PACK = 13
    MULTIPLY = 14
    GREATEST = 15
    FILL = 16
    BILINEAR = 17
    NEAREST = 18
    TURN = 19
    RANGES = 20
    TO_BYTES = 21
    BYTES_OF_ROWS = 22
    MULTIPLY_BYTES = 23
    MULTIPLY_FEW = 24
    GATHER = 25


class Rescale(IntEnum):
    """How a sum of products of bytes becomes a byte: RESCALE_* in common/finish_bytes.h."""

    BY_INTEGERS = 0
    BY_FLOATS = 1
    CENTRED = 2
    PRECISELY = 3


class Round(IntEnum):
    """How the integers of that are rounded: ROUND_* in common/chain_step.h."""

    TWICE = 0
    TWICE_AT_ONCE = 1
    ONCE = 2
    POSITIVE = 3


class From(IntEnum):
    """Where an instruction finds what it reads beside its own values: FROM_* in common/elementwise_step.h."""

    NOTHING = 0
    SOURCE = 1
    RESIDUAL = 2
    VALUE = 3
    CONSTANT = 4
    THIRD = 5
    NARROW = 6


class Function(IntEnum):
    """What an instruction does: DO_* in common/elementwise_step.h, the first three also in common/combine.h."""

    ADD = 0
    SUB = 1
    MUL = 2
    DIV = 3
    MAXIMUM = 4
    MINIMUM = 5
    LOAD = 6
    TABLE = 7
    CLAMP = 8
    ABS = 9
    NEG = 10
    EXP = 11
    SQRT = 12
    RSQRT = 13
    LOGISTIC = 14
    TANH = 15
    HARD_SWISH = 16
    ELU = 17
    PRELU = 18
    PAIRS = 19
    SUM_OF_ROW = 20
    MULTIPLY_ADD = 21
    GATE = 22
    POLYNOMIAL = 23
    LOG = 24
    FLOOR = 25
    SIN = 26
    EQUAL = 27
    NOT_EQUAL = 28
    GREATER = 29
    GREATER_EQUAL = 30
    SELECT = 31

# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of rows and what is read of them; NNAPI has neither transforms nor complex numbers.

A transform is computed where its real or imaginary part is read. A short one is a product with a matrix of cosines or
sines. A long one of N1 N2 numbers takes two smaller products (Cooley and Tukey 1965): with n = N2 n1 + n2 and
k = k1 + N1 k2, one over n1 for each n2; what comes out is turned by n2 k1 / (N1 N2); then one over n2 for each k1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Spectrum, Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator

_LEAST_SPLIT = 512
"""A shorter transform gains too little by two products."""
_MAX_MATRIX, _MAX_LENGTH = 1 << 24, 1 << 20
_REAL = Value(OperandCode.TENSOR_FLOAT32)
_NO_ACTIVATION = int32(FuseCode.NONE)


@converts(BuiltinOperator.RFFT2D, inputs=2)
def _rfft2d(op: Operator) -> None:
    """(input [..., 1, width], fft_length [1, n]): rows are cut or filled up with zeros to length n."""
    source = op.input(0, "input")
    if source.type != OperandCode.TENSOR_FLOAT32 or source.rank < 2:
        op.fail(f"input (input 0) must be FLOAT32 of rank 2 at least, got {list(source.shape or ())}")
    *leading, rows, _ = source.shape or ()
    lengths = op.by_dimension(1, "fft_length")
    if len(lengths) != 2 or min(lengths) < 1 or any(length & (length - 1) for length in lengths):
        op.fail(f"fft_length (input 1) must be two powers of 2, got {lengths}")
    if (rows, lengths[0]) != (1, 1):
        op.fail(f"only transforms of one row are supported, got {rows} and fft_length {lengths}")
    if lengths[1] > _MAX_LENGTH:
        op.fail(f"fft_length (input 1) must be at most {_MAX_LENGTH}, got {lengths[1]}")
    op.spectrum_result(Spectrum(source, lengths[1], (*leading, 1, lengths[1] // 2 + 1)))


@converts(BuiltinOperator.REAL, inputs=1)
def _real(op: Operator) -> None:
    """(transform)."""
    op.result(real_part(op, _spectrum(op)))


@converts(BuiltinOperator.IMAG, inputs=1)
def _imag(op: Operator) -> None:
    """(transform)."""
    spectrum = _spectrum(op)
    op.result(_in_order(op, spectrum, _sums(op, spectrum, imaginary=True)))


@converts(BuiltinOperator.COMPLEX_ABS, inputs=1)
def _complex_abs(op: Operator) -> None:
    """(transform)."""
    spectrum = _spectrum(op)
    parts = [_sums(op, spectrum, imaginary=imaginary) for imaginary in (False, True)]
    squares = [_by_element(op, OperationCode.MUL, part, part) for part in parts]
    lengths = op.emit(OperationCode.SQRT, [_by_element(op, OperationCode.ADD, *squares)], _REAL)
    op.result(_in_order(op, spectrum, lengths))


def _spectrum(op: Operator) -> Spectrum:
    spectrum = op.spectrum(0)
    if spectrum is None:
        op.fail("the input must be a transform: there are no other complex numbers")
    return spectrum


def real_part(op: Operator, spectrum: Spectrum) -> Value:
    """Return the real part of a transform, in its shape."""
    return _in_order(op, spectrum, _sums(op, spectrum, imaginary=False))


def _sums(op: Operator, spectrum: Spectrum, *, imaginary: bool) -> Value:
    """Return a part of all bins, in the order in which they are computed: for each row, by k1 and k2 if it is split."""
    if spectrum.length < _LEAST_SPLIT:
        width = (spectrum.rows.shape or (0,))[-1]
        waves = _waves(spectrum.length // 2 + 1, min(width, spectrum.length), spectrum.length)
        waves = np.pad(waves, ((0, 0), (0, width - waves.shape[1])))
        return _product(op, op.reshape(spectrum.rows, (-1, width)), waves.imag if imaginary else waves.real)
    _, second = _factors(spectrum.length)
    waves = _waves(second // 2 + 1, second, second)
    pair = (waves.imag, waves.real) if imaginary else (waves.real, -waves.imag)
    return _product(op, _turned(op, spectrum), np.concatenate(pair, axis=1))


def _in_order(op: Operator, spectrum: Spectrum, sums: Value) -> Value:
    """Return what was computed for each bin in the shape of the transform."""
    if spectrum.length >= _LEAST_SPLIT:
        first, second = _factors(spectrum.length)
        count = second // 2 + 1
        rows = op.reshape(_swapped(op, sums, (-1, first, count)), (-1, count * first))
        taken = int32_vector([0, 0]), int32_vector([(rows.shape or (0,))[0], spectrum.length // 2 + 1])
        sums = op.emit(OperationCode.SLICE, [rows, *taken], _REAL)
    return op.reshape(sums, spectrum.shape)


def _turned(op: Operator, spectrum: Spectrum) -> Value:
    """Return [rows * N1, 2 * N2]: for each k1 what the second product takes by n2, first all real parts.

    Several parts of a spectrum share it.
    """
    if not spectrum.turned:
        first, second = _factors(spectrum.length)
        columns = op.reshape(_swapped(op, _filled(op, spectrum), (-1, first, second)), (-1, first))
        waves, turns = _waves(first, first, first), _waves(second, first, spectrum.length)
        op.spend(2 * turns.size)
        shape = (-1, second, first)
        real, imaginary = (op.reshape(_product(op, columns, part), shape) for part in (waves.real, waves.imag))
        along, across = (constant(part.astype(np.float32)) for part in (turns.real, turns.imag))
        products = [_by_element(op, OperationCode.MUL, *pair) for pair in (
            *((real, along), (imaginary, across)), *((real, across), (imaginary, along)),
        )]  # fmt: skip
        parts = _by_element(op, OperationCode.SUB, *products[:2]), _by_element(op, OperationCode.ADD, *products[2:])
        both = [_swapped(op, part, shape) for part in parts]
        joined = op.emit(OperationCode.CONCATENATION, [*both, int32(2)], _REAL)
        spectrum.turned.append(op.reshape(joined, (-1, 2 * second)))
    return spectrum.turned[0]


def _filled(op: Operator, spectrum: Spectrum) -> Value:
    """Return rows of the transform's length."""
    width = (spectrum.rows.shape or (0,))[-1]
    rows = op.reshape(spectrum.rows, (-1, width))
    count = (rows.shape or (0,))[0]
    if width > spectrum.length:
        return op.emit(OperationCode.SLICE, [rows, int32_vector([0, 0]), int32_vector([count, spectrum.length])], _REAL)
    if width < spectrum.length:
        amounts = op.reshape(int32_vector([0, 0, 0, spectrum.length - width]), (2, 2))
        return op.emit(OperationCode.PAD, [rows, amounts], _REAL)
    return rows


def _factors(length: int) -> tuple[int, int]:
    """Return the powers of 2 whose product a length is, as near to each other as can be."""
    first: int = 1 << (length.bit_length() - 1) // 2
    return first, length // first


def _waves(bins: int, samples: int, length: int) -> Array:
    """Return exp(-2 pi i k n / length) for every bin k and sample n."""
    places = np.outer(np.arange(bins, dtype=np.int64), np.arange(samples, dtype=np.int64)) % length
    turns: Array = np.exp(-2j * np.pi / length * np.arange(length))[places]
    return turns


def _product(op: Operator, rows: Value, matrix: Array) -> Value:
    """Return the products of rows and a matrix [bins, width]."""
    if matrix.size > _MAX_MATRIX:
        op.fail(f"at most {_MAX_MATRIX} products a row are supported, got {matrix.shape[1]} times {matrix.shape[0]}")
    op.spend(matrix.size)
    bias = constant(np.zeros(len(matrix), np.float32))
    inputs = [rows, constant(matrix.astype(np.float32)), bias, _NO_ACTIVATION]
    return op.emit(OperationCode.FULLY_CONNECTED, inputs, _REAL)


def _by_element(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, _NO_ACTIVATION], _REAL)


def _swapped(op: Operator, value: Value, shape: Dimensions) -> Value:
    """Return a value of three dimensions with the last two in the other order."""
    whole = op.reshape(value, shape)
    return op.emit(OperationCode.TRANSPOSE, [whole, int32_vector([0, 2, 1])], _REAL)

# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of rows and what is read of them; NNAPI has neither transforms nor complex numbers.

A transform is computed where its real or imaginary part is read, as a product with a matrix of cosines or sines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Spectrum, Value, constant, int32

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_MAX_MATRIX = 1 << 24
"""Elements: transforms of 4096 numbers."""


@converts(BuiltinOperator.RFFT2D, inputs=2)
def _rfft2d(op: Operator) -> None:
    """(input [..., 1, width], fft_length [1, n]): rows are cut or filled up with zeros to length n."""
    source = op.input(0, "input")
    if source.type != OperandCode.TENSOR_FLOAT32 or source.rank < 2:
        op.fail(f"input (input 0) must be FLOAT32 of rank 2 at least, got {list(source.shape or ())}")
    *leading, rows, width = source.shape or ()
    lengths = op.by_dimension(1, "fft_length")
    if len(lengths) != 2 or min(lengths) < 1 or any(length & (length - 1) for length in lengths):
        op.fail(f"fft_length (input 1) must be two powers of 2, got {lengths}")
    if (rows, lengths[0]) != (1, 1):
        op.fail(f"only transforms of one row are supported, got {rows} and fft_length {lengths}")
    bins = lengths[1] // 2 + 1
    if max(bins * width, lengths[1]) > _MAX_MATRIX:
        op.fail(f"at most {_MAX_MATRIX} products a row are supported, got {width} times {bins}")
    op.spectrum_result(Spectrum(source, lengths[1], (*leading, 1, bins)))


@converts(BuiltinOperator.REAL, inputs=1)
def _real(op: Operator) -> None:
    """(transform)."""
    op.result(real_part(op, _spectrum(op)))


@converts(BuiltinOperator.IMAG, inputs=1)
def _imag(op: Operator) -> None:
    """(transform)."""
    op.result(_imaginary_part(op, _spectrum(op)))


@converts(BuiltinOperator.COMPLEX_ABS, inputs=1)
def _complex_abs(op: Operator) -> None:
    """(transform)."""
    spectrum = _spectrum(op)
    squares = [
        op.emit(OperationCode.MUL, [part, part, int32(FuseCode.NONE)])
        for part in (real_part(op, spectrum), _imaginary_part(op, spectrum))
    ]
    op.result(op.emit(OperationCode.SQRT, [op.emit(OperationCode.ADD, [*squares, int32(FuseCode.NONE)])]))


def _spectrum(op: Operator) -> Spectrum:
    spectrum = op.spectrum(0)
    if spectrum is None:
        op.fail("the input must be a transform: there are no other complex numbers")
    return spectrum


def real_part(op: Operator, spectrum: Spectrum) -> Value:
    """Return the real part of a transform, in its shape."""
    return _product(op, spectrum, np.cos(_turn(spectrum)))


def _imaginary_part(op: Operator, spectrum: Spectrum) -> Value:
    return _product(op, spectrum, -np.sin(_turn(spectrum)))


def _turn(spectrum: Spectrum) -> Array:
    return 2 * np.pi / spectrum.length * np.arange(spectrum.length)


def _product(op: Operator, spectrum: Spectrum, wave: Array) -> Value:
    """Return the rows times what a wave of one turn, [length], is for each bin."""
    width, bins = (spectrum.rows.shape or (0,))[-1], spectrum.length // 2 + 1
    op.spend(bins * width)
    samples = min(width, spectrum.length)
    weights = np.zeros((bins, width), np.float32)
    places = np.outer(np.arange(bins, dtype=np.int32), np.arange(samples, dtype=np.int32)) % spectrum.length
    weights[:, :samples] = wave.astype(np.float32)[places]
    inputs = [
        op.reshape(spectrum.rows, (-1, width)),
        constant(weights),
        constant(np.zeros(bins, np.float32)),
        int32(FuseCode.NONE),
    ]
    kind = Value(OperandCode.TENSOR_FLOAT32)
    return op.reshape(op.emit(OperationCode.FULLY_CONNECTED, inputs, kind), spectrum.shape)

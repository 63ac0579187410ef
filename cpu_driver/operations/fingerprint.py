# SPDX-License-Identifier: Apache-2.0
"""The 64-bit fingerprint that LSH_PROJECTION hashes with, of many keys of one length at once.

Source: Fingerprint64 of FarmHash (its `na` variant), whose results are fixed for ever.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
"""One word per key; sums and products wrap."""
Keys: TypeAlias = npt.NDArray[np.uint8]
"""Keys [count, bytes]."""

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_BLOCK = 64


def fingerprint64(keys: Keys) -> Words:
    """Return the fingerprint of each key [count, bytes], bytes >= 4."""
    length = keys.shape[1]
    if length <= 16:
        return _up_to_16(keys)
    if length <= 32:
        return _up_to_32(keys)
    return _up_to_64(keys) if length <= _BLOCK else _longer(keys)


def _word(keys: Keys, at: int) -> Words:
    words: Words = np.ascontiguousarray(keys[:, at : at + 8]).view(np.dtype("<u8"))[:, 0].astype(np.uint64, copy=False)
    return words


def _half_word(keys: Keys, at: int) -> Words:
    words: Words = np.ascontiguousarray(keys[:, at : at + 4]).view(np.dtype("<u4"))[:, 0].astype(np.uint64)
    return words


def _rotate(words: Words, bits: int) -> Words:
    rotated: Words = (words >> np.uint64(bits)) | (words << np.uint64(64 - bits))
    return rotated


def _mix(words: Words) -> Words:
    mixed: Words = words ^ (words >> np.uint64(47))
    return mixed


def _combine(first: Words, second: Words, factor: np.uint64 | Words) -> Words:
    inner = _mix((first ^ second) * factor)
    return _mix((second ^ inner) * factor) * factor


def _factor(length: int) -> np.uint64:
    factor: np.uint64 = np.uint64((int(_K2) + 2 * length) % 2**64)
    return factor


def _up_to_16(keys: Keys) -> Words:
    length = keys.shape[1]
    factor = _factor(length)
    if length < 8:
        return _combine(np.uint64(length) + (_half_word(keys, 0) << np.uint64(3)), _half_word(keys, length - 4), factor)
    head, tail = _word(keys, 0) + _K2, _word(keys, length - 8)
    return _combine(_rotate(tail, 37) * factor + head, (_rotate(head, 25) + tail) * factor, factor)


def _ends(keys: Keys, first: Words) -> tuple[Words, Words]:
    """Return two words made of 16 bytes at either end of a key; `first` is its first word times a constant."""
    length = keys.shape[1]
    second = _word(keys, 8)
    last, before_last = _word(keys, length - 8) * _factor(length), _word(keys, length - 16) * _K2
    left = _rotate(first + second, 43) + _rotate(last, 30) + before_last
    return left, first + _rotate(second + _K2, 18) + last


def _up_to_32(keys: Keys) -> Words:
    return _combine(*_ends(keys, _word(keys, 0) * _K1), _factor(keys.shape[1]))


def _up_to_64(keys: Keys) -> Words:
    length = keys.shape[1]
    factor, first = _factor(length), _word(keys, 0) * _K2
    left, right = _ends(keys, first)
    third, fourth = _word(keys, 16) * factor, _word(keys, 24)
    fifth = (left + _word(keys, length - 32)) * factor
    sixth = (_combine(left, right, factor) + _word(keys, length - 24)) * factor
    return _combine(
        _rotate(third + fourth, 43) + _rotate(fifth, 30) + sixth, third + _rotate(fourth + first, 18) + fifth, factor
    )


class _State:
    """56 bytes of state per key, advanced by a block of 64 bytes at a time."""

    def __init__(self, keys: Keys) -> None:
        count, seed = len(keys), 81
        y = (seed * int(_K1) + 113) % 2**64
        z = int(_mix(np.array([(y * int(_K2) + 113) % 2**64], np.uint64))[0]) * int(_K2) % 2**64
        self.x = np.uint64(seed * int(_K2) % 2**64) + _word(keys, 0)
        self.y = np.full(count, y, np.uint64)
        self.z = np.full(count, z, np.uint64)
        self.v = self.w = (np.zeros(count, np.uint64), np.zeros(count, np.uint64))

    def advance(self, keys: Keys, at: int, factor: np.uint64 | Words, weight: int) -> None:
        """Take in the block at `at`; all blocks but the last have weight 1 and factor _K1."""
        (v0, v1), (w0, w1), weights = self.v, self.w, np.uint64(weight)
        x = _rotate(self.x + self.y + v0 + _word(keys, at + 8), 37) * factor
        y = _rotate(self.y + v1 + _word(keys, at + 48), 42) * factor
        x ^= w1 * weights
        y += v0 * weights + _word(keys, at + 40)
        z = _rotate(self.z + w0, 33) * factor
        self.v = _weak(keys, at, v1 * factor, x + w0)
        self.w = _weak(keys, at + 32, z + w1, y + _word(keys, at + 16))
        self.x, self.y, self.z = z, y, x


def _weak(keys: Keys, at: int, first: Words, second: Words) -> tuple[Words, Words]:
    """Mix 32 bytes into two words."""
    start = first + _word(keys, at)
    last = _word(keys, at + 24)
    total = start + _word(keys, at + 8) + _word(keys, at + 16)
    return total + last, _rotate(second + start + last, 21) + _rotate(total, 44) + start


def _longer(keys: Keys) -> Words:
    length = keys.shape[1]
    state = _State(keys)
    for at in range(0, (length - 1) // _BLOCK * _BLOCK, _BLOCK):
        state.advance(keys, at, _K1, 1)
    factor = _K1 + ((state.z & np.uint64(0xFF)) << np.uint64(1))
    v0, v1 = state.v
    w0, w1 = state.w
    w0 = w0 + np.uint64((length - 1) % _BLOCK)
    v0 = v0 + w0
    state.v, state.w = (v0, v1), (w0 + v0, w1)
    state.advance(keys, length - _BLOCK, factor, 9)
    (v0, v1), (w0, w1) = state.v, state.w
    return _combine(
        _combine(v0, w0, factor) + _mix(state.y) * _K0 + state.z, _combine(v1, w1, factor) + state.x, factor
    )

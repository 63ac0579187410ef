# SPDX-License-Identifier: Apache-2.0
"""Operand lists of MUL, PACK and REVERSE with one thing wrong that is no type, under the names of Android's cases."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.nn_runtime.validation.cases import NAMES
from tests.nn_runtime.validation.signatures import Signature, parse


def _list(operation: str, text: str, kind: str = "quant8") -> Signature:
    return parse(OperationCode[operation], text, NAMES[kind])


_BAD_QUANTISATION = {"zeroPoint": f"@{1 / 256},1", "scale": f"@{2 / 256}"}
REFUSED: dict[str, tuple[Signature, ...]] = {
    "MUL_quant8_bad_output_scale": (_list("MUL", "q8[2,2,2,2]@1.0*2 i32 -> q8[2,2,2,2]@0.5"),),
    **{
        f"PACK_{kind}_bad_{name}": (
            _list("PACK", f"i32 T[4,5,6]{bad} T[4,5,6] -> T[4,5,6,2]", kind),
            _list("PACK", f"i32 T[4,5,6] T[4,5,6]{bad} -> T[4,5,6,2]", kind),
            _list("PACK", f"i32 T[4,5,6]*2 -> T[4,5,6,2]{bad}", kind),
        )
        for kind in ("quant8", "quant8_signed")
        for name, bad in _BAD_QUANTISATION.items()
    },
    "PACK_float32_rank_lo": (
        _list("PACK", "i32 f32[4,5] f32[4,5,6] -> f32[2,4,5,6]"),
        _list("PACK", "i32 f32[4,5,6] f32[4,5] -> f32[2,4,5,6]"),
        _list("PACK", "i32 f32[4,5,6]*2 -> f32[2,4,5]"),
    ),
    "PACK_float32_rank_hi": (
        _list("PACK", "i32 f32[4,5,6,7] f32[4,5,6] -> f32[2,4,5,6]"),
        _list("PACK", "i32 f32[4,5,6] f32[4,5,6,7] -> f32[2,4,5,6]"),
        _list("PACK", "i32 f32[4,5,6]*2 -> f32[2,4,5,6,7]"),
    ),
    **{
        f"REVERSE_{kind}_bad_{name}": (_list("REVERSE", f"T[4,5,6] i32[0] -> T[4,5,6]{bad}", kind),)
        for kind in ("quant8", "quant8_signed")
        for name, bad in _BAD_QUANTISATION.items()
    },
    "REVERSE_float32_rank_lo": (
        _list("REVERSE", "f32[4,5] i32[0] -> f32[4,5,6]"),
        _list("REVERSE", "f32[4,5,6] i32[0] -> f32[4,5]"),
    ),
    "REVERSE_float32_rank_hi": (
        _list("REVERSE", "f32[4,5,6,7] i32[0] -> f32[4,5,6]"),
        _list("REVERSE", "f32[4,5,6] i32[0,7] -> f32[4,5,6]"),
        _list("REVERSE", "f32[4,5,6] i32[0] -> f32[4,5,6,7]"),
    ),
}
"""Lists with one thing wrong that is not a type, by the name of the case."""

UNSPOILED: dict[str, tuple[Signature, ...]] = {
    "PACK_quant8_bad_none": (_list("PACK", "i32 T[4,5,6]*2 -> T[4,5,6,2]"),),
    "PACK_float32_rank_good": (_list("PACK", "i32 f32[4,5,6]*2 -> f32[2,4,5,6]"),),
    "REVERSE_quant8_bad_none": (_list("REVERSE", "T[4,5,6] i32[0] -> T[4,5,6]"),),
    "REVERSE_float32_rank_good": (_list("REVERSE", "f32[4,5,6] i32[0] -> f32[4,5,6]"),),
}
"""The lists that those are made of: taken as they are."""

# SPDX-License-Identifier: Apache-2.0
"""Cases of L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION: formulas in float64.

`litert*` has the results of LiteRT's reference kernel for unsigned codes.
"""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.cases import ALL, FLOATS, QUANT8, SIGNED, Case, flag, integer, real, stored, tensor

_DIMS = (2, 3, 2, 4)
_VALUES = (((np.arange(48) * 7) % 19) - 9) * 0.5


def l2_case(name: str, dims: tuple[int, ...], axis: int | None) -> Case:
    values = _VALUES.reshape(dims)
    norms = np.sqrt(np.square(values).sum(axis=-1 if axis is None else axis, keepdims=True))
    parameters = () if axis is None else (integer(axis),)
    result = tensor(dims, (values / norms).reshape(-1).tolist(), 1 / 128, 128)
    return Case(OperationCode.L2_NORMALIZATION, name, (tensor(dims, _VALUES.tolist()), *parameters), (result,), ALL)


def local_response(name: str, dims: tuple[int, ...], axis: int | None, radius: int, beta: float) -> Case:
    values = _VALUES.reshape(dims)
    along = np.moveaxis(values, -1 if axis is None else axis, -1)
    result = np.empty(along.shape)
    for i in range(along.shape[-1]):
        window = along[..., max(i - radius, 0) : i + radius + 1]
        result[..., i] = along[..., i] / (2.0 + 0.5 * np.square(window).sum(axis=-1)) ** beta
    result = np.moveaxis(result, -1, -1 if axis is None else axis)
    scalars = (integer(radius), real(2.0), real(0.5), real(beta), *(() if axis is None else (integer(axis),)))
    return Case(
        OperationCode.LOCAL_RESPONSE_NORMALIZATION,
        name,
        (tensor(dims, _VALUES.tolist()), *scalars),
        (tensor(dims, result.reshape(-1).tolist()),),
        FLOATS,
    )


def instance(name: str, nchw: bool) -> Case:
    values = _VALUES.reshape(_DIMS)
    means, variances = values.mean(axis=(1, 2), keepdims=True), values.var(axis=(1, 2), keepdims=True)
    result = 1.5 * (values - means) / np.sqrt(variances + 0.25) - 0.75
    if nchw:
        values, result = values.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
    return Case(
        OperationCode.INSTANCE_NORMALIZATION,
        name,
        (tensor(values.shape, values.reshape(-1).tolist()), real(1.5), real(-0.75), real(0.25), flag(nchw)),
        (tensor(result.shape, result.reshape(-1).tolist()),),
        FLOATS,
    )


CASES = (
    l2_case("last_axis", _DIMS, None),
    l2_case("second_axis", _DIMS, 1),
    l2_case("matrix", (4, 12), -2),
    Case(
        OperationCode.L2_NORMALIZATION,
        "zeros",
        (tensor((2, 2), [0, 0, 3, -4]),),
        (tensor((2, 2), [0, 0, 0.6, -0.8], 1 / 128, 128),),
        ALL,
    ),
    Case(
        OperationCode.L2_NORMALIZATION,
        "litert",
        (
            stored(
                (1, 1, 4, 12),
                "d2a17083447f613ffe031831f8b1e133b85e7d009ed4a9278844f7e12f82f0d8b5a30abd79173e8aba819cdfaf5ca499",
                0.031,
                117,
            ),
        ),
        (
            stored(
                (1, 1, 4, 12),
                "b0977d8767857664c745505dbd9cb2619f75844993ac985c886ab9b06186b6ac9c9451a083425c8eae889ac6a66f9f98",
                1 / 128,
                128,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
    Case(
        OperationCode.L2_NORMALIZATION,
        "litert_tiny_sums",
        (stored((1, 1, 4, 4), "75757575767575757476757575777476", 0.031, 117),),
        (stored((1, 1, 4, 4), "80808080ff80808025db808080e94cb4", 1 / 128, 128),),
        (QUANT8, SIGNED),
        exact=True,
    ),
    local_response("depth", _DIMS, None, 1, 0.75),
    local_response("height", _DIMS, -3, 2, 0.5),
    local_response("beyond_both_ends", (4, 12), 0, 20, 1.0),
    local_response("itself_alone", (48,), 0, 0, 0.5),
    instance("nhwc", False),
    instance("nchw", True),
)

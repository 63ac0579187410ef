# SPDX-License-Identifier: Apache-2.0
"""Cases of QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM, exact: the reference's fixed-point rules, one number at a time.

`litert_*` has the results of LiteRT's quantised basic LSTM, whose weights have the rows of the gates input, cell,
forget, output. Their weight scales are such that no sum is shifted right after its multiplication, which LiteRT's
product rounds otherwise than the specification (half towards plus infinity, not away from zero).

The QUANTIZED_LSTM cases agree with LiteRT's sequence LSTM where it takes them, but for peepholes beside a projection to
fewer elements: LiteRT then strides over the cell state by the output's size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from tests.operations.cases import INT32, QUANT8, SIGNED, Argument, Case, integer, of, omitted, real

_GATES = ("input", "forget", "cell", "output")
_SYMM8, _SYMM16 = OperandCode.TENSOR_QUANT8_SYMM, OperandCode.TENSOR_QUANT16_SYMM


def _divided_by_power(x: int, exponent: int) -> int:
    """Return x / 2^exponent rounded half away from zero."""
    half = (1 << exponent) >> 1
    return (x + half) >> exponent if x >= 0 else -((-x + half) >> exponent)


def _high_product(a: int, b: int, bits: int) -> int:
    """Return a * b / 2^bits rounded as gemmlowp does: a nudge by the sign, then towards zero."""
    product = a * b
    nudged = product + ((1 << bits - 1) if product >= 0 else 1 - (1 << bits - 1))
    return nudged // (1 << bits) if nudged >= 0 else -(-nudged // (1 << bits))


def _multiplied(x: int, real: float) -> int:
    """Return x * real by a 31-bit mantissa and a shift."""
    fraction, exponent = math.frexp(real)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = mantissa // 2, exponent + 1
    return _divided_by_power(_high_product(x << max(exponent, 0), mantissa, 31), max(-exponent, 0))


def _cut(x: int, bits: int) -> int:
    return min(max(x, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


def _float32(*factors: float) -> float:
    """Return first * second / third in float32."""
    first, second, third = (np.float32(factor) for factor in factors)
    return float(first * second / third)


def _constant(real: float, integer_bits: int = 0) -> int:
    return _divided_by_power(math.floor(real * 2 ** (31 - integer_bits) + 0.5), 16)


def _multiply(a: int, b: int) -> int:
    return _high_product(a, b, 15)


def _exp(x: int, integer_bits: int) -> int:
    """Return exp(x) with 15 fraction bits for a 16-bit x <= 0."""
    if x == 0:
        return 32767
    fraction_bits = 15 - integer_bits
    quarter = 1 << fraction_bits - 2
    part = x % quarter - quarter
    offset = (part << integer_bits) + 4096
    square = _multiply(offset, offset)
    fourth = _divided_by_power(_multiply(square, square), 2)
    higher = _divided_by_power(_multiply(fourth + _multiply(square, offset), _constant(1 / 3)) + square, 1)
    centre = _constant(math.exp(-0.125))
    result = _cut(centre + _multiply(centre, offset + higher), 16)
    for exponent in range(-2, integer_bits):
        if (part - x) >> fraction_bits + exponent & 1:
            result = _multiply(result, _constant(math.exp(-(2.0**exponent))))
    return result


def _two_over_one_plus(x: int) -> int:
    """Return 2 / (1 + x), 13 fraction bits, for 0 <= x <= 1 with 15 fraction bits."""
    half = (x + 32767 + 1) // 2
    estimate = _constant(48 / 17, 2) + _multiply(half, _constant(-32 / 17, 2))
    for _ in range(3):
        estimate += _cut(_multiply(estimate, (1 << 13) - _multiply(half, estimate)) << 2, 16)
    return estimate


def _sigmoid(x: int) -> int:
    """Return the sigmoid, 15 fraction bits, of x with 12."""
    if x == 0:
        return 1 << 14
    positive = _cut(_two_over_one_plus(_exp(-abs(x), 3)) << 1, 16)
    return positive if x > 0 else 32767 - positive


def _tanh(x: int, integer_bits: int) -> int:
    """Return the hyperbolic tangent, 15 fraction bits, of x with 15 - integer_bits."""
    if x == 0:
        return 0
    positive = _cut((_two_over_one_plus(_exp(-abs(x), integer_bits + 1)) - (1 << 13)) << 2, 16)
    return positive if x > 0 else -positive


def _cell16(sums: dict[str, int], cell: int) -> tuple[int, int]:
    """Return cell state and output code of QUANTIZED_16BIT_LSTM from the gates' sums with 12 fraction bits."""
    opened, forget, output = (_sigmoid(sums[gate]) for gate in ("input", "forget", "output"))
    fresh = _divided_by_power(_multiply(opened, _tanh(sums["cell"], 3)), 4)
    cell = _cut(fresh + _multiply(forget, cell), 16)
    return cell, 128 + _cut(_divided_by_power(_multiply(output, _tanh(cell, 4)), 8), 8)


def _case16(name: str, sizes: tuple[int, int, int], scale: float, zero_point: int, spread: int) -> Case:
    """Return a case; `sizes` are batches, input and output size, weights lie within `spread` of the zero point."""
    batches, input_size, output_size = sizes
    rng = np.random.default_rng(16)
    scale = float(np.float32(scale))
    low, high = max(0, zero_point - spread), min(255, zero_point + spread)
    x, h = (rng.integers(0, 256, (batches, size)) for size in (input_size, output_size))
    by_input = {gate: rng.integers(low, high + 1, (output_size, input_size)) for gate in _GATES}
    by_state = {gate: rng.integers(low, high + 1, (output_size, output_size)) for gate in _GATES}
    limit = int(128 / scale)
    bias = {gate: rng.integers(-limit, limit + 1, output_size) for gate in _GATES}
    cells = rng.integers(-8000, 8001, (batches, output_size))
    new_cells, outputs = np.zeros_like(cells), np.zeros_like(cells)
    for batch in range(batches):
        for unit in range(output_size):
            sums = {}
            for gate in _GATES:
                total = int(bias[gate][unit])
                total += sum(
                    int(w - zero_point) * int(v - 128) for w, v in zip(by_input[gate][unit], x[batch], strict=True)
                )
                total += sum(
                    int(w - zero_point) * int(v - 128) for w, v in zip(by_state[gate][unit], h[batch], strict=True)
                )
                sums[gate] = _cut(_multiplied(total, scale / 128 * 4096), 16)
            new_cells[batch, unit], outputs[batch, unit] = _cell16(sums, int(cells[batch, unit]))
    return _arguments16(name, x, h, by_input, by_state, bias, cells, (scale, zero_point), new_cells, outputs)


def _arguments16(
    name: str,
    x: np.ndarray,
    h: np.ndarray,
    by_input: dict[str, np.ndarray],
    by_state: dict[str, np.ndarray],
    bias: dict[str, np.ndarray],
    cells: np.ndarray,
    weights: tuple[float, int],
    new_cells: np.ndarray,
    outputs: np.ndarray,
) -> Case:
    data, state = (1 / 128, 128), 2.0**-11
    return Case(
        OperationCode.QUANTIZED_16BIT_LSTM,
        name,
        (
            _stored(QUANT8, x, *data),
            *(_stored(QUANT8, by_input[gate], *weights) for gate in _GATES),
            *(_stored(QUANT8, by_state[gate], *weights) for gate in _GATES),
            *(_stored(INT32, bias[gate], weights[0] / 128) for gate in _GATES),
            _stored(_SYMM16, cells, state),
            _stored(QUANT8, h, *data),
        ),
        (_stored(_SYMM16, new_cells, state), _stored(QUANT8, outputs, *data)),
        (QUANT8,),
        exact=True,
    )


def _stored(code: OperandCode, values: np.ndarray, scale: float, zero_point: int = 0) -> Argument:
    return of(code, values.shape, values.reshape(-1), scale, zero_point)


def _litert16(line: str) -> Case:
    """Return a case from sizes, weight quantisation, and hexadecimal digits: x, h, weights, bias, cell; h, cell."""
    *numbers, x, h, weights, bias, cells, outputs, new_cells = line.split("|")
    batches, input_size, output_size = (int(number) for number in numbers[:3])
    state = (batches, output_size)
    rows = dict(zip(("input", "cell", "forget", "output"), range(4), strict=True))

    def array(digits: str, dtype: str, dims: tuple[int, ...]) -> np.ndarray:
        return np.frombuffer(bytes.fromhex(digits), dtype).reshape(dims)

    gates = array(weights, "u1", (4, output_size, input_size + output_size))
    biases = array(bias, "<i4", (4, output_size))
    return _arguments16(
        f"litert_{batches}_{input_size}_{output_size}",
        array(x, "u1", (batches, input_size)),
        array(h, "u1", state),
        {gate: gates[row, :, :input_size] for gate, row in rows.items()},
        {gate: gates[row, :, input_size:] for gate, row in rows.items()},
        {gate: biases[row] for gate, row in rows.items()},
        array(cells, "<i2", state),
        (float(numbers[3]), int(numbers[4])),
        array(new_cells, "<i2", state),
        array(outputs, "u1", state),
    )


_LITERT = (
    "1|3|2|0.03125|128|2220cc|7f97|709d69917e8b7262679d98747c706b968b666e84989e6f87646c6e7c778e7e7699888c"
    "8f76986374|b80100005d0a00007affffff7b0f00004efbffffb50d0000ee02000011070000|05f283ee|602d|1dfdf8ef",
    "2|4|5|0.019999999552965164|100|2801ff1675d1b0db|0d7f0831d81296054fee|6b514b6b594b677347634f697676755"
    "76c6d7d70744c585c6d7b5a6473515d514f707b4f70707370684d755161806857495567797752716d7664645f7b654c647b7"
    "95c7b4b736b46615d605579784e746b515f57664d644d4e7965577a5a507c467f4a77624d81604871824f667e4d765f49527"
    "a717c674e5758554a7a4b7471606c5e66726281794a7d4f525c7764744a73495553785d7473706b7a476e486c61817b497d5"
    "15c667c5b7e585e7e736f5c464f59|5df4ffffcaeaffff7d0e000091f8ffff75f3ffff27e7ffffe5edffffc8e8ffff85faff"
    "ffcdf5ffffe4ffffffaa0300004af5ffffc00100004a0500009f08000020050000b0e8fffffdf2ffffb50e0000|7615f4186"
    "af683045e058e0659065e020a0265ee|e5895a93b2908075802b|420efc0093f9dc0119040b020b0054fdf7ff0cf6",
    "3|7|4|0.03999999910593033|37|93df160ea93dcf94ea7372c71e36e724deb2f74598|0aac0d5f532e8a4a16b82f53|151"
    "71530283c39191a1d393222372d2c33112f120c350932143d09363e20420f3b3d1431342a09300c1e171b432a1b243232374"
    "03d3a2c1e1e1d223f2f1f3737100c212209262b382a3c2210332c242d14101b3938281741421230273b1a242e2e2c16263e1"
    "a1425231d433d0d232e2342163f163c41161a0d3b112b1b422e113540293632293832113329222b2d0e1436080e301223373"
    "e39171a383643343d1f411b10281109141d1d080e0e103508|54f6ffffddfaffffd6fcffff3408000085f3ffff5efaffff2c"
    "06000047f4ffffef010000aef9ffff2dffffff07f4ffff85f9ffffc5070000850b00008ef6ffff|9015b51064f23fe6af065"
    "200470b87fe93026dee4005cafa|8ced73638d6ac041877fa25c|d805fb0c5afc99f9580349fe63075ff9ea00d6ffb6030af"
    "5",
)


@dataclass(frozen=True)
class Variant:
    """What a case uses of QUANTIZED_LSTM."""

    cifg: bool = False
    peephole: bool = False
    layer_norm: bool = False
    projection: bool = False
    projection_bias: bool = False
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    hidden_zero_point: int = 0
    cell_shift: int = -11
    input_zero_point: int = 3
    state_zero_point: int = -5


class QuantizedLstm:
    """Stored weights of one variant, and one step by the reference's rules."""

    batches, input_size, units = 2, 5, 4
    input_scale, state_scale, hidden_scale, projection_scale = 0.02, 1 / 128, 0.0075, 0.011
    norm_scale, peephole_scale = 2.0**-14, 2.0**-13

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        rng = np.random.default_rng(17)
        self.output_size = 3 if variant.projection else self.units
        self.x = rng.integers(-128, 128, (self.batches, self.input_size))
        self.h = rng.integers(-128, 128, (self.batches, self.output_size))
        self.c = rng.integers(-9000, 9001, (self.batches, self.units))
        self.by_input = {gate: rng.integers(-127, 128, (self.units, self.input_size)) for gate in _GATES}
        self.by_state = {gate: rng.integers(-127, 128, (self.units, self.output_size)) for gate in _GATES}
        self.by_cell = {gate: rng.integers(-9000, 9001, self.units) for gate in _GATES}
        self.norm = {gate: rng.integers(-32767, 32768, self.units) for gate in _GATES}
        limit = 2_000_000 if variant.layer_norm else 4000
        self.bias = {gate: rng.integers(-limit, limit + 1, self.units) for gate in _GATES}
        self.projection = rng.integers(-127, 128, (self.output_size, self.units))
        self.projection_bias = rng.integers(-3000, 3001, self.output_size)
        self.input_scales = {gate: 0.006 + 0.001 * at for at, gate in enumerate(_GATES)}
        self.state_scales = {gate: 0.009 - 0.001 * at for at, gate in enumerate(_GATES)}
        self.gate_scale = 0.0007 if variant.layer_norm else 2.0**-12

    def step(self, batch: int) -> tuple[list[int], list[int]]:
        """Return output and cell state of one batch."""
        variant, units = self.variant, range(self.units)
        old = [int(c) for c in self.c[batch]]
        forget = [_sigmoid(x) for x in self._gate("forget", batch, old)]
        fresh = [_tanh(x, 3) for x in self._gate("cell", batch, old)]
        opened = [32767 - f for f in forget] if variant.cifg else [_sigmoid(x) for x in self._gate("input", batch, old)]
        cells = [
            _cut(
                _divided_by_power(forget[i] * old[i], 15)
                + _divided_by_power(opened[i] * fresh[i], 30 + variant.cell_shift),
                16,
            )
            for i in units
        ]
        if variant.cell_clip:
            clip = int(variant.cell_clip / 2.0**variant.cell_shift)
            cells = [min(max(c, -clip), clip) for c in cells]
        output = [_sigmoid(x) for x in self._gate("output", batch, cells)]
        scale = float(np.float32(2.0**-15 / float(np.float32(self.hidden_scale)) * 2.0**-15))
        products = [output[i] * _tanh(cells[i], 15 + variant.cell_shift) for i in units]
        hidden = [_cut(_multiplied(product, scale) + variant.hidden_zero_point, 8) for product in products]
        return (self._projected(hidden) if variant.projection else hidden), cells

    def _projected(self, hidden: list[int]) -> list[int]:
        variant = self.variant
        scale = _float32(self.projection_scale, self.hidden_scale, self.state_scale)
        outputs = []
        for at in range(self.output_size):
            total = int(self.projection_bias[at]) if variant.projection_bias else 0
            for weight, value in zip(self.projection[at], hidden, strict=True):
                total += int(weight) * (value - variant.hidden_zero_point)
            outputs.append(_cut(_multiplied(total, scale) + variant.state_zero_point, 8))
        clip = int(variant.proj_clip / self.state_scale)
        return [min(max(y, -clip), clip) for y in outputs] if clip else outputs

    def _gate(self, gate: str, batch: int, cells: list[int]) -> list[int]:
        variant = self.variant
        input_scale = _float32(self.input_scales[gate], self.input_scale, self.gate_scale)
        state_scale = _float32(self.state_scales[gate], self.state_scale, self.gate_scale)
        gate_scale = float(np.float32(self.gate_scale))
        peephole_scale = float(np.float32(2.0**variant.cell_shift * self.peephole_scale / gate_scale))
        sums = []
        for unit in range(self.units):
            total = 0 if variant.layer_norm else int(self.bias[gate][unit])
            for weight, value in zip(self.by_input[gate][unit], self.x[batch], strict=True):
                total += int(weight) * int(value - variant.input_zero_point)
            kept = _cut(_multiplied(total, input_scale), 16)
            total = 0
            for weight, value in zip(self.by_state[gate][unit], self.h[batch], strict=True):
                total += int(weight) * int(value - variant.state_zero_point)
            kept = _cut(kept + _multiplied(total, state_scale), 16)
            if variant.peephole and gate != "cell":
                kept = _cut(kept + _multiplied(int(self.by_cell[gate][unit]) * cells[unit], peephole_scale), 16)
            sums.append(kept)
        return self._normalized(gate, sums) if variant.layer_norm else sums

    def _normalized(self, gate: str, sums: list[int]) -> list[int]:
        """Return the sums normalised with 10 fraction bits; four units make every division of the reference exact."""
        mean = _towards_zero(sum(sums) * 1024, self.units)
        variance = _towards_zero(sum(x * x for x in sums) * ((1 << 20) // self.units) - mean * mean, 1 << 20)
        results = []
        for x, weight, bias in zip(sums, self.norm[gate], self.bias[gate], strict=True):
            normalized = _times_inverse_root(1024 * x - mean, variance)
            total = normalized * int(weight) + int(bias)
            rounded = _towards_zero(total + (512 if total > 0 else -512), 1024)
            results.append(_cut(_multiplied(rounded, self.norm_scale * 2**12), 16))
        return results


def _towards_zero(x: int, divisor: int) -> int:
    return x // divisor if x >= 0 else -(-x // divisor)


def _times_inverse_root(x: int, value: int) -> int:
    """Return x / sqrt(value) of 1 < value < 2^29 as the reference: five Newton-Raphson steps with 28 fraction bits."""
    pairs = (32 - value.bit_length() - 1) // 2 - 1
    scaled = (value << 2 * pairs) >> 1
    half = _divided_by_power(scaled, 1)

    def multiply(a: int, b: int) -> int:
        return _high_product(a, b, 31)

    estimate = 1 << 28
    for _ in range(5):
        cube = _cut(multiply(multiply(estimate, estimate), estimate) << 6, 32)
        estimate = _cut((multiply(3 << 27, estimate) - multiply(half, cube)) << 3, 32)
    mantissa, shift = multiply(estimate, math.floor(math.sqrt(0.5) * 2**31 + 0.5)), 11 - pairs
    if shift < 0:
        mantissa, shift = mantissa << -shift, 0
    return _divided_by_power(multiply(x, mantissa), shift)


def _case(name: str, variant: Variant) -> Case:
    lstm = QuantizedLstm(variant)
    steps = [lstm.step(batch) for batch in range(lstm.batches)]
    outputs, cells = (np.array([step[i] for step in steps]) for i in range(2))
    given = {gate: gate != "input" or not variant.cifg for gate in _GATES}
    cell_scale = 2.0**variant.cell_shift
    state = (lstm.state_scale, variant.state_zero_point)

    def optional(used: bool, code: OperandCode, values: np.ndarray, scale: float) -> Argument:
        return _stored(code, values, scale) if used else omitted(code)

    inputs = (
        _stored(SIGNED, lstm.x, lstm.input_scale, variant.input_zero_point),
        *(optional(given[gate], _SYMM8, lstm.by_input[gate], lstm.input_scales[gate]) for gate in _GATES),
        *(optional(given[gate], _SYMM8, lstm.by_state[gate], lstm.state_scales[gate]) for gate in _GATES),
        *(
            optional(variant.peephole and given[gate], _SYMM16, lstm.by_cell[gate], lstm.peephole_scale)
            for gate in _GATES
            if gate != "cell"
        ),
        *(optional(given[gate], INT32, lstm.bias[gate], 0.0) for gate in _GATES),
        optional(variant.projection, _SYMM8, lstm.projection, lstm.projection_scale),
        optional(variant.projection_bias, INT32, lstm.projection_bias, 0.0),
        _stored(SIGNED, lstm.h, *state),
        _stored(_SYMM16, lstm.c, cell_scale),
        *(optional(variant.layer_norm and given[gate], _SYMM16, lstm.norm[gate], lstm.norm_scale) for gate in _GATES),
        real(variant.cell_clip),
        real(variant.proj_clip),
        *(real(lstm.gate_scale) for _ in _GATES),
        integer(variant.hidden_zero_point),
        real(lstm.hidden_scale),
    )
    output = _stored(SIGNED, outputs, *state)
    results = (output, _stored(_SYMM16, cells, cell_scale), output)
    return Case(OperationCode.QUANTIZED_LSTM, name, inputs, results, (SIGNED,), exact=True)


CASES = (
    *map(_litert16, _LITERT),
    _case16("plain", (2, 3, 4), 0.01, 120, 60),
    _case16("one_unit", (1, 1, 1), 0.02, 0, 60),
    _case16("small_scale", (3, 9, 5), 0.003, 200, 55),
    _case16("saturated", (2, 8, 8), 0.04, 128, 128),
    _case("plain", Variant()),
    _case("cifg", Variant(cifg=True)),
    _case("peephole", Variant(peephole=True)),
    _case("cifg_peephole", Variant(cifg=True, peephole=True)),
    _case("layer_norm", Variant(layer_norm=True)),
    _case("projection", Variant(projection=True)),
    _case("projection_bias_clipped", Variant(projection=True, projection_bias=True, proj_clip=0.3)),
    _case("cell_clipped", Variant(cell_clip=0.5)),
    _case("hidden_zero_point", Variant(hidden_zero_point=-9, state_zero_point=-9)),
    _case("projection_hidden_zero_point", Variant(projection=True, projection_bias=True, hidden_zero_point=7)),
    _case("everything", Variant(True, True, True, True, True, 1.0, 0.7, 4)),
    *(_case(f"cell_scale_{-shift}", Variant(cell_shift=shift)) for shift in (-9, -10, -12, -13, -14, -15)),
)

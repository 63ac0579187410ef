# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's assembler takes what clang makes of the kernels with inline PTX, and they fit in registers.

ptxas comes with CUDA, or by `pip install nvidia-cuda-nvcc`. No GPU is needed; nothing is run. The built-in
functions that clang lacks for this target are in nvptx.h.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

import kernels_cl
from gpu_driver.convolution import tiled
from gpu_driver.convolution.product import BOUNDED, ROUNDS_AT_ONCE, ROUNDS_DOWN
from gpu_driver.convolution.units import TILES, Tile
from gpu_driver.device.programs import build_options
from gpu_driver.device_profile import PERSISTENT_ITEMS_PER_UNIT
from gpu_driver.discovery.matrix_units import element_types
from gpu_driver.peaks import _UNITS_CHAINS, UNITS_SOURCE
from tests.platforms.test_warnings import compiler

BUILT_INS = Path(__file__).with_name("nvptx.h")
PTX_VERSIONS = {75: "ptx65", 80: "ptx70"}
"""The oldest PTX ISA with the instructions of a capability."""
LOCAL_KIBIBYTES = {"sm_75": 64, "sm_80": 164, "sm_86": 100, "sm_90": 228}
"""Of a compute unit, of which every group takes one more."""
TARGETS = {75: ("sm_75", "sm_80", "sm_90"), 80: ("sm_80", "sm_86", "sm_90")}
INSTRUCTIONS = {
    (75, "half"): "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
    (75, "uchar"): "mma.sync.aligned.m8n8k16.row.col.s32",
    (75, "char"): "mma.sync.aligned.m8n8k16.row.col.s32",
    (80, "float"): "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    (80, "half"): "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    (80, "uchar"): "mma.sync.aligned.m16n8k32.row.col.s32",
    (80, "char"): "mma.sync.aligned.m16n8k32.row.col.s32",
}
"""By MATRIX_UNITS and T."""
TIMES = {(75, "half"): 2, (75, "uchar"): 4, (75, "char"): 4, (80, "float"): 3}
"""How many of them one multiply_add takes, where it is not one."""
BYTES_AT_ONCE = 32
"""Of a line, by one multiply_add."""
LINE_BYTES = 64
"""Of units_tile.h: what a turn multiplies."""


@dataclass(frozen=True)
class Variant:
    """What a launcher asks for, by MATRIX_UNITS, types, tile, and what is contiguous in memory."""

    level: int
    types: tuple[str, str]
    tile: Tile
    rows_contiguous: int = 0
    columns_contiguous: int = 0

    @property
    def is_quantized(self) -> bool:
        return "char" in self.types[0]

    @property
    def options(self) -> tuple[str, ...]:
        element, filter_element = self.types
        defines: dict[str, str | int] = {
            **{"T": element, "FILTER_T": filter_element, "QUANTIZED": int(self.is_quantized)},
            **{"MATRIX_UNITS": self.level, **dict(self.tile.defines())},
            **{"ROWS_CONTIGUOUS": self.rows_contiguous, "COLUMNS_CONTIGUOUS": self.columns_contiguous},
        }
        return build_options(defines)

    def __str__(self) -> str:
        layout = f"{self.rows_contiguous}{self.columns_contiguous}"
        return f"{self.level}-{'-'.join(self.types)}-{self.tile.rows}x{self.tile.columns}-{layout}"


QUICK = [Variant(80, ("half", "half"), TILES[0]), Variant(75, ("uchar", "char"), TILES[-1])]
ALL = [
    *(Variant(level, types, tile) for level in PTX_VERSIONS for types in element_types(level) for tile in TILES),
    *(Variant(80, types, TILES[0], r, c) for types in element_types(80) for r, c in ((0, 1), (1, 0), (1, 1))),
]


@pytest.fixture(scope="module")
def clang() -> str:
    found = compiler()
    targets = subprocess.run([found, "--print-targets"], capture_output=True, text=True, check=True).stdout
    if "nvptx64" not in targets:
        pytest.skip(f"{found} does not compile for nvptx64")
    return found


@pytest.fixture(scope="module")
def ptxas() -> str:
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found = shutil.which("ptxas") or next(map(str, sorted(packages.glob("*/bin/ptxas"))), None)
    if found is None:
        pytest.skip("ptxas is not installed (CUDA, or pip install nvidia-cuda-nvcc)")
    return found


@pytest.mark.parametrize("variant", ALL, ids=str)
def test_ptx_is_assembled(variant: Variant, clang: str, ptxas: str, tmp_path: Path, is_long: bool) -> None:
    if not is_long and variant not in QUICK:
        pytest.skip("takes a second or two each: --long")
    ptx = _compiled("matmul_units.cl", variant.level, variant.options, clang)
    kind = variant.level, variant.types[0]
    row_blocks, column_blocks = variant.tile.warp_rows // 16, variant.tile.warp_columns // 8
    blocks = row_blocks * column_blocks
    if variant.is_quantized:
        blocks += row_blocks + column_blocks  # sums of rows and columns
    assert ptx.count(INSTRUCTIONS[kind]) == blocks * LINE_BYTES // BYTES_AT_ONCE * TIMES.get(kind, 1)
    assert ptx.count("mma.sync") == ptx.count(INSTRUCTIONS[kind])
    fragments = 2 * row_blocks + column_blocks
    memory = "global" if variant.tile.direct else "shared"
    assert len(re.findall(rf"ld\.{memory}\.v4\.[ub]32", ptx)) >= fragments
    for target in TARGETS[variant.level]:
        said = _assembled(ptx, ptxas, target, tmp_path)
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said
        registers = re.search(r"Used (\d+) registers", said)
        assert registers is not None
        size_bytes = {"float": 4, "half": 2}.get(variant.types[0], 1)
        assert int(registers[1]) * variant.tile.items <= 65536
        assert 0.6 < int(registers[1]) / variant.tile.registers(size_bytes) < 1.8


@pytest.mark.parametrize("level", sorted(PTX_VERSIONS))
@pytest.mark.parametrize("element", ["float", "half", "uchar"])
def test_peaks_of_matrix_units_are_their_instructions(
    level: int, element: str, clang: str, ptxas: str, tmp_path: Path
) -> None:
    """Nothing of the loop is optimised away, nothing in it goes to memory."""
    if (level, element) not in INSTRUCTIONS:
        pytest.skip("there is no such instruction")
    defines: dict[str, str | int] = {"T": element, "FILTER_T": element, "MATRIX_UNITS": level, "CHAINS": _UNITS_CHAINS}
    ptx = _compiled(UNITS_SOURCE, level, build_options(defines), clang)
    (loop,) = (body for body in _loops(ptx) if "mma.sync" in body)
    instruction = INSTRUCTIONS[level, element]
    wanted = _UNITS_CHAINS * TIMES.get((level, element), 1)
    assert loop.count("mma.sync") == loop.count(instruction)
    assert loop.count(instruction) % wanted == 0
    assert loop.count(instruction) >= wanted
    assert not re.search(r"\b(ld|st)\.", loop)
    for target in TARGETS[level]:
        said = _assembled(ptx, ptxas, target, tmp_path)
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said


@pytest.mark.parametrize("tile", tiled.TILES, ids=lambda tile: str(tile.side))
def test_tiles_of_floats_fit_in_registers(tile: tiled.Tile, clang: str, ptxas: str, tmp_path: Path) -> None:
    """Registers for as many groups as `resident` says, and a vector that is read serves eight sums or more."""
    defines: dict[str, str | int] = {"T": "float", "FILTER_T": "float", "QUANTIZED": 0, "TILE": tile.side}
    options = build_options({**defines, "ROWS_CONTIGUOUS": 0, "COLUMNS_CONTIGUOUS": 0})
    ptx = _compiled("matmul_tiled.cl", 80, options, clang)
    for target in TARGETS[80]:
        said = _assembled(ptx, ptxas, target, tmp_path)
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said
        registers = re.search(r"Used (\d+) registers", said)
        assert registers is not None
        granted = -(-int(registers[1]) // 8) * 8  # a warp's are given out by 256
        assert granted * 256 * tile.resident <= 65536
    loop = next(body for body in _loops(ptx) if "fma.rn" in body and "bar" not in body)
    reads, products = len(re.findall(r"ld\.shared\.v4", loop)), loop.count("fma.rn")
    assert not re.search(r"ld\.shared\.[^v]", loop)
    assert products == reads * tile.run // 2 * 4


@pytest.mark.parametrize("types", element_types(80), ids="-".join)
@pytest.mark.parametrize(("taps", "depth"), [(3, 3), (7, 3)], ids=["3x3", "7x7"])
def test_inputs_of_few_channels_stay_in_registers(
    taps: int, depth: int, types: tuple[str, str], clang: str, ptxas: str, tmp_path: Path
) -> None:
    """Three groups fit in a compute unit's registers, and a line of a strip is read once, by vectors alone."""
    element, filter_element = types
    geometry = {"FILTER_HEIGHT": taps, "FILTER_WIDTH": taps, "DEPTH": depth, "STRIDE_Y": 2, "STRIDE_X": 2}
    tile = {"STRIP": 8, "STRIPS": 2, "LINES": 16, "LANES": 4, "BLOCKS": 1, "DILATION_Y": 1, "DILATION_X": 1}
    defines: dict[str, str | int] = {"T": element, "FILTER_T": filter_element, **geometry, **tile}
    is_quantized = "char" in element
    flags = ROUNDS_AT_ONCE | ROUNDS_DOWN if is_quantized else BOUNDED
    defines |= {"QUANTIZED": int(is_quantized), "FLAGS": flags, "SOURCE_VECTORS": 1, "OUTPUT_VECTORS": 1}
    ptx = _compiled("conv_2d_few_channels.cl", 80, build_options(defines), clang)
    for target in TARGETS[80]:
        said = _assembled(ptx, ptxas, target, tmp_path)
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said
        registers = re.search(r"Used (\d+) registers", said)
        assert registers is not None
        assert 3 * 128 * (-(-int(registers[1]) // 8) * 8) <= 65536
    loop = next(body for body in _loops(ptx) if "fma.rn" in body)
    inputs = -(-(7 * 2 + taps) * depth // 4)
    assert not re.search(r"ld\.shared\.[^v]", loop)
    assert len(re.findall(r"ld\.shared\.v4", loop)) == inputs + 2 * taps * depth
    assert loop.count("fma.rn") == 64 * taps * depth


@pytest.mark.parametrize("types", element_types(80), ids="-".join)
@pytest.mark.parametrize("level", sorted(PTX_VERSIONS))
def test_groups_that_stay_run_at_the_same_time(
    types: tuple[str, str], level: int, clang: str, ptxas: str, tmp_path: Path
) -> None:
    """A compute unit has registers and local memory for all that it has to run at once; local memory: CUDA's guide."""
    element, filter_element = types
    tile = TILES[-1] if types in element_types(level) else None
    variant = {"TILE": tiled.TILES[-1].side} if tile is None else {"MATRIX_UNITS": level, **dict(tile.defines())}
    is_quantized = int("char" in element)
    defines: dict[str, str | int] = {"T": element, "FILTER_T": filter_element, "QUANTIZED": is_quantized, **variant}
    options = build_options({**defines, "ROWS_CONTIGUOUS": 0, "COLUMNS_CONTIGUOUS": 0, "FENCE": 1})
    ptx = _compiled("persistent.cl", level, options, clang)
    items = 256 if tile is None else tile.items
    groups = max(items, PERSISTENT_ITEMS_PER_UNIT) // items
    for target in TARGETS[level]:
        said = _assembled(ptx, ptxas, target, tmp_path)
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said
        registers, memory = (re.search(rf"(\d+) {what}", said) for what in ("registers", "bytes smem"))
        assert registers is not None
        assert memory is not None
        assert groups * items * (-(-int(registers[1]) // 8) * 8) <= 65536
        assert groups * (int(memory[1]) + 1024) <= LOCAL_KIBIBYTES[target] << 10


def test_a_wrong_instruction_is_refused(clang: str, ptxas: str, tmp_path: Path) -> None:
    ptx = _compiled("matmul_units.cl", QUICK[0].level, QUICK[0].options, clang)
    wrong = ptx.replace("m16n8k16", "m16n8k12")
    assert wrong != ptx
    with pytest.raises(RuntimeError, match="ptxas"):
        _assembled(wrong, ptxas, "sm_80", tmp_path)
    with pytest.raises(RuntimeError, match="sm_80"):
        _assembled(ptx.replace(".target sm_80", ".target sm_75"), ptxas, "sm_75", tmp_path)


def _loops(ptx: str) -> list[str]:
    """Return the innermost loops of one block."""
    found = re.findall(r"^(\$?L\w+):((?:(?!^\$?L\w+:).)*?bra\S*\s+\1;)", ptx, re.MULTILINE | re.DOTALL)
    return [body for _, body in found]


def _compiled(name: str, level: int, options: tuple[str, ...], clang: str) -> str:
    command = [
        *(clang, "-x", "cl", *options, "-DVECTORS_BY_ALIGNMENT=1", "-O3", "-S", "-o", "-", "-"),
        *("-target", "nvptx64-nvidia-cuda", "-nogpulib", "-Wno-everything"),
        *("-Xclang", "-target-cpu", "-Xclang", f"sm_{level}"),
        *("-Xclang", "-target-feature", "-Xclang", f"+{PTX_VERSIONS[level]}"),
        *("-Xclang", "-finclude-default-header", "-Xclang", "-cl-ext=+all"),
    ]
    source = BUILT_INS.read_text(encoding="utf-8") + kernels_cl.source(name)
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"clang: {done.stderr}")
    return done.stdout


def _assembled(ptx: str, ptxas: str, target: str, folder: Path) -> str:
    """Return what the assembler says of the kernel; raises RuntimeError where it refuses."""
    source = folder / "kernel.ptx"
    source.write_text(ptx, encoding="utf-8")
    command = [ptxas, "-v", f"-arch={target}", str(source), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{target}: {done.stderr}{done.stdout}")
    return done.stderr + done.stdout

# SPDX-License-Identifier: Apache-2.0
"""Files as inputs: pictures, arrays, raw bytes, and what is said where they do not fit."""

from __future__ import annotations

import builtins
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime.cli.inputs import Normalization, convert_pixels, picture_layout, read_input, read_inputs
from nn_runtime.cli.output import UsageError
from nn_runtime.errors import BadData
from nn_runtime.interface import TensorInfo

if TYPE_CHECKING:
    from pathlib import Path

_RAMP = np.arange(256, dtype=np.uint8)


def _wanted(
    dtype: str = "uint8", dims: tuple[int, ...] = (1, 4, 6, 3), scale: float = 0.0, zero: int = 0, name: str = "input"
) -> TensorInfo:
    return TensorInfo(name, np.dtype(dtype), dims, scale, zero)


def _picture(folder: Path, mode: str = "RGB", suffix: str = ".png") -> Path:
    image = pytest.importorskip("PIL.Image")
    path = folder / f"picture{suffix}"
    pixels = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    image.fromarray(pixels).convert(mode).save(path)
    return path


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (_wanted("uint8", scale=0.1, zero=3), _RAMP),
        (_wanted("int8", scale=0.1, zero=3), _RAMP.astype(np.int16) - 128),
        (_wanted("float32"), _RAMP / 127.5 - 1),
        (_wanted("float16"), _RAMP / 127.5 - 1),
        (_wanted("int32"), _RAMP),
    ],
)
def test_values_of_a_picture(wanted: TensorInfo, expected: np.ndarray) -> None:
    converted = convert_pixels(_RAMP, wanted, None)
    assert converted.dtype == wanted.dtype
    np.testing.assert_allclose(
        converted.astype(np.float64), expected, atol=1e-3 if wanted.dtype.itemsize == 2 else 1e-6
    )


def test_own_normalization_is_quantised_by_the_input() -> None:
    given = Normalization(127.5, 127.5)
    converted = convert_pixels(_RAMP, _wanted("int8", scale=1 / 64, zero=2), given)
    np.testing.assert_array_equal(converted, np.rint((_RAMP / 127.5 - 1) * 64 + 2))
    saturated = convert_pixels(_RAMP, _wanted("uint8", scale=1 / 512, zero=100), given)
    assert saturated.min() == 0
    assert saturated.max() == 255


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((1, 4, 6, 3), (1, 4, 6, 3)),
        ((1, 2, 3, 3), (1, 2, 3, 3)),
        ((1, 3, 4, 6), (1, 3, 4, 6)),
        ((1, 4, 6, 1), (1, 4, 6, 1)),
        ((1, 4, 6), (1, 4, 6)),
        ((0, 0, 0, 3), (1, 4, 6, 3)),
    ],
)
def test_shapes_of_a_picture(tmp_path: Path, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    array = read_input(str(_picture(tmp_path)), _wanted(dims=dims), None)
    assert array.shape == shape
    assert array.flags.c_contiguous


@pytest.mark.parametrize("dims", [(1, 1960), (2, 4, 4, 3), (1, 4, 4, 5), ()])
def test_inputs_that_take_no_picture(dims: tuple[int, ...]) -> None:
    assert picture_layout(_wanted(dims=dims)) is None


def test_a_bitmap_is_read_as_it_is(tmp_path: Path) -> None:
    path = _picture(tmp_path, suffix=".bmp")
    expected = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    np.testing.assert_array_equal(read_input(str(path), _wanted(), None)[0], expected)


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_greys_of_16_bits(tmp_path: Path, suffix: str, channels: int) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint16).reshape(4, 6) * 2730
    path = tmp_path / f"grey{suffix}"
    image.fromarray(pixels).save(path)
    (read,) = read_input(str(path), _wanted(dims=(1, 4, 6, channels)), None)
    np.testing.assert_array_equal(read, np.repeat(pixels[..., np.newaxis] >> 8, channels, axis=-1))


def test_without_pillow_a_picture_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _picture(tmp_path)
    real_import = builtins.__import__

    def no_pillow(name: str, *args: Any, **kwargs: Any) -> object:
        if name.startswith("PIL"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pillow)
    with pytest.raises(UsageError, match="pip install pillow"):
        read_input(str(path), _wanted(), None)


def test_a_file_that_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "text.png"
    path.write_text("no picture")
    with pytest.raises(BadData, match="not a picture"):
        read_input(str(path), _wanted(), None)
    with pytest.raises(FileNotFoundError):
        read_input(str(tmp_path / "missing.png"), _wanted(), None)


def test_arrays_and_their_batch(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "one.npz", x=values)
    np.savez(tmp_path / "two.npz", x=values, y=values + 1)
    wanted = _wanted("float32", (1, 2, 3))
    for file in ("a.npy", "one.npz", "two.npz:x"):
        np.testing.assert_array_equal(read_input(str(tmp_path / file), wanted, None), values[np.newaxis])
    with pytest.raises(UsageError, match="it has x, y"):
        read_input(str(tmp_path / "two.npz"), wanted, None)
    with pytest.raises(UsageError, match=r"one.npz has no array 'y'; it has x: choose one with .*one.npz:KEY"):
        read_input(str(tmp_path / "one.npz:y"), wanted, None)
    # A shape that does not fit stays as it is: the session says what is wanted.
    assert read_input(str(tmp_path / "a.npy"), _wanted("float32", (1, 5, 3)), None).shape == (2, 3)


@pytest.mark.parametrize("name", ["broken.npy", "broken.npz"])
def test_broken_arrays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the sort")
    with pytest.raises(BadData, match=f"{name}: not (an array|arrays) in") as caught:
        read_input(str(tmp_path / name), _wanted(), None)
    assert "allow_pickle" not in str(caught.value)


def test_an_array_and_an_archive_with_each_others_endings(tmp_path: Path) -> None:
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with (tmp_path / "archive.npy").open("wb") as file:
        np.savez(file, x=np.zeros(3))
    with pytest.raises(BadData, match=r"array\.npz: wanted arrays in \.npz form, got one array; name it \.npy"):
        read_input(str(tmp_path / "array.npz"), _wanted(), None)
    with pytest.raises(BadData, match=r"archive\.npy: wanted one array in \.npy form, got an archive; name it \.npz"):
        read_input(str(tmp_path / "archive.npy"), _wanted(), None)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_arrays_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"damaged{suffix}"
    with path.open("wb") as file:
        np.save(file, _RAMP) if suffix == ".npy" else np.savez_compressed(file, input=_RAMP)
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole)):
        for value in (0, 32, 255):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                read_input(str(path), _wanted(), None)
            except (BadData, UsageError):
                refused += 1
    assert refused > 20


def test_arrays_never_run_code(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BadData, match="objects"):
        read_input(str(tmp_path / "objects.npy"), _wanted(), None)


def test_raw_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.raw"
    path.write_bytes(bytes(range(8)))
    np.testing.assert_array_equal(
        read_input(str(path), _wanted("int16", (2, 2)), None), np.frombuffer(bytes(range(8)), np.int16).reshape(2, 2)
    )
    with pytest.raises(BadData, match="takes 32 bytes, got 8"):
        read_input(str(path), _wanted("float32", (2, 4)), None)
    with pytest.raises(UsageError, match="known shape"):
        read_input(str(path), _wanted("float32", (0, 4)), None)


def test_files_for_several_inputs(tmp_path: Path) -> None:
    both = [_wanted("uint8", (2,), name="a"), _wanted("uint8", (2,), name="b")]
    for name in ("one", "two"):
        (tmp_path / f"{name}.raw").write_bytes(name[:2].encode())
    one, two = (str(tmp_path / f"{name}.raw") for name in ("one", "two"))
    runs = read_inputs([one, two, f"b={one}", two], both, None)
    assert [{name: bytes(array) for name, array in run.items()} for run in runs] == [
        {"a": b"on", "b": b"tw"},
        {"b": b"on", "a": b"tw"},
    ]
    with pytest.raises(UsageError, match=r"each of 2 inputs \('a', 'b'\), got 3"):
        read_inputs([one, two, one], both, None)
    with pytest.raises(UsageError, match="twice"):
        read_inputs([f"a={one}", f"a={two}"], both, None)
    np.savez(tmp_path / "all.npz", a=np.zeros(2, np.uint8), b=np.ones(2, np.uint8))
    runs = read_inputs([str(tmp_path / "all.npz")], both, None)
    assert [bytes(array) for array in runs[0].values()] == [b"\0\0", b"\1\1"]


def test_inputs_by_the_names_of_a_signature(tmp_path: Path) -> None:
    wanted = [
        replace(_wanted("float32", (2,), name=name), signature_name=name[-1]) for name in ("serving_x", "serving_y")
    ]
    for value, name in enumerate("xy"):
        np.save(tmp_path / f"{name}.npy", np.full(2, value, np.float32))
    np.savez(tmp_path / "both.npz", x=np.zeros(2, np.float32), y=np.ones(2, np.float32), z=np.zeros(3))
    for files in ([f"y={tmp_path}/y.npy", f"{tmp_path}/x.npy"], [f"{tmp_path}/both.npz"]):
        (arrays,) = read_inputs(files, wanted, None)
        assert {name: array.tolist() for name, array in arrays.items()} == {"serving_x": [0, 0], "serving_y": [1, 1]}
    np.testing.assert_array_equal(read_input(f"{tmp_path}/both.npz", wanted[1], None), [1, 1])


def test_a_file_for_an_input_that_is_not_there(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3, np.float32))
    with pytest.raises(UsageError, match="no input is called 'odd'"):
        read_inputs([f"odd={tmp_path / 'a.npy'}"], [_wanted("float32", (3,))], None)


@pytest.mark.parametrize("given", ["", "x="])
def test_a_file_without_a_name(given: str) -> None:
    with pytest.raises(UsageError, match="the name of the file is empty"):
        read_inputs([given], [_wanted("float32", (3,), name="x")], None)


def test_several_pictures_for_one_input(tmp_path: Path) -> None:
    wanted, file = _wanted(dims=(2, 4, 6, 3)), str(_picture(tmp_path))
    single = read_input(file, _wanted(), None)
    runs = read_inputs([file, f"input={file}", file, file], [wanted], None)
    assert [run["input"].shape for run in runs] == [(2, 4, 6, 3)] * 2
    assert all(np.array_equal(run["input"], np.concatenate([single, single])) for run in runs)
    with pytest.raises(UsageError, match="wanted 2 pictures for each run, got 3"):
        read_inputs([file] * 3, [wanted], None)
    np.save(tmp_path / "two.npy", runs[0]["input"])
    (run,) = read_inputs([str(tmp_path / "two.npy")], [wanted], None)
    assert np.array_equal(run["input"], runs[0]["input"])
    with pytest.raises(UsageError, match="wanted 2 pictures for each run, or arrays of 2, got both"):
        read_inputs([file, str(tmp_path / "two.npy")], [wanted], None)


@pytest.mark.parametrize("suffix", [".png", ".npy", ".npz", ".raw"])
def test_a_folder_in_the_place_of_a_file(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        read_input(str(folder), _wanted(), None)
    assert str(caught.value.filename) == str(folder)

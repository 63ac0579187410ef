# SPDX-License-Identifier: Apache-2.0
"""Files as inputs of a network: pictures through Pillow, .npy and .npz arrays, raw bytes.

A picture is turned upright, made RGB (or grey where the input has one channel) of 8 bits (of 16 the upper ones),
resized bilinearly to the input's height and width, and mapped from 0..255 to what the input takes: uint8 as it is, int8
shifted by -128, float to -1..1. With a `Normalization` every type takes (value - mean) / std, quantised by the input's
scale and zero point.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nn_runtime.cli.output import UsageError
from nn_runtime.errors import BadData
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.interface import TensorInfo

Array = npt.NDArray[np.generic]

RAW_SUFFIXES = frozenset({".bin", ".dat", ".raw"})
_CHANNELS = (1, 3)
_MIDDLE = 127.5


@dataclass(frozen=True)
class Normalization:
    """A picture's values v of 0..255 become (v - mean) / std."""

    mean: float
    std: float


@dataclass(frozen=True)
class PictureLayout:
    """How an input holds a picture: sizes (0: the picture's own), and the axis that the channels are put at."""

    height: int
    width: int
    channels: int
    channel_axis: int | None


def read_inputs(
    files: Sequence[str], wanted: Sequence[TensorInfo], normalization: Normalization | None
) -> list[dict[str, Array]]:
    """Return one dict of arrays by input name per run; files are taken in turn for the inputs in order.

    Each file is `[NAME=]FILE[:KEY]`, NAME the input's or its signature's, KEY an array of an .npz; an .npz that has
    every input serves a whole run, and as many pictures as the only input takes at once. Raises UsageError for a number
    or name that does not fit, BadData for a content that does not.
    """
    whole = _whole_run(files, wanted)
    if whole is not None:
        return whole
    if len(wanted) == 1:
        named = [_split_name(file, wanted)[1] for file in files]
        if _takes_several_pictures(named, wanted[0]):
            return _batches(named, wanted[0], normalization)
    if not wanted or len(files) % len(wanted):
        raise UsageError(
            f"--input: wanted a file for each of {len(wanted)} inputs ({_names(wanted)}), got {len(files)}"
        )
    groups = [files[start : start + len(wanted)] for start in range(0, len(files), len(wanted))]
    return [_one_run(group, wanted, normalization) for group in groups]


def _takes_several_pictures(files: Sequence[str], wanted: TensorInfo) -> bool:
    """Tell whether the only input takes several pictures in a run, and the files are such, not arrays.

    Raises UsageError where some are.
    """
    is_batch = len(wanted.shape) > 1 and wanted.shape[0] > 1 and picture_layout(_of_one(wanted)) is not None
    arrays = [_is_array(file) for file in files]
    if is_batch and any(arrays) and not all(arrays):
        count = wanted.shape[0]
        raise UsageError(f"--input: wanted {count} pictures for each run, or arrays of {count}, got both")
    return is_batch and not any(arrays)


def _batches(files: Sequence[str], wanted: TensorInfo, normalization: Normalization | None) -> list[dict[str, Array]]:
    """Return runs of several pictures each."""
    count = wanted.shape[0]
    if len(files) % count:
        raise UsageError(f"--input: wanted {count} pictures for each run, got {len(files)}")
    pictures = [picture(Path(file), _of_one(wanted), normalization) for file in files]
    runs = range(0, len(files), count)
    return [{wanted.name: np.concatenate(pictures[start : start + count])} for start in runs]


def _of_one(wanted: TensorInfo) -> TensorInfo:
    return replace(wanted, shape=(1, *wanted.shape[1:]))


def _is_array(file: str) -> bool:
    archive, colon, _ = file.rpartition(":")
    is_in_archive = bool(colon) and archive.lower().endswith(".npz")
    return is_in_archive or Path(file).suffix.lower() in {".npy", ".npz", *RAW_SUFFIXES}


def _one_run(
    files: Sequence[str], wanted: Sequence[TensorInfo], normalization: Normalization | None
) -> dict[str, Array]:
    named = [_split_name(file, wanted) for file in files]
    taken = {one.name for one, _ in named if one is not None}
    free = iter([one for one in wanted if one.name not in taken])
    arrays: dict[str, Array] = {}
    for given, file in named:
        target = next(free) if given is None else given
        if target.name in arrays:
            raise UsageError(f"--input: input {target.name!r} is given twice")
        arrays[target.name] = read_input(file, target, normalization)
    return arrays


def _split_name(file: str, wanted: Sequence[TensorInfo]) -> tuple[TensorInfo | None, str]:
    """Return the input that `NAME=FILE` is for, None where there is no name, and the file."""
    name, equals, rest = file.partition("=")
    target = _called(name, wanted) if equals else None
    if not file or (target is not None and not rest):
        raise UsageError(f"--input {file!r}: the name of the file is empty")
    if target is not None:
        return target, rest
    if equals and not Path(file).exists() and Path(rest).exists():
        raise UsageError(f"--input {file}: no input is called {name!r}; the inputs are {_names(wanted)}")
    return None, file


def _called(name: str, wanted: Sequence[TensorInfo]) -> TensorInfo | None:
    """Return the input of a name, else the one that the signature calls so."""
    by_name = {one.signature_name: one for one in wanted if one.signature_name} | {one.name: one for one in wanted}
    return by_name.get(name)


def _names(wanted: Sequence[TensorInfo]) -> str:
    return ", ".join(repr(one.name) for one in wanted)


def _key(one: TensorInfo, arrays: Mapping[str, Array]) -> str:
    """Return the name by which an archive has an input: its own, else the signature's if that is there."""
    return one.signature_name if one.name not in arrays and one.signature_name in arrays else one.name


def _whole_run(files: Sequence[str], wanted: Sequence[TensorInfo]) -> list[dict[str, Array]] | None:
    """Return the runs where each file is an .npz that holds every input by its name."""
    if len(wanted) < 2 or not all(file.lower().endswith(".npz") for file in files):
        return None
    runs = [_load_npz(Path(file)) for file in files]
    if not all(_key(one, arrays) in arrays for arrays in runs for one in wanted):
        return None
    return [{one.name: arrays[_key(one, arrays)] for one in wanted} for arrays in runs]


def read_input(file: str, wanted: TensorInfo, normalization: Normalization | None) -> Array:
    """Return one file as an array for an input."""
    archive, colon, key = file.rpartition(":")
    if colon and archive.lower().endswith(".npz"):
        return _with_batch(_named(_load_npz(Path(archive)), key, archive), wanted)
    path = Path(file)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays = _load_npz(path)
        only = next(iter(arrays.values())) if len(arrays) == 1 else _named(arrays, _key(wanted, arrays), file)
        return _with_batch(only, wanted)
    if suffix == ".npy":
        return _with_batch(_load_npy(path), wanted)
    if suffix in RAW_SUFFIXES:
        return _raw(path, wanted)
    return picture(path, wanted, normalization)


def _load_npy(path: Path) -> Array:
    loaded = _loaded(path, "an array in .npy form")
    if isinstance(loaded, dict):
        raise BadData(f"{path}: wanted one array in .npy form, got an archive; name it .npz")
    return loaded


def _load_npz(path: Path) -> dict[str, Array]:
    loaded = _loaded(path, "arrays in .npz form")
    if not isinstance(loaded, dict):
        raise BadData(f"{path}: wanted arrays in .npz form, got one array; name it .npy")
    return loaded


def _loaded(path: Path, form: str) -> Array | dict[str, Array]:
    """Return the array of a file, or those of an archive by name; raises OSError, BadData."""
    with path.open("rb") as file:
        try:
            loaded: Array | np.lib.npyio.NpzFile = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
        except Exception as error:  # numpy, zipfile, zlib and tokenize each have their own for what is damaged
            raise BadData(f"{path}: not {form}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return numpy's words, but for its advice to unpickle: it takes every file without its header for a pickle."""
    return "no header of numpy's, or Python objects" if "pickle" in str(error) else str(error)


def _named(arrays: Mapping[str, Array], key: str, file: str) -> Array:
    """Return the array of that name; raises UsageError."""
    if key not in arrays:
        advice = f"it has {', '.join(arrays)}: choose one with {file}:KEY" if arrays else "it has none"
        raise UsageError(f"{file} has no array {key!r}; {advice}")
    return arrays[key]


def _with_batch(array: Array, wanted: TensorInfo) -> Array:
    """Add the batch of one that a single example lacks."""
    single = array.ndim + 1 == len(wanted.shape) and wanted.shape[0] in (0, 1)
    return array[np.newaxis] if single and _fits(array.shape, wanted.shape[1:]) else array


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return all(size in (0, given) for given, size in zip(shape, wanted, strict=True))


def _raw(path: Path, wanted: TensorInfo) -> Array:
    """Return the bytes of a file as the elements of the input."""
    if 0 in wanted.shape:
        raise UsageError(f"{path}: raw bytes need an input of known shape, got {wanted.shape}; use .npy")
    content = path.read_bytes()
    needed = int(np.prod(wanted.shape)) * wanted.dtype.itemsize
    if len(content) != needed:
        shape = list(wanted.shape)
        raise BadData(f"{path}: input {wanted.name!r} {wanted.dtype} {shape} takes {needed} bytes, got {len(content)}")
    return np.frombuffer(content, wanted.dtype).reshape(wanted.shape)


def picture(path: Path, wanted: TensorInfo, normalization: Normalization | None) -> Array:
    """Return a picture as an input takes it; raises BadData where file or input is not a picture."""
    layout = picture_layout(wanted)
    if layout is None:
        path.stat()  # raises where there is no such file
        shape, kinds = list(wanted.shape), ".npy, .npz, .raw, .bin or .dat"
        raise BadData(f"{path}: input {wanted.name!r} {wanted.dtype} {shape} takes no picture; give {kinds}")
    pixels = _pixels(path, layout)
    values = convert_pixels(pixels, wanted, normalization)
    axis = layout.channel_axis
    placed = values[..., 0] if axis is None else np.moveaxis(values, -1, axis - 1)
    return np.ascontiguousarray(placed)[np.newaxis]


def picture_layout(wanted: TensorInfo) -> PictureLayout | None:
    """Tell how an input holds a picture: [1, height, width, depth], [1, depth, height, width] or [1, height, width]."""
    sizes = wanted.shape
    if wanted.dtype.kind not in "uif" or not sizes or sizes[0] > 1:
        return None
    if len(sizes) == 3:
        return PictureLayout(sizes[1], sizes[2], 1, None)
    if len(sizes) != 4:
        return None
    if sizes[3] in _CHANNELS:
        return PictureLayout(sizes[1], sizes[2], sizes[3], 3)
    if sizes[1] in _CHANNELS:
        return PictureLayout(sizes[2], sizes[3], sizes[1], 1)
    return None


def _pixels(path: Path, layout: PictureLayout) -> npt.NDArray[np.uint8]:
    """Return the resized picture as [height, width, channels]."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UsageError(f"{path}: reading pictures needs Pillow: pip install pillow; .npy works without") from error
    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened)
            if upright.mode.startswith("I;16") or (upright.mode == "I" and opened.format == "PNG"):
                # `convert` would make 255 of all above it; of 16-bit colours Pillow itself takes the upper byte
                upright = Image.fromarray((np.asarray(upright).astype(np.uint16) >> 8).astype(np.uint8))
            image = upright.convert("L" if layout.channels == 1 else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # it cannot be opened
        problem = f"no .npy, .npz, .raw, .bin or .dat, and not a picture that Pillow can read: {error}"
        raise BadData(f"{path}: {problem}") from error
    size = (layout.width or image.width, layout.height or image.height)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def convert_pixels(pixels: npt.NDArray[np.uint8], wanted: TensorInfo, normalization: Normalization | None) -> Array:
    """Map values of 0..255 to what the input takes (see the module)."""
    if normalization is None:
        if wanted.dtype == np.uint8:
            return pixels
        if wanted.dtype == np.int8:
            return (pixels.astype(np.int16) - 128).astype(np.int8)
        normalization = Normalization(_MIDDLE, _MIDDLE) if wanted.dtype.kind == "f" else Normalization(0.0, 1.0)
    real = (pixels.astype(np.float32) - np.float32(normalization.mean)) / np.float32(normalization.std)
    if wanted.dtype.kind != "f":
        limits = np.iinfo(wanted.dtype.name)
        steps = real / np.float32(wanted.scale) + np.float32(wanted.zero_point) if wanted.scale else real
        real = np.clip(np.rint(steps), limits.min, limits.max)
    converted: Array = real.astype(wanted.dtype)
    return converted

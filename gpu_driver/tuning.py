# SPDX-License-Identifier: Apache-2.0
"""Tuned numbers of a device as JSON files.

A file holds the values for one device with one driver version. It is searched in the folder `tuning` of the driver's
caches (where `nnrt tune` stores it), then among those shipped in `profiles`; NNRT_TUNING names a file to use instead,
or is `off`.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
from dataclasses import asdict, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_driver.tuning_values import Tuning
from nn_runtime.hal.cache_folder import cache_directory
from nn_runtime.hal.files import read_file, result_file, write_file
from nn_runtime.hal.tuning import TuningParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.device_profile import DeviceProfile

VARIABLE = "NNRT_TUNING"
OFF = "off"
FORMAT = 1
_IDENTITY = ("platform", "device", "driver_version", "compute_units")
"""Entries that say which device and driver version a file is for."""
_LOG = logging.getLogger(__name__)


def parameters(profile: DeviceProfile) -> tuple[TuningParameter, ...]:
    """Return what can be tuned on a device of this class."""
    kind = "cpu" if profile.is_cpu else "gpu"
    return tuple(
        TuningParameter(one.name, one.default, one.metadata["candidates"], one.metadata["meaning"])  # type: ignore[arg-type]
        for one in fields(Tuning)
        if kind in one.metadata["classes"]
    )


def tuning_for(profile: DeviceProfile) -> Tuning:
    """Return the tuned values for a device: of the file that is named, the user's, a shipped one; else defaults.

    A file that is not for this device and driver version, or is damaged, is left out with a line in the log; a warning
    if it was named.
    """
    named = os.environ.get(VARIABLE, "")
    if named == OFF:
        return Tuning()
    if named:
        try:
            return _parsed(read_file(Path(named)), profile)
        except (OSError, ValueError) as error:
            _warn_once(f"{VARIABLE}={named} is not used, defaults are: {_reason(error)}")
            return Tuning()
    for data in (_users(user_file(profile)), _shipped(file_name(profile))):
        if data is not None:
            try:
                return _parsed(data, profile)
            except ValueError as error:
                _LOG.info("%s: %s", file_name(profile), error)
    return Tuning()


def problem_of_named_file() -> str | None:
    """Return why the file that NNRT_TUNING names is of no use to any device; None where it is for one, or none is."""
    named = os.environ.get(VARIABLE, "")
    if named in ("", OFF):
        return None
    try:
        _read(read_file(Path(named)))
    except (OSError, ValueError) as error:
        return f"{VARIABLE}={named}: {_reason(error)}"
    return None


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def store(
    profile: DeviceProfile, values: Mapping[str, int], measured: Mapping[str, object], path: Path | None = None
) -> Path:
    """Store tuned values for a device and return the file: the user's, or that path; raises ValueError, OSError."""
    changed = {name: value for name, value in asdict(Tuning.of(values)).items() if value != getattr(Tuning(), name)}
    document = {"format": FORMAT, **_identity(profile), "values": changed, "measured": measured}
    text = json.dumps(document, indent=1) + "\n"
    if path is not None:
        path = path / file_name(profile) if path.is_dir() else path
        with result_file(path) as file:
            file.write(text.encode())
        return path
    path = user_file(profile)
    write_file(path, text.encode())
    return path


def user_file(profile: DeviceProfile) -> Path:
    """Return where a device's tuned values are stored."""
    return cache_directory() / "tuning" / file_name(profile)


def file_name(profile: DeviceProfile) -> str:
    """Return the name of a device's file: tuning-<platform>-<driver>-<device>-<compute units>.json."""
    words = (profile.slug, profile.driver_version, profile.device_name, f"{profile.compute_units}cu")
    plain = "-".join(re.sub(r"[^a-z0-9._]+", "-", word.lower()).strip("-.") for word in words)
    return f"tuning-{plain}.json"


@functools.cache
def _warn_once(message: str) -> None:
    """Say what is so for every device but once."""
    _LOG.warning("%s", message)


def _users(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except OSError:
        return None


def _shipped(name: str) -> bytes | None:
    file = resources.files("gpu_driver").joinpath("profiles").joinpath(name)
    return file.read_bytes() if file.is_file() else None


def _parsed(data: bytes, profile: DeviceProfile) -> Tuning:
    found, values = _read(data)
    for key, value in _identity(profile).items():
        if found[key] != value:
            raise ValueError(f"tuning: for {key} {found[key]!r}, not {value!r}")
    return values


def _read(data: bytes) -> tuple[dict[str, object], Tuning]:
    """Return what a file is for and its values; raises ValueError for what is no file of nnrt tune."""
    what = "tuning: not a file of nnrt tune"
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what}: not JSON: {error}") from error
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"tuning: for format {document['format']!r}, not {FORMAT!r}")
        return {key: document[key] for key in _IDENTITY}, Tuning.of(document["values"])
    except KeyError as error:
        raise ValueError(f"{what}: it has no {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{what}: {error}") from error


def _identity(profile: DeviceProfile) -> dict[str, object]:
    values = (profile.slug, profile.device_name, profile.driver_version, profile.compute_units)
    return dict(zip(_IDENTITY, values, strict=True))

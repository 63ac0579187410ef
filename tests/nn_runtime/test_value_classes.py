# SPDX-License-Identifier: Apache-2.0
"""Classes made by `value_classes.dataclass` beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import TYPE_CHECKING, Any, cast

import pytest

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Place:
    """Two numbers."""

    x: int
    y: int = 0


def declare(decorator: Callable[..., Any], **parameters: bool) -> Any:
    """Declare a class with every kind of field that differs between methods."""

    @decorator(**parameters)
    class Sample:
        """A sample."""

        number: float
        items: tuple[object, ...] = ()
        hidden: str = dataclasses.field(default="", repr=False)
        noted: list[int] = dataclasses.field(default_factory=list, compare=False)

    return Sample


KINDS = pytest.mark.parametrize(
    "parameters", [{"frozen": True}, {"frozen": True, "eq": False}, {}, {"eq": False}], ids=str
)
ARGUMENTS = [(1,), (1.0,), (1, (2,)), (1, (), "a"), (1, (), "a", [3]), (float("nan"),)]


def both(parameters: dict[str, bool]) -> tuple[Any, Any]:
    return declare(cast("Any", dataclass), **parameters), declare(dataclasses.dataclass, **parameters)


@KINDS
def test_objects_compare_as_those_of_the_library(parameters: dict[str, bool]) -> None:
    ours, theirs = (
        ([one(*each) for each in ARGUMENTS], [one(*each) for each in ARGUMENTS]) for one in both(parameters)
    )
    for i in range(len(ARGUMENTS)):
        for k in range(len(ARGUMENTS)):
            assert (ours[0][i] == ours[1][k]) == (theirs[0][i] == theirs[1][k]), (i, k)
            assert (ours[0][i] == ours[0][k]) == (theirs[0][i] == theirs[0][k]), (i, k)
    assert ours[0][0] != theirs[0][0]


@KINDS
def test_objects_show_themselves_as_those_of_the_library(parameters: dict[str, bool]) -> None:
    ours, theirs = both(parameters)
    for arguments in ARGUMENTS:
        assert repr(ours(*arguments)) == repr(theirs(*arguments))


def test_hashes_follow_equality() -> None:
    ours, theirs = both({"frozen": True})
    assert hash(ours(1, (2,), "a", [3])) == hash(theirs(1, (2,), "a", []))
    assert hash(Place(1)) == hash(Place(1, 0))
    mutable, _ = both({})
    with pytest.raises(TypeError, match="unhashable"):
        hash(mutable(1))


def test_frozen_objects_stay_as_they_are() -> None:
    place = Place(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        place.x = 2  # type: ignore[misc]
    assert place == Place(1)


def test_functions_of_the_library_know_the_classes() -> None:
    place = dataclasses.replace(Place(1, 2), y=3)
    assert dataclasses.asdict(place) == {"x": 1, "y": 3}
    assert [field.name for field in dataclasses.fields(place)] == ["x", "y"]
    assert copy.deepcopy(place) == place == pickle.loads(pickle.dumps(place))


def test_methods_of_the_class_are_kept() -> None:
    @dataclass(frozen=True)
    class Named:
        """A name, in any case."""

        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

        def __repr__(self) -> str:
            return self.name

    assert Named("A") == Named("a")
    assert len({Named("A"), Named("a")}) == 1
    assert repr(Named("A")) == "A"


def test_classes_without_fields_and_of_one_compare() -> None:
    @dataclass(frozen=True)
    class Empty:
        """Nothing."""

    @dataclass(frozen=True)
    class Single:
        """One thing."""

        thing: object

    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert Single((1, 2)) == Single((1, 2)) != Single((1,))
    assert Single(None) != None  # noqa: E711


def test_objects_that_hold_themselves_show_that() -> None:
    shown = []
    for one in both({"frozen": True}):
        items: list[object] = []
        items.append(one(1, items))
        shown.append(repr(items[0]))
    assert shown[0] == shown[1]
    assert "..." in shown[0]

"""The names in durable formats are fixed, and do not depend on those of Python."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum

import pytest

from croupier.model.codec import Codec, Undecodable, UnknownName
from tests.upgrade.tags import LOCK, as_text


def test_no_name_of_any_format_has_changed() -> None:
    """After adding to a format on purpose, run `python -m tests.upgrade.tags`."""
    changes = [*difflib.ndiff(LOCK.read_text().splitlines(), as_text().splitlines())]
    changed = [line for line in changes if not line.startswith(" ")]
    hint = "a released name must not change; after an addition, run python -m tests.upgrade.tags"
    assert not changed, "\n".join([hint, *changed])


class Colour(Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True)
class Small:
    one: int
    two: Colour = Colour.RED


@dataclass(frozen=True)
class Renamed:
    uno: int
    due: Colour = Colour.RED


def test_a_class_that_was_renamed_keeps_its_written_names() -> None:
    codec = Codec({"Renamed": "Small", "Renamed.uno": "one", "Renamed.due": "two"})
    written = Codec().encoder(Small)(Small(1, Colour.GREEN))
    assert written == {"one": 1, "two": "GREEN"}
    assert codec.encoder(Renamed)(Renamed(1, Colour.GREEN)) == written
    assert codec.decoder(Renamed)(written) == Renamed(1, Colour.GREEN)


def test_a_name_that_is_not_known_is_told_apart_from_damage() -> None:
    decode = Codec().decoder(Small)
    for document in ({"one": 1, "three": 3}, {"three": 3}, {"one": 1, "two": "BLUE"}):
        with pytest.raises(UnknownName):
            decode(document)
    with pytest.raises(Undecodable, match="'one' is missing"):
        decode({})

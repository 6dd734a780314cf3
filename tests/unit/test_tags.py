"""Durable formats are contracts: their names do not depend on those of Python."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import pytest

from croupier.agent.core.records import KillRecord, VoidRecord
from croupier.agent.record_lines import CHECKPOINT
from croupier.master.core.records import FrameworkRecord
from croupier.master.store.records_json import STORE
from croupier.model.codec import Codec, Undecodable
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.tags import Kind, Table, recorded
from croupier.model.task import Reason
from tests.upgrade.tags import FORMATS, LOCK, as_text, recorded_classes


def test_no_tag_of_any_format_has_changed() -> None:
    """After adding to a format on purpose, run `python -m tests.upgrade.tags`."""
    changes = [*difflib.ndiff(LOCK.read_text().splitlines(), as_text().splitlines())]
    changed = [line for line in changes if not line.startswith(" ")]
    hint = "a released tag must not change; after an addition, run python -m tests.upgrade.tags"
    assert not changed, "\n".join([hint, *changed])


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_lists_only_what_its_format_records(name: str) -> None:
    table, roots = FORMATS[name]
    assert set(table.kinds.values()) <= set(recorded_classes(roots))


class Cause(Enum):
    NOTHING = 1
    BY_FRAMEWORK = 2


@dataclass(frozen=True)
class Ending:
    """A twin of the agent's `KillRecord` under other names in Python, and in another order."""

    cause: Cause
    patience_ms: int
    job: str
    owner: str


@dataclass(frozen=True)
class Party:
    """A twin of the master's `FrameworkRecord` under other names in Python."""

    key: str
    title: str
    paths: tuple[str, ...]
    timeout: float
    was_removed: bool = False
    run: str = ""
    number_of_runs: int = 1
    is_unrecorded: bool = False
    earlier_runs: tuple[str, ...] = ()


TWINS = Codec(
    Table(
        (
            Kind(
                "KillRecord",
                Ending,
                "owner=framework_id job=task_id patience_ms=grace_ms cause=reason",
            ),
            Kind("Reason", Cause, "NOTHING=NONE BY_FRAMEWORK=KILLED_BY_FRAMEWORK"),
            Kind(
                "framework",
                Party,
                "key=framework_id title=name paths=roles timeout=failover_timeout_s"
                " was_removed=removed run=client_id number_of_runs=epoch"
                " is_unrecorded=is_stranger earlier_runs=former",
            ),
        )
    )
)


def test_renaming_in_python_changes_no_byte_of_a_checkpoint() -> None:
    record = KillRecord(FrameworkId("f"), TaskId("t"), 9, Reason.KILLED_BY_FRAMEWORK)
    twin = Ending(Cause.BY_FRAMEWORK, 9, "t", "f")
    codec = Codec(CHECKPOINT)
    written = json.dumps(codec.encoder(KillRecord | VoidRecord)(record))
    assert written == json.dumps(TWINS.encoder(Ending | Party)(twin))
    assert TWINS.decoder(Ending | Party)(json.loads(written)) == twin
    assert json.loads(written)["kind"] == "KillRecord"


def test_renaming_in_python_changes_no_byte_of_a_store() -> None:
    record = FrameworkRecord(
        FrameworkId("f"),
        "n",
        (Role("r"),),
        2.5,
        True,
        "c",
        3,
        is_unrecorded=True,
        earlier_clients=("b",),
    )
    twin = Party("f", "n", ("r",), 2.5, True, "c", 3, True, ("b",))
    written = json.dumps(Codec(STORE).encoder(FrameworkRecord)(record))
    assert written == json.dumps(TWINS.encoder(Party)(twin))
    assert TWINS.decoder(Party)(json.loads(written)) == twin


@dataclass(frozen=True)
class Small:
    one: int
    two: int = 2


class Colour(Enum):
    RED = 1
    GREEN = 2


@pytest.mark.parametrize(
    ("owner", "names", "why"),
    [
        (Small, "one", "Small.two has no tag"),
        (Small, "one two three=tres", "Small has no three: after a rename write new_name=tres"),
        (Small, "one two=one", "named twice"),
        (Small, "one two two=three", "named twice"),
        (Small, "one two =one", "named twice"),
        (Colour, "RED", "Colour.GREEN has no tag"),
        (Colour, "RED GREEN=RED", "named twice"),
    ],
)
def test_incomplete_or_ambiguous_tags_are_refused(owner: type, names: str, why: str) -> None:
    with pytest.raises(TypeError, match=re.escape(why)):
        Table((Kind("x", owner, names),))
    with pytest.raises(TypeError, match=re.escape(why)):
        recorded("x", names)(owner)


def test_a_kind_that_stands_twice_in_a_table_is_refused() -> None:
    small = Kind("small", Small, "one two")
    for other in (Kind("small", Colour, "RED GREEN"), Kind("tiny", Small, "one two")):
        with pytest.raises(TypeError, match="twice"):
            Table((small, other))


def test_a_class_without_tags_cannot_be_recorded() -> None:
    for hint in (Small, Colour, tuple[Small, ...], Mapping[str, Colour]):
        with pytest.raises(TypeError, match="no tags for"):
            Codec(Table()).encoder(hint)
    with pytest.raises(TypeError, match="not in the table"):
        Codec(Table((Kind("small", Small, "one two"),))).encoder(Small | Ending)


def test_a_retired_tag_is_read_and_ignored() -> None:
    @dataclass(frozen=True)
    class Fewer:
        one: int
        more: tuple[int, ...] = field(default=())

    codec = Codec(Table((Kind("small", Fewer, "one more =two"),)))
    assert codec.decoder(Fewer)({"one": 1, "two": {"any": "thing"}}) == Fewer(1)
    assert codec.encoder(Fewer)(Fewer(1)) == {"one": 1}
    with pytest.raises(Undecodable, match="'three' is unknown"):
        codec.decoder(Fewer)({"one": 1, "three": 3})

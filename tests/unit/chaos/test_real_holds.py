"""The checks of holds, messages and calls of the real chaos suite find each kind of violation."""

from __future__ import annotations

import pytest

from tests.chaos.real.checker import check_tasks
from tests.chaos.real.hold_checks import check_holds, check_listed, check_messages, hold_history
from tests.chaos.real.journal import (
    Answered,
    Asked,
    Begun,
    Entry,
    HoldAnswered,
    HoldAsked,
    HoldOffered,
    KillAsked,
    MessageAsked,
    MessageHeard,
    ReleaseAnswered,
    ReleaseAsked,
    Update,
)
from tests.chaos.real.ledger import parse_ledger
from tests.chaos.real.memory import Memory
from tests.chaos.real.volume_checks import check_volumes
from tests.chaos.real.work import HoldWork, Work

ASKED, MADE = HoldAsked("h", "a1"), HoldAnswered("h", "")
REFUSED, OFFERED = HoldAnswered("h", "it does not fit"), HoldOffered("h")
RELEASE, RELEASED, GONE = ReleaseAsked("h"), ReleaseAnswered("h", ""), ReleaseAnswered("h", "no")


def lasting(hold_id: str) -> HoldWork:
    return HoldWork(hold_id, 1, None, None)


def brief(hold_id: str) -> HoldWork:
    return HoldWork(hold_id, 1, 0.5, None)


@pytest.mark.parametrize(
    ("entries", "listed", "kinds"),
    [
        ([ASKED, MADE], {"h"}, []),
        ([ASKED, MADE], set(), ["hold_lost"]),
        ([ASKED, MADE, RELEASE], set(), []),
        ([ASKED, MADE, RELEASE, RELEASED], {"h"}, ["hold_leak"]),
        ([ASKED, RELEASE, GONE], {"h"}, ["hold_leak"]),
        ([ASKED, REFUSED], {"h"}, ["hold_leak"]),
        ([ASKED], {"h"}, []),
        ([ASKED], set(), []),
        ([], {"h"}, ["hold_unasked"]),
    ],
)
def test_listed_holds_are_those_that_were_made_and_have_not_ended(
    entries: list[Entry], listed: set[str], kinds: list[str]
) -> None:
    journals = {"w": entries}
    found = check_listed(lasting, journals, listed, journals)
    assert [violation.kind for violation in found] == kinds


def test_a_hold_with_a_time_to_live_may_have_ended() -> None:
    journals: dict[str, list[Entry]] = {"w": [ASKED, MADE]}
    assert check_listed(brief, journals, set(), journals) == []


def test_a_hold_is_offered_to_its_framework_only() -> None:
    assert check_holds({"w": [ASKED, MADE, OFFERED, RELEASE, RELEASED]}) == []
    [found] = check_holds({"w": [ASKED, MADE], "v": [OFFERED]})
    assert (found.kind, found.about) == ("hold_of_another", "h")
    for entry in (OFFERED, RELEASED):
        [found] = check_holds({"w": [ASKED, REFUSED, entry]})
        assert found.kind == "hold_unasked"


def test_a_hold_without_a_verdict_is_unsettled_until_it_is_released() -> None:
    assert hold_history([ASKED]).unsettled() == {"h"}
    for end in (MADE, REFUSED, RELEASED, GONE):
        assert not hold_history([ASKED, end]).unsettled()


@pytest.mark.parametrize(
    ("entries", "ran", "kinds"),
    [
        ([MessageAsked("e", 1)], "", []),
        ([MessageAsked("e", 1), MessageHeard("e", 1)], "heard e 1", []),
        ([MessageAsked("e", 1)], "heard e 1\nheard e 1", ["message_twice"]),
        ([MessageAsked("e", 1), *2 * [MessageHeard("e", 1)]], "heard e 1", ["message_twice"]),
        ([MessageAsked("d", 1)], "heard e 1", ["message_unasked"]),
        ([MessageHeard("e", 1)], "", ["message_unasked"]),
    ],
)
def test_a_message_arrives_at_most_once(entries: list[Entry], ran: str, kinds: list[str]) -> None:
    found = check_messages({"w": entries}, parse_ledger(ran))
    assert [violation.kind for violation in found] == kinds


def works(task_id: str) -> Work:
    if task_id == "e":
        return Work(task_id, 1.0, 7)
    return Work(task_id, 0.1, 0 if task_id == "ok" else 5, executor="e")


def update(task_id: str, state: str, reason: str = "NONE", message: str = "") -> Update:
    code = 7 if task_id == "e" else None
    return Update(task_id, "a1", state, 1, reason, code, None, 1, message, handled=True)


EXITED = update("e", "FAILED", "COMMAND_EXECUTOR_FAILED")
RAN = "start e 1\nend e\n"


@pytest.mark.parametrize(
    ("task_id", "end", "ran"),
    [
        ("ok", update("ok", "FINISHED", message="0"), "start ok 1\nend ok"),
        ("bad", update("bad", "FAILED", message="5"), "start bad 1\nend bad"),
        ("ok", update("ok", "FAILED", "EXECUTOR_TERMINATED"), "start ok 1"),
        ("ok", update("ok", "FAILED", "EXECUTOR_TERMINATED"), "start ok 1\nend ok"),
        ("ok", update("ok", "DROPPED", "EXECUTOR_TERMINATED"), ""),
    ],
)
def test_the_true_end_of_a_call_is_clean(task_id: str, end: Update, ran: str) -> None:
    assert ends(task_id, [end, EXITED], ran) == []


@pytest.mark.parametrize(
    ("task_id", "entries", "ran"),
    [
        ("ok", [update("ok", "FAILED", message="5"), EXITED], "start ok 1\nend ok"),
        ("bad", [update("bad", "FAILED", message="4"), EXITED], "start bad 1\nend bad"),
        ("ok", [update("ok", "FINISHED", message="0"), EXITED], "start ok 1"),
        ("ok", [update("ok", "DROPPED", "EXECUTOR_TERMINATED"), EXITED], "start ok 1"),
        ("ok", [update("ok", "GONE", "EXECUTOR_TERMINATED"), EXITED], "start ok 1"),
        ("ok", [update("ok", "KILLED", "KILLED_BY_FRAMEWORK"), EXITED], "start ok 1"),
    ],
)
def test_a_false_end_of_a_call_is_found(task_id: str, entries: list[Entry], ran: str) -> None:
    assert ends(task_id, entries, ran) == ["wrong_end"]


def test_a_call_ends_with_its_executor_only() -> None:
    alone = update("ok", "FAILED", "EXECUTOR_TERMINATED")
    assert ends("ok", [alone], "start ok 1") == ["lost", "wrong_end"]
    killed = update("ok", "KILLED", "KILLED_BY_FRAMEWORK")
    assert ends("ok", [KillAsked("e"), killed, EXITED], "start ok 1") == []


def ends(task_id: str, entries: list[Entry], ran: str) -> list[str]:
    asked: list[Entry] = [Begun(1), Asked(("e", task_id))]
    launched = [*asked, Answered("e", "", 0.0), Answered(task_id, "", 0.0), *entries]
    return [found.kind for found in check_tasks(works, {"w": launched}, parse_ledger(RAN + ran))]


def test_a_framework_that_restarts_knows_its_executors_and_holds() -> None:
    running = Update("w-executor-3", "a1", "RUNNING", 2, "NONE", None, None, 1, "", handled=True)
    first, second = HoldAsked("w-hold-4", "a1"), HoldAsked("w-volume-5", "a1")
    entries: list[Entry] = [
        Asked(("w-executor-3",)), running, first, HoldAnswered("w-hold-4", ""), second,
        HoldAnswered("w-volume-5", ""), HoldAsked("w-hold-6", "a1"),
        MessageAsked("w-executor-3", 6),
    ]  # fmt: skip
    memory = Memory(entries)
    assert memory.executors == {"w-executor-3": "a1"}
    assert list(memory.holds) == ["w-hold-4", "w-volume-5"]
    assert memory.unsettled_holds == {"w-hold-6": "a1"}
    assert memory.volumes == {"w-volume-5": "a1"}
    assert (memory.last, memory.last_hold, memory.last_message) == (3, 6, 6)
    memory.take(ReleaseAsked("w-volume-5"))
    assert memory.volumes == {}


def use(task_id: str) -> Work:
    """Return a task of the framework `w1` that uses a volume; `evil` tries to use another."""
    return Work(task_id, 0.1, 0, volume="w2-volume-1" if task_id == "evil" else "w1-volume-1")


def files(entries: list[Entry], ran: str, excused: tuple[str, ...] = ()) -> list[str]:
    found = check_volumes(use, {"w1": entries}, parse_ledger(ran.replace("; ", "\n")), excused)
    return [violation.kind for violation in found]


def test_a_task_finds_what_earlier_ones_wrote_into_its_volume() -> None:
    asked: list[Entry] = [Asked(("a", "b"))]
    assert files(asked, "start a 1; saw a a,; start b 2; saw b a,b,") == []
    # At the same time.
    assert files(asked, "start a 1; start b 2; saw a a,; saw b b,") == []
    assert files(asked, "start a 1; saw a a,; start b 2; saw b b,") == ["volume_lost"]
    assert files(asked, "start a 1; saw a ") == ["volume_lost"]
    assert files(asked, "start a 1; saw a ", ("a",)) == []
    assert files(asked, "start a 1; saw a a,x,") == ["volume_of_another"]


def test_a_volume_is_of_one_framework() -> None:
    asked: list[Entry] = [Asked(("evil",))]
    assert files([*asked, Answered("evil", "there is no volume", 0.0)], "") == []
    assert files([*asked, Answered("evil", "", 0.0)], "") == ["volume_of_another"]
    assert files(asked, "start evil 1") == ["volume_of_another"]

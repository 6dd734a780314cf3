"""The checks of gangs, requeues, devices, reservations and usage find each kind of violation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from tests.chaos.real.checker import check_tasks
from tests.chaos.real.journal import Answered, Asked, Begun, Entry, Update
from tests.chaos.real.ledger import parse_ledger
from tests.chaos.real.minute_checks import check_minutes
from tests.chaos.real.mutants import MUTANTS
from tests.chaos.real.reservation_keeper import check_reserved
from tests.chaos.real.usage_checks import UsageWitness, Used, Witnessed, check_used
from tests.chaos.real.work import ENDLESS_S, Work, work_named

FAILS = Work("g-1", 1.0, 6, gang="g-1", rank=0, size=2)
WAITS = Work("g-2", ENDLESS_S, 0, gang="g-1", rank=1, size=2)
AGAIN, HALF = Work("w-again-1", 1.0, 0), Work("w-device-1", 1.0, 0, gpus=0.5)
OTHER = Work("w-device-2", 1.0, 0, gpus=0.75)
WORKS = {work.task_id: work for work in (FAILS, WAITS, AGAIN, HALF, OTHER)}
GANG = "told g-1 0 2 a1,a2 - -;told g-2 1 2 a1,a2 - -"


def end(task_id: str, time_s: float, state: str = "KILLED", code: int | None = None) -> Update:
    return Update(task_id, "a1", state, 2, "NONE", code, None, 1, "", True, time_s=time_s)


def found(ran: str, *entries: Entry) -> list[str]:
    ledger = parse_ledger(ran.replace(";", "\n"))
    asked = Asked(("g-1", "g-2"))
    journals = {"w": [Begun(1), asked, Answered("g-1", "", 0), Answered("g-2", "", 0), *entries]}
    return [violation.kind for violation in check_minutes(WORKS.__getitem__, journals, ledger)]


@pytest.mark.parametrize(
    ("ran", "entries", "kinds"),
    [
        (f"{GANG};began g-1 5;began g-2 5;done g-1 6;stopped g-2 7", [], []),
        (f"{GANG};began g-1 5;began g-2 5;done g-1 6;stopped g-2 60", [], ["gang_half"]),
        (f"{GANG};began g-1 5;began g-2 5;done g-1 6", [end("g-2", 60)], ["gang_half"]),
        (f"{GANG};began g-1 5;began g-2 5;done g-1 6", [end("g-2", 8)], []),
        (f"{GANG};began g-2 5", [end("g-2", 60)], ["gang_half"]),
        (f"{GANG};began g-2 5", [end("g-2", 8)], []),
        (f"{GANG};start g-1 7;start g-1 8", [], ["ran_twice"]),
        ("told g-1 1 2 a1,a2 - -", [], ["gang_rank"]),
        ("told g-1 0 3 a1,a2 - -", [], ["gang_rank"]),
        ("told g-1 0 2 a1,a2 - -;told g-2 1 2 a1,a3 - -", [], ["gang_rank"]),
    ],
)
def test_a_gang_that_runs_in_part_is_found(
    ran: str, entries: list[Entry], kinds: list[str]
) -> None:
    assert found(ran, *entries) == kinds


def test_a_gang_that_was_accepted_in_part_is_found() -> None:
    asked = Asked(("g-1", "g-2"))
    entries: list[Entry] = [Begun(1), asked, Answered("g-1", "", 0), Answered("g-2", "no", 0)]
    broken = check_minutes(WORKS.__getitem__, {"w": entries}, parse_ledger(""))
    assert [violation.kind for violation in broken] == ["gang_in_part"]


@pytest.mark.parametrize(
    ("ran", "kinds"),
    [
        ("start {0} 7;saved {0} 1;stopped {0} 2;start {0} 8", []),
        ("start {0} 7;start {0} 8", ["ran_twice"]),
        ("start {0} 7;saved {0} 1;start {0} 8;twice {0} 1", ["ran_twice"]),
        ("start {0} 7;stopped {0} 2", ["not_saved"]),
    ],
)
def test_further_runs_follow_the_signal_to_save(ran: str, kinds: list[str]) -> None:
    assert found(ran.format(AGAIN.task_id)) == kinds


def test_the_end_of_a_run_before_is_not_missed() -> None:
    first = Update(AGAIN.task_id, "a1", "STARTING", 1, "NONE", None, None, 1, "", True)
    again, last = replace(first, sequence=5), replace(first, sequence=6, state="FINISHED")
    last = replace(last, exit_code=0)
    begun: list[Entry] = [Begun(1), Asked((AGAIN.task_id,)), Answered(AGAIN.task_id, "", 0)]
    ran = parse_ledger(f"start {AGAIN.task_id} 7\nstart {AGAIN.task_id} 8\nend {AGAIN.task_id}")
    entries = [*begun, first, again, last]
    assert check_tasks(WORKS.__getitem__, {"w": entries}, ran) == []
    # With code 0 its work is done, and it does not run again.
    for code, kinds in ((0, []), (75, ["wrong_end"])):
        end = replace(last, state="KILLED", reason="PREEMPTED", sequence=2, exit_code=code)
        broken = check_tasks(WORKS.__getitem__, {"w": [*begun, first, end]}, ran)
        assert [each.kind for each in broken] == kinds


@pytest.mark.parametrize(
    ("ran", "kinds"),
    [
        ("told {0} - - - g 0.5;began {0} 1;done {0} 3;told {1} - - - g 0.75;began {1} 3;done {1} 4",
         []),
        ("told {0} - - - g 0.5;began {0} 1;done {0} 3;told {1} - - - g 0.75;began {1} 2;done {1} 4",
         ["device_twice"]),
        ("told {0} - - - g 0.5;began {0} 1;done {0} 3;told {1} - - - h 0.75;began {1} 2;done {1} 4",
         []),
        ("told {0} - - - g 0.25", ["device_part"]),
        ("told {0} - - - - -", ["device_part"]),
    ],
)  # fmt: skip
def test_a_part_of_a_device_that_two_tasks_have_is_found(ran: str, kinds: list[str]) -> None:
    assert found(ran.format(HALF.task_id, OTHER.task_id)) == kinds


def view(task_id: str, role: str, hold: str = "") -> pb.TaskView:
    status = task_pb2.TaskStatus(state=task_pb2.TASK_RUNNING)
    task = task_pb2.TaskInfo(task_id=task_id)
    return pb.TaskView(agent_id="A1", role=role, task=task, status=status, hold_id=hold)


def test_what_others_get_of_reserved_agents_is_found() -> None:
    reserved = {"A1": "w1"}
    old = [view("w2-1", "w2")]
    mine = [*old, view("w1-2", "w1"), view("w2-3", "w2", "w2-hold-1"), view("w2-brief-4", "w2")]
    assert list(check_reserved(reserved, old, mine, [])) == []
    (broken,) = check_reserved(reserved, old, [*mine, view("w2-5", "w2")], [])
    assert (broken.kind, broken.about) == ("reserved", "A1")
    offers = [framework_pb2.Offer(agent_id="A1", role=role) for role in ("w1", "w2")]
    offered = [pb.OfferView(offer=offer) for offer in offers]
    assert len(list(check_reserved(reserved, old, old, offered))) == 1


def used(at_s: float, cpus: float, epoch: int = 1, counted_s: float | None = None) -> Used:
    counted = at_s if counted_s is None else counted_s
    return Used(at_s, epoch, counted, {"w": cpus}, 8 * counted)


@pytest.mark.parametrize(
    ("after", "is_true", "is_reached", "number"),
    [
        (used(20, 30), True, True, 0),
        (used(20, 60), True, True, 1),
        (used(20, 2), True, True, 1),
        (used(20, 2), True, False, 0),
        (used(20, 60, epoch=2), True, True, 0),
        (used(20, 30, counted_s=40), True, True, 1),
        (used(20, 30, counted_s=40), False, True, 0),
        (used(20, 30, counted_s=15), True, True, 1),
        (used(20, 200), False, True, 2),
    ],
)
def test_usage_that_is_counted_twice_or_not_at_all_is_found(
    after: Used, is_true: bool, is_reached: bool, number: int
) -> None:
    witnessed = {"w": Witnessed(20, 30)}
    broken = check_used(
        used(10, 2), after, witnessed, began_s=0, is_clock_true=is_true, is_reached=is_reached
    )
    assert [violation.kind for violation in broken] == ["usage"] * number


def test_a_witness_counts_each_task_once() -> None:
    witness = UsageWitness(WORKS.__getitem__)
    entries: list[Entry] = [Asked((AGAIN.task_id,), 1.0)]
    entries.append(end(AGAIN.task_id, 5.0, "FINISHED", 0))
    assert witness.witness(entries) == Witnessed(0.25, 1.0)
    assert witness.witness(entries) == Witnessed(0.0, 0.0)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_function_that_a_mutant_replaces_is_there(name: str) -> None:
    assert hasattr(MUTANTS[name].target, MUTANTS[name].name)


def test_the_members_of_a_gang_follow_from_its_number() -> None:
    members = [work_named(7, f"w1-gang3x5-{number}") for number in (5, 6, 7)]
    assert [(each.rank, each.size, each.gang) for each in members] == [
        (rank, 3, "w1-gang3x5-5") for rank in range(3)
    ]
    # One of them ends all others, or all end by themselves.
    ending = [each for each in members if each.seconds < ENDLESS_S or each.kill_after_s is not None]
    assert len(ending) in (1, 3)

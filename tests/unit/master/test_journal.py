"""The journal: its ring, its readers' positions, what callers may view, and its text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from croupier.master.access.caller import Call, Caller, CredentialKind, begin_call
from croupier.master.allocator import Allocator
from croupier.master.core import facts
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.effects import Happened
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.journal import watch
from croupier.master.journal.journal import (
    OMITTED,
    Journal,
    Preempting,
    TermBegan,
    may_view,
    parse_id,
)
from croupier.master.journal.lines import KINDS, PROBLEM, kind_of, line_of, matching_kinds
from croupier.master.journal.watch import Watch
from croupier.master.services.visibility import Visibility
from croupier.model.errors import InvalidRequest, NotLeader, Unauthenticated, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId, short_id
from croupier.model.principal import ANONYMOUS
from croupier.model.task import Reason, Source, TaskState
from croupier.v1 import operator_pb2 as pb
from tests.harness.eventually import eventually
from tests.harness.secured_world import SecuredWorld, caller, token
from tests.harness.still_clock import StillClock
from tests.harness.world import World, make_task


class FakeTerm:
    """What a reader needs of a term."""

    def __init__(self, state: State, kept: int = 10) -> None:
        self.clock = StillClock(100.0, 1_000)
        self.state = state
        self.driver = self
        self.journal = Journal(state, self.clock, kept)

    def watch(self, name: str = "", **query: Any) -> Watch:
        who = caller(name) if name else ANONYMOUS
        return Watch(self, Caller(who), pb.WatchEventsRequest(**query))  # type: ignore[arg-type]

    async def read(self, name: str = "", **query: Any) -> list[pb.WatchEventsResponse]:
        return [each async for each in self.watch(name, **query).batches()]

    async def numbers(self, name: str = "", **query: Any) -> list[int]:
        return [n for each in await self.read(name, **query) for n in numbers_of(each)]


def numbers_of(batch: pb.WatchEventsResponse) -> list[int]:
    return [parse_id(each.id)[1] for each in batch.events]


def healthy(agent_id: str) -> facts.AgentDrained:
    return facts.AgentDrained(AgentId(agent_id), "host")


def open_term(events: int = 0, kept: int = 10, epoch: int = 3) -> FakeTerm:
    """Return a term whose journal has `events` events after its first one."""
    term = FakeTerm(State(f"c-{epoch}", Settings(), Allocator()), kept)
    for number in range(events):
        term.journal.happened(healthy(f"a{number}"))
    return term


async def test_the_past_comes_in_order_and_ends() -> None:
    term = open_term(3)
    (batch,) = await term.read()
    assert numbers_of(batch) == [1, 2, 3, 4]
    assert (batch.last_id, batch.reset) == ("3-4", "")
    assert [each.kind for each in batch.events] == [
        "term-began",
        *["agent-drained"] * 3,
    ]


async def test_only_the_last_events_are_remembered() -> None:
    term = open_term(25)
    assert await term.numbers() == list(range(17, 27))
    assert await term.numbers(limit=3) == [24, 25, 26]
    assert await term.numbers(limit=2**32 - 1) == list(range(17, 27))


@pytest.mark.parametrize("since", ["", "3-0"])
async def test_a_look_at_many_events_is_counted_for_its_call(since: str) -> None:
    """Also if none of them is wanted: the rate of the caller depends on it."""
    term, call = open_term(2_500, kept=5_000), Call()
    begin_call(call)
    assert await term.numbers(since=since, limit=1, kinds=["task-gone"]) == []
    assert call.read_s > 0


async def test_a_reader_continues_after_its_id() -> None:
    term = open_term(25)
    assert await term.numbers(since="3-20") == [21, 22, 23, 24, 25, 26]
    assert await term.numbers(since="3-20", limit=2) == [21, 22]
    # The event before the first one that is remembered: nothing is missing.
    assert [each.reset for each in await term.read(since="3-16")] == [""]
    (none,) = await term.read(since="3-26")
    assert (list(none.events), none.last_id, none.reset) == ([], "3-26", "")


@pytest.mark.parametrize(
    "since", ["3-15", "3-0", "2-20", "4-1", "3-27", "99999999999999999999-1", "0-0"]
)
async def test_a_reader_is_told_that_events_may_be_missing(since: str) -> None:
    (batch,) = await open_term(25).read(since=since)
    assert batch.reset
    assert numbers_of(batch) == list(range(17, 27))


@pytest.mark.parametrize("since", ["x", "3", "3-", "-1", "3-1-1", "3-٣", "3-" + "9" * 21, "3--1"])
async def test_what_is_no_id_is_refused(since: str) -> None:
    with pytest.raises(InvalidRequest, match="EPOCH-NUMBER"):
        open_term().watch(since=since)


async def test_the_past_of_some_seconds() -> None:
    term = open_term(2)
    term.clock.at += 60
    # The wall clock jumps back; ids and ages go on.
    term.clock.wall = 5
    term.journal.happened(healthy("late"))
    assert await term.numbers(within_ms=30_000) == [4]
    assert await term.numbers(within_ms=0) == [4]
    assert await term.numbers(within_ms=2**64 - 1) == [1, 2, 3, 4]
    assert await term.numbers(within_ms=60_500, limit=2) == [3, 4]


async def test_a_slow_follower_is_told_what_it_missed() -> None:
    term = open_term(1)
    batches = term.watch(follow=True).batches()
    assert len((await anext(batches)).events) == 2
    for number in range(30):
        term.journal.happened(healthy(f"b{number}"))
    batch = await anext(batches)
    assert "slower" in batch.reset
    assert numbers_of(batch) == list(range(23, 33))
    await batches.aclose()


async def test_a_follower_waits_and_ends_with_the_term() -> None:
    term = open_term()
    batches = term.watch(follow=True).batches()
    await anext(batches)
    waiting = asyncio.create_task(anext(batches))
    await eventually(lambda: term.journal._waiting)
    term.journal.happened(healthy("new"))
    assert numbers_of(await waiting) == [2]
    waiting = asyncio.create_task(anext(batches))
    await eventually(lambda: term.journal._waiting)
    term.journal.close(NotLeader("not the leader", "other:1"))
    with pytest.raises(NotLeader):
        await waiting
    assert term.journal._waiting is None


async def test_a_revoked_or_expired_credential_ends_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 0.01)
    world = SecuredWorld("vera client/vera view *")
    kept = world.add_token(token("abcdef12", "vera"))
    term = FakeTerm(world.state)
    query, kind = pb.WatchEventsRequest(follow=True), CredentialKind.TOKEN

    def reader(expires_ms: int | None = None) -> AsyncIterator[pb.WatchEventsResponse]:
        who = Caller(caller("vera"), kind, kept.token_id, expires_ms)
        return Watch(term, who, query).batches()  # type: ignore[arg-type]

    valid, expiring = reader(), reader(term.clock.wall + 1)
    assert (await anext(valid)).events
    assert (await anext(expiring)).events
    term.clock.wall += 1
    with pytest.raises(Unavailable, match="expired"):
        await anext(expiring)
    world.state.tokens.remove(kept.token_id)
    with pytest.raises(Unauthenticated, match="revoked"):
        await anext(valid)


class Scene(SecuredWorld):
    """As in test_visibility: anna and bob have frameworks; vera views all, ada the role ads."""

    def __init__(self) -> None:
        super().__init__(
            "anna client/anna register role:**",
            "bob client/bob register role:web",
            "users client/anna run-as user:(agent)",
            "vera client/vera view *",
            "ada client/ada view role:ads",
            "hugo client/hugo view agent:a1",
            "op client/op operate-agents,view *",
        )
        self.term = FakeTerm(self.state, kept=100)

    def do(self, event: Event, allocate: bool = True) -> list[Any]:
        effects = super().do(event, allocate)
        if hasattr(self, "term"):
            for effect in effects:
                if isinstance(effect, Happened):
                    self.term.journal.happened(effect.fact)
        return effects

    def kinds(self, name: str) -> list[str]:
        visible, journal = Visibility(self.state, caller(name)), self.term.journal
        entries = [journal.entry(number) for number in range(1, journal.last + 1)]
        return [kind_of(each.what) for each in entries if may_view(each, visible)]


def test_a_caller_gets_the_events_that_it_may_view() -> None:
    scene = Scene()
    scene.secured_agent("a1")
    scene.secured_agent("a2")
    anna = scene.owned("anna", "ads/prod")
    assert scene.accept(anna, make_task("t1")).error is None
    scene.owned("bob", "web")
    framework_id = scene.framework_id(anna)
    scene.finish(scene.state.agents[AgentId("a1")].session or 0, framework_id, "t1")  # type: ignore[arg-type]
    scene.ask(OperateAgent(1, "a1", MarkGone(), "me", caller("op")))
    began = ["term-began"]
    agents = ["agent-registered", "agent-disconnected", "agent-gone", "agent-operated"]
    tasks = ["framework-subscribed", "task-placed", "task-running", "task-finished"]
    assert scene.kinds("anna") == scene.kinds("ada") == began + tasks
    assert scene.kinds("bob") == [*began, "framework-subscribed"]
    assert sorted(scene.kinds("hugo")) == sorted(began + agents)
    assert scene.kinds("eve") == began
    assert len(scene.kinds("vera")) == len(began + agents + tasks) + 2


def test_an_event_names_no_role_that_its_viewer_may_not_view() -> None:
    scene = Scene()
    scene.owned("anna", roles=("ads/prod", "web"))
    assert scene.kinds("ada")[-1] == "framework-subscribed"
    text = line_of(scene.term.journal.entry(scene.term.journal.last), 1).text
    assert text.endswith("subscribed in 2 roles")


def test_the_owner_sees_that_its_forgotten_framework_was_removed() -> None:
    scene = Scene()
    anna = scene.owned("anna", "ads/prod", failover_timeout_s=0.0)
    scene.end_session(anna)
    scene.pass_time(1.0)
    assert not scene.state.frameworks
    assert scene.kinds("anna")[-1] == "framework-removed"
    assert scene.kinds("bob") == ["term-began"]


def test_each_fact_has_a_kind_or_is_omitted_and_every_line_is_printable() -> None:
    state = State("c-1", Settings(), Allocator())
    journal = Journal(state, StillClock())
    evil = "\x1b[31m<script>\n" + "é" * 5_000
    names = {"agent_id": AgentId("a"), "framework_id": FrameworkId("f"), "task_id": TaskId("t")}
    values: dict[str, Any] = {
        **names,
        "role": Role("r"),
        "roles": (Role("r"),) * 50,
        "action": "drain",
        "tasks": 1,
        "kept_s": 1.0,
        "back_off_s": 1.0,
        "forced": True,
        "state": TaskState.FAILED,
        "source": Source.AGENT,
        "reason": Reason.MEMORY_LIMIT,
        "kind": "new",
        "why": "disconnected",
        "outcome": "killed",
        "ttl_s": 1.0,
        "change": "began",
        "agents": (AgentId("a"),),
        "missing": 1,
        "percent": 80,
        "used_ppm": 812_345,
    }
    for fact in get_args(facts.Fact):
        if fact is facts.PreemptionBegun or fact in OMITTED:
            continue
        journal.happened(fact(**{name: values.get(name, evil) for name in fact.__slots__}))
    begun = facts.PreemptionBegun(
        FrameworkId("f"), Role("r"), AgentId("a"), evil, ("t",) * 500, ("o",), evil
    )
    journal.happened(begun)
    facts_noted = set(get_args(facts.Fact)) - OMITTED
    assert journal.last == 1 + len(facts_noted)
    for number in range(1, journal.last + 1):
        entry = journal.entry(number)
        line = line_of(entry, 1)
        assert line.text.isprintable()
        assert len(line.text) < 3_000
        assert line.kind in KINDS
        assert isinstance(entry.what, TermBegan | Preempting) or type(entry.what) in facts_noted
    for state_of in TaskState:
        moved = facts.TaskMoved(
            FrameworkId("f"), TaskId("t"), AgentId("a"), state_of, Source.MASTER, Reason.NONE, ""
        )
        assert kind_of(moved) in KINDS


def test_names_come_before_ids() -> None:
    world = World()
    framework_id = world.framework_id(world.framework(name="train"))
    agent_id = world.agent_id(world.agent("cpus:1;mem:1GB", "host7"))
    journal = Journal(world.state, StillClock(100.0, 1_000), 10)
    ids = (framework_id, TaskId("sleep-3f9a"), agent_id)
    journal.happened(facts.TaskMoved(*ids, TaskState.STAGING, Source.MASTER, Reason.NONE, ""))
    text = line_of(journal.entry(2), 1).text
    framework, agent = f"train ({short_id(framework_id)})", f"host7 ({short_id(agent_id)})"
    assert text == f"Task sleep-3f9a of {framework} was placed on {agent}"


def test_offers_lapse_in_aggregate() -> None:
    term = open_term()
    for outcome in ("expired", "rescinded", "accepted", "expired"):
        term.journal.happened(
            facts.OfferEnded("o", FrameworkId("f"), outcome, 1.0, "")  # type: ignore[arg-type]
        )
    assert term.journal.last == 1
    term.clock.at += 2
    term.journal.happened(
        facts.OfferEnded("o", FrameworkId("f"), "expired", 1.0, "")  # type: ignore[arg-type]
    )
    line = line_of(term.journal.entry(2), 3)
    assert line.text == "Framework f: 1 offer rescinded, 3 offers expired"


def test_kinds_are_chosen_by_word_or_first_part() -> None:
    assert matching_kinds([]) is None
    assert set(matching_kinds(["task-failed", "role"]) or ()) == {"task-failed", "role-changed"}
    assert len(matching_kinds(["task"]) or ()) > 8
    problems = matching_kinds(["problem"]) or frozenset()
    assert {"task-failed", "task-lost", "agent-unreachable", "preemption-begun"} <= problems
    assert not problems & {"task-finished", "task-running", "agent-registered", "term-began"}
    assert problems <= set(KINDS)
    for wrong in ("", "tas", "\x1b", "task-", "TASK"):
        with pytest.raises(InvalidRequest, match="no kind of event"):
            matching_kinds([wrong])


def test_the_documentation_names_each_kind() -> None:
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text()
    rows = page.partition("| Kind | Meaning |")[2].splitlines()
    named = [kind for row in rows[2:] for kind in row.split("|")[1].strip().split(", ")]
    assert sorted(named) == sorted(KINDS)


def test_the_page_knows_each_kind() -> None:
    module = files("croupier.master") / "web/static/js/parts/events.js"
    lists = re.findall(r"export const ([A-Z]+) = \[(.*?)\];", module.read_text(), re.DOTALL)
    known = {name: re.findall(r'"([a-z-]+)"', text) for name, text in lists}
    assert known == {"KINDS": list(KINDS), "PROBLEMS": sorted(matching_kinds([PROBLEM]) or ())}

"""Messages about why tasks wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from croupier.apps.controller import waiting
from croupier.apps.controller.outcomes import Outcome, is_blameless, outcome_of, state_text
from croupier.apps.controller.waiting import WaitReason, WaitWatch, wait_reason_of
from croupier.cli.flags import Target
from croupier.model.errors import Unavailable
from croupier.model.task import TERMINAL, Reason, TaskState, TaskStatus
from croupier.net.address import Address
from croupier.v1 import operator_pb2 as pb
from tests.harness.app_engine import status_of

TARGET = Target((Address("127.0.0.1", 9),))


class Watched:
    """A watch of a framework that waits, whose master gives reasons from a list."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *reasons: str, what: str = "waits") -> None:
        self.framework = SimpleNamespace(framework_id="f", moved_at=0.0, waiting=lambda: what)
        self.told: list[str] = []
        self._reasons = list(reasons)
        self._all_asked = asyncio.Event()
        framework: Any = self.framework
        self.watch = WaitWatch(framework, TARGET, self.told.append, 0.0)
        monkeypatch.setattr(waiting, "_LOOK_S", 0.0)
        monkeypatch.setattr(waiting, "_PRESENCE_S", 0.0)
        monkeypatch.setattr(waiting, "find_reason", self._find)
        monkeypatch.setattr(waiting, "connected", self._connected)

    async def run(self, **how: Any) -> list[str]:
        """Return what is told until all reasons are."""
        watching = asyncio.create_task(self.watch.run(**how))
        async with asyncio.timeout(30):
            await self._all_asked.wait()
        watching.cancel()
        await asyncio.wait({watching})
        return self.told

    def _next(self) -> str:
        if not self._reasons:
            self._all_asked.set()
            return "last"
        return self._reasons.pop(0)

    async def _find(self, _target: object, framework_id: str, _missing: object) -> WaitReason:
        assert framework_id == "f"
        kind = self._next()
        if kind == "last":
            await asyncio.Event().wait()
        return WaitReason(kind, f"for {kind}")

    @asynccontextmanager
    async def _connected(self, _: Target) -> AsyncIterator[None]:
        kind = self._next()
        if kind == "last":
            await asyncio.Event().wait()
        if kind == "absent":
            raise Unavailable("no master")
        yield


async def test_a_reason_is_told_once_and_the_advice_with_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, "cpus", "cpus", "mem", "cpus")
    assert await watched.run(advice=" (advice)") == [
        "waits: for cpus (advice)",
        "waits: for mem",
        "waits: for cpus",
    ]


@pytest.mark.parametrize("what", ["waits (for cpus)", "waits (for cpus each)"])
async def test_resources_that_the_reason_names_are_told_once(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert await Watched(monkeypatch, "cpus", "mem", what=what).run() == [
        "waits: for cpus",
        f"{what}: for mem",
    ]


def test_demand_that_fits_nowhere_is_told_without_the_number_of_agents() -> None:
    detail = "needs cpus:8, which fits nowhere: agent a, the largest, has only cpus:4"
    passed = [
        pb.PassedOver(cause="does not fit", agents=2, detail=detail),
        pb.PassedOver(cause="does not fit", agents=1, detail="free cpus:0.5"),
    ]
    assert wait_reason_of(passed).text == f"{detail}; does not fit on 1 agent (free cpus:0.5)"


@pytest.mark.parametrize("tells_soon", [True, False])
async def test_an_offer_that_should_come_soon_is_told_if_wanted(
    monkeypatch: pytest.MonkeyPatch, *, tells_soon: bool
) -> None:
    told = await Watched(monkeypatch, "none", "mem").run(tells_soon=tells_soon)
    assert told == ["waits: for none"] * tells_soon + ["waits: for mem"]


async def test_a_master_that_is_absent_is_told_once_while_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, "absent", "absent", "present", "absent", what="")
    text = "no master; waiting for a master; running tasks continue"
    assert await watched.run(checks_master=True) == [text, text]


# The table from the end of a task to what it means.


def test_every_end_is_in_the_table_and_nothing_else() -> None:
    ended = {state for state in TaskState if outcome_of(status_of(state)) is not None}
    assert ended == TERMINAL | {TaskState.UNKNOWN}


@pytest.mark.parametrize(
    ("update", "outcome"),
    [
        (status_of(TaskState.UNKNOWN, decided_in_s=3.0), None),
        (status_of(TaskState.UNKNOWN), Outcome.LOST),
        (status_of(TaskState.FINISHED), Outcome.SUCCEEDED),
        (status_of(TaskState.FAILED), Outcome.FAILED),
        (status_of(TaskState.ERROR), Outcome.REFUSED),
        (status_of(TaskState.DROPPED), Outcome.NEVER_RAN),
        (status_of(TaskState.DROPPED, reason=Reason.TASK_INVALID), Outcome.REFUSED),
        (status_of(TaskState.GONE), Outcome.LOST),
        (status_of(TaskState.KILLED, reason=Reason.PREEMPTED, signal=15), Outcome.FAILED),
        (status_of(TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK), Outcome.STOPPED),
        # The program says that its work is done, although it was killed.
        (status_of(TaskState.KILLED, reason=Reason.PREEMPTED, exit_code=0), Outcome.SUCCEEDED),
        (
            status_of(TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK, exit_code=0),
            Outcome.SUCCEEDED,
        ),
        # A limit is no request to end.
        (status_of(TaskState.FAILED, reason=Reason.TIMED_OUT, exit_code=0), Outcome.FAILED),
    ],
)
def test_what_an_end_means(update: TaskStatus, outcome: Outcome | None) -> None:
    assert outcome_of(update) is outcome


def test_a_task_that_the_cluster_never_had_has_not_run() -> None:
    assert outcome_of(status_of(TaskState.UNKNOWN), was_accepted=False) is Outcome.NEVER_RAN


def test_who_is_to_blame() -> None:
    assert is_blameless(status_of(TaskState.LOST))
    assert is_blameless(status_of(TaskState.KILLED, reason=Reason.AGENT_DRAINING))
    assert not is_blameless(status_of(TaskState.FAILED, exit_code=1))
    assert not is_blameless(status_of(TaskState.FAILED, reason=Reason.MEMORY_LIMIT))


def test_a_state_has_its_reason_and_message() -> None:
    update = status_of(TaskState.KILLED, reason=Reason.KILLED_BY_OPERATOR, message="by hand")
    assert state_text(update) == "KILLED (KILLED_BY_OPERATOR): by hand"
    assert state_text(status_of(TaskState.GONE_BY_OPERATOR, reason=Reason.GONE_BY_OPERATOR)) == (
        "GONE_BY_OPERATOR"
    )

"""Mutants: deliberate bugs, one of each kind that the chaos suite exists to find.

A mutant replaces one function or one flag while a world runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from croupier.agent.core import on_life
from croupier.agent.core import on_task as agent_on_task
from croupier.agent.core.effects import Checkpoint, Forget, Spawn
from croupier.agent.core.events import Exited, Now, Vanished
from croupier.agent.core.pending_updates import PendingUpdates
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import ResendDeadline
from croupier.agent.reactor import Reactor
from croupier.master.core import (
    frameworks,
    on_agent,
    on_call,
    on_sync,
    on_task,
    on_time,
    state_recovery,
)
from croupier.master.core.effects import Effect, Step
from croupier.master.core.frameworks import Framework
from croupier.master.core.records import ForgetTask, Record, Registry, TaskRecord
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskHold
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import AgentId
from croupier.model.task import Reason, TaskState
from croupier.sdk.core.calls import CallLedger
from croupier.sdk.core.updates import UpdateBook, UpdateDecision
from tests.chaos.virtual import master
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.master import MasterProcess
from tests.chaos.virtual.registry import SharedRegistry
from tests.harness import invariants


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate bug.

    Attributes:
        what: a description.
        patches: the targets, names and replacements.
        kinds: kinds of faults that find it soon; none: many kinds do.
    """

    what: str
    patches: tuple[tuple[Any, str, Any], ...]
    kinds: tuple[str, ...] = ()

    def applied(self) -> AbstractContextManager[object]:
        """Return a context in which the bug is present."""
        stack = ExitStack()
        for target, name, broken in self.patches:
            stack.enter_context(patch.object(target, name, broken))
        return stack


def _nothing(*_: object) -> Iterator[Effect]:
    yield from ()


# The agent.


def _forgets_unacknowledged(state: AgentState, event: Exited, now: Now) -> Iterator[Any]:
    yield from _ON_EXITED(state, event, now)
    task = state.tasks.get(event.key)
    if task is not None and not task.is_live:
        state.deadlines.cancel(ResendDeadline(event.key))
        del state.tasks[event.key]
        yield Forget(event.key)


def _launches_again(state: AgentState, order: LaunchTask, now: Now) -> Iterator[Any]:
    key = (order.framework_id, order.task.task_id)
    if state.is_live(key):
        state.runs += 1
        yield Spawn(key, f"{state.life}-{state.runs}")
    yield from _ON_LAUNCH(state, order, now)


def _spawns_always(self: Reactor, spawn: Spawn) -> None:
    self._machine.launch(self.state, spawn)


def _adopts_nothing(self: AgentProcess, key: Any, run: str) -> Vanished:
    return Vanished(key, "the agent did not look", never_started=False)


def _sends_nothing(self: AgentProcess, *_: object) -> None:
    """Drop the message."""


def _starts_anew(self: AgentProcess, key: Any, run: str) -> Vanished:
    return Vanished(key, "the agent did not look", never_started=True)


def _invents_exit(self: AgentProcess, key: Any, run: str) -> Any:
    known = self.machine.runs.get(run)
    if known is not None and not known.lives and not known.vanished:
        return Exited(key, 0)
    return _ADOPT(self, key, run)


def _acknowledges_all(self: PendingUpdates, sequence: int) -> int:
    number = len(self.waiting) if self.waiting and self.waiting[0].sequence <= sequence else 0
    if number:
        self.waiting.clear()
    return number


_ON_EXITED, _ON_LAUNCH = agent_on_task.on_exited, agent_on_task.on_launch
_ADOPT = AgentProcess.adopt

# The master.


def _releases_twice(self: State, task: Task) -> None:
    was_active = task.is_active
    _RELEASE(self, task)
    if was_active:
        amount = task.info.resources
        self.allocator.charges.release(task.framework_id, task.role, task.agent_id, amount)


def _charges_none(state: State) -> None:
    pass


def _charges_late(self: State, agent_id: AgentId, tasks: Iterable[Task]) -> None:
    listed = list(tasks)
    for task in listed:
        _hold_nothing(task)
    _CHARGE(self, agent_id, listed)


def _releases_late(self: State, task: Task) -> None:
    _hold_nothing(task)
    _RELEASE(self, task)


def _hold_nothing(task: Task) -> None:
    if task.is_absent:
        task.hold_as(TaskHold.RELEASED)


def _same_id(self: State, kind: str) -> str:
    return f"{self.master_id}-{kind}1"


def _recalls_no_kill(state: State, entry: TaskRecord, now: float) -> None:
    _RECALL(state, replace(entry, kill=None), now)


def _recalls_no_answers(state: State, entry: TaskRecord, now: float) -> None:
    _RECALL(state, entry, now)
    state.frameworks[entry.framework_id].accepted.clear()


def _recalls_no_ends(state: State, entry: TaskRecord, now: float) -> None:
    _RECALL(state, replace(entry, master_status=None), now)


def _forgets_nothing(self: Registry, record: Record) -> None:
    if not isinstance(record, ForgetTask):
        _APPLY(self, record)


def _forgets_verdicts(self: Framework, seq: int) -> list[Any]:
    self.verdicts.clear()
    return _SEEN(self, seq)


def _gone_when_silent(state: State, task: Task, new: TaskState, *rest: Any) -> Iterator[Effect]:
    if new is TaskState.UNREACHABLE:
        yield from on_task.end(state, task, TaskState.GONE, Reason.AGENT_REMOVED, "", 0.0)
    else:
        yield from on_task.set_status(state, task, new, *rest)


def _ends_what_is_missing(
    state: State, task: Task, incomplete: bool, now: float
) -> Iterator[Effect]:
    yield from _ON_MISSING(state, task, True, now)


def _launches_all(state: State, agent: Any, event: Any, now: float) -> Iterator[Step]:
    yield from _SYNC(state, agent, replace(event, tasks=()), now)


def _recovers_withheld(registry: Registry, *rest: Any) -> State:
    agents = {
        agent_id: replace(record, drain=None, deactivated=False)
        for agent_id, record in registry.agents.items()
    }
    return _RECOVERED(replace(registry, agents=agents), *rest)


def _recovers_gone(registry: Registry, *rest: Any) -> State:
    agents = {id_: record for id_, record in registry.agents.items() if not record.gone}
    return _RECOVERED(replace(registry, agents=agents), *rest)


def _never(*_: object) -> bool:
    return False


def _as_it_is(status: Any) -> Any:
    return status


_RECOVERED, _RECALL = state_recovery.recover_state, state_recovery.recover_task
_CHARGE, _RELEASE = State.charge_tasks, State.release_task
_APPLY, _SEEN = Registry.apply, Framework.mark_verdicts_seen
_ON_MISSING, _SYNC = on_sync._on_missing, on_sync.sync

# The SDK.


def _shows_again(self: UpdateBook, status: Any) -> UpdateDecision:
    decided = _DECIDE(self, status)
    return UpdateDecision.SHOW if decided is UpdateDecision.ACKNOWLEDGE else decided


def _carries_nothing(self: CallLedger[Any], stream: int) -> list[Any]:
    return []


_DECIDE = UpdateBook.decide


def _lazily(record: Any, lazy: bool = False) -> Checkpoint:
    return Checkpoint(record, lazy=True)


Patches = tuple[tuple[Any, str, Any], ...]


def _one(target: Any, name: str, broken: Any) -> Patches:
    return ((target, name, broken),)


_BROKEN: dict[str, tuple[str, Patches]] = {
    "store: no fsync": (
        "a crash loses the last commit of the registry",
        _one(SharedRegistry, "forgets_last", True),
    ),
    "store: no fence": (
        "the registry accepts commits of deposed leaders",
        _one(SharedRegistry, "is_fencing", False),
    ),
    "store: no commit number": (
        "all commits have one number, so that an older copy passes for the newest",
        _one(SharedRegistry, "is_numbering", False),
    ),
    "store: forgets nothing": (
        "records of ended tasks stay for ever",
        _one(Registry, "apply", _forgets_nothing),
    ),
    "master: performs before durable": (
        "a batch is performed before its records are committed",
        _one(MasterProcess, "commits_first", False),
    ),
    "master: acks before durable": (
        "acknowledgements are sent before the ledger has forgotten the task",
        _one(MasterProcess, "acknowledges_first", True),
    ),
    "master: drops acks": (
        "acknowledgements are not forwarded to agents",
        ((on_call, "acknowledge", _nothing), (on_task, "acknowledge", _nothing)),
    ),
    "master: an id twice": ("ids are reused", _one(State, "next_id", _same_id)),
    "master: frees twice": (
        "the resources of an ended task are released twice",
        _one(State, "release_task", _releases_twice),
    ),
    "master: undecided not charged": (
        "tasks whose agents have not returned are not charged",
        (
            (state_recovery, "charge_absent", _charges_none),
            (invariants, "check_absent", _charges_none),
            (State, "charge_tasks", _charges_late),
            (State, "release_task", _releases_late),
        ),
    ),
    "master: kill lost in failover": (
        "a successor does not know requested kills",
        _one(state_recovery, "recover_task", _recalls_no_kill),
    ),
    "master: answers lost in failover": (
        "a successor does not know accepted ACCEPTs",
        _one(state_recovery, "recover_task", _recalls_no_answers),
    ),
    "master: ends lost in failover": (
        "a successor does not know the terminal updates that it must send",
        _one(state_recovery, "recover_task", _recalls_no_ends),
    ),
    "master: forgets verdicts": (
        "verdicts that may not have arrived are forgotten",
        _one(Framework, "mark_verdicts_seen", _forgets_verdicts),
    ),
    "master: sends ends once": (
        "terminal updates of the master's own are not sent again",
        (
            (on_task, "resend_terminal_updates", _nothing),
            (on_time, "resend_terminal_updates", _nothing),
        ),
    ),
    "master: kill not repeated": (
        "requested kills are not sent to a returning agent",
        _one(on_sync, "order_kill", _nothing),
    ),
    "master: silent is gone": (
        "tasks of a silent agent are reported as ended",
        _one(on_agent, "set_status", _gone_when_silent),
    ),
    "master: never launches again": (
        "tasks that a returning agent does not list are given up",
        _one(on_sync, "_on_missing", _ends_what_is_missing),
    ),
    "master: ignores what is listed": (
        "the tasks that a returning agent lists are ignored",
        _one(on_agent, "sync", _launches_all),
    ),
    "master: gone lost in failover": (
        "a successor does not know agents that were declared gone",
        _one(master, "recover_state", _recovers_gone),
    ),
    "master: drain lost in failover": (
        "a successor does not know withheld agents",
        _one(master, "recover_state", _recovers_withheld),
    ),
    "master: sends out of order": (
        "an update is forwarded before earlier ones",
        _one(on_task, "_is_early", _never),
    ),
    "master: ends wait for others": (
        "a terminal update on behalf of a lost agent keeps the agent's sequence number",
        _one(on_task, "as_master_update", _as_it_is),
    ),
    "agent: has no name of its own": (
        "the master assigns the agent's id in a message that may be lost",
        _one(on_life, "choose_agent_id", _nothing),
    ),
    "agent: a number twice": (
        "after lost records, sequence numbers of lost updates are reused",
        _one(on_life, "_skip_lost_numbers", _nothing),
    ),
    "master: an old run comes back": (
        "an older run of a program takes over from a newer one",
        _one(frameworks, "MAX_EARLIER_CLIENTS", -1),
    ),
    "agent: does not see reboots": (
        "a reboot of the machine is not noticed",
        _one(AgentState, "was_rebooted", False),
    ),
    "agent: no fsync": (
        "a crash loses the last records that were synced",
        _one(AgentProcess, "forgets_last", True),
    ),
    "agent: acts before durable": (
        "effects are performed before their records are synced",
        _one(AgentProcess, "syncs_first", False),
    ),
    "agent: ignores epochs": (
        "orders of deposed masters are performed",
        _one(AgentProcess, "heeds_epochs", False),
    ),
    "agent: forgets before ack": (
        "an ended task is forgotten before its terminal update is acknowledged",
        _one(agent_on_task, "on_exited", _forgets_unacknowledged),
    ),
    "agent: an id twice": (
        "a known task is launched again",
        (
            (agent_on_task, "on_launch", _launches_again),
            (Reactor, "_launch", _spawns_always),
        ),
    ),
    "agent: adopts nothing": (
        "processes of an earlier run of the agent are believed gone",
        _one(AgentProcess, "adopt", _adopts_nothing),
    ),
    "agent: strays ignored": (
        "processes without a record do not keep an agent from starting",
        _one(AgentProcess, "finds_orphans", False),
    ),
    "agent: refuses silently": (
        "launches that an unhealthy agent refuses are not reported",
        (
            (AgentProcess, "send_refusals", _sends_nothing),
            (AgentProcess, "send_health", _sends_nothing),
        ),
    ),
    "agent: starts anew": (
        "tasks of an earlier run of the agent are started again",
        _one(AgentProcess, "adopt", _starts_anew),
    ),
    "agent: invents exits": (
        "an exit while no agent watched is believed successful",
        _one(AgentProcess, "adopt", _invents_exit),
    ),
    "agent: ack covers too much": (
        "an acknowledgement covers later updates too",
        _one(PendingUpdates, "acknowledge", _acknowledges_all),
    ),
    "agent: updates out of order": (
        "updates that are sent again are sent newest first",
        _one(AgentProcess, "is_orderly", False),
    ),
    "sdk: end shown twice": (
        "a handled update is passed to the handler again",
        _one(UpdateBook, "decide", _shows_again),
    ),
    "sdk: calls not sent again": (
        "a new stream does not carry the calls without a verdict",
        _one(CallLedger, "carry", _carries_nothing),
    ),
}

# Mutants that only few kinds of faults find are tested with those.
_KINDS = {
    "store: no commit number": ("old_store",),
    "store: no fence": ("usurp", "cut_registry", "slow_registry", "master_pause"),
    "master: kill lost in failover": ("lost_kill",),
    "master: undecided not charged": ("limited",),
    "master: forgets verdicts": ("snap",),
    "master: sends ends once": ("gone", "stop", "snap", "framework_deaf"),
    "master: answers lost in failover": ("snap", "worst_moment", "master_crash"),
    "master: gone lost in failover": ("gone", "agent_pause", "master_crash"),
    "master: drain lost in failover": ("drain", "deactivate", "master_crash"),
    "master: sends out of order": ("operator_kill", "stop", "reset"),
    "master: kill not repeated": ("lost_kill",),
    "agent: does not see reboots": ("reboot",),
    "master: ends wait for others": ("stop", "gone"),
    "agent: ignores epochs": ("usurp",),
    "master: ends lost in failover": ("stop", "gone", "disk_full", "master_crash"),
    "agent: refuses silently": ("disk_full", "work_dir_gone", "no_spawn"),
    "agent: strays ignored": ("lost_tail",),
    "agent: a number twice": ("damage", "operator_kill"),
    "master: an old run comes back": ("twin", "snap"),
    "agent: has no name of its own": ("snap", "half_reset", "agent_crash"),
}

MUTANTS = {
    name: Mutant(what, patches, _KINDS.get(name, ())) for name, (what, patches) in _BROKEN.items()
}

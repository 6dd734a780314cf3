"""The kind of each event, one word, and its line of text for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from croupier.master.core import facts
from croupier.master.journal import journal
from croupier.model.errors import InvalidRequest
from croupier.model.ids import short_id
from croupier.model.printable import printable
from croupier.model.task import FAILURES, Reason, TaskState
from croupier.v1 import operator_pb2 as pb

_AGENT_LEFT: Final[Mapping[str, tuple[str, str]]] = {
    "suspected": ("agent-suspected", "is silent and is not offered"),
    "disconnected": ("agent-disconnected", "disconnected"),
    "unreachable": ("agent-unreachable", "is unreachable: its tasks are given up"),
    "stopped": ("agent-stopped", "stopped"),
    "gone": ("agent-gone", "was declared gone"),
}
_AGENT_JOINED: Final = {
    "new": "registered for the first time",
    "again": "registered again",
    "returned": "returned",
}
_OPERATED: Final = {
    "drain": "An operator drains agent",
    "deactivate": "An operator withholds agent",
    "reactivate": "An operator ended the drain or deactivation of agent",
    "gone": "An operator declared gone the agent",
}
_FRAMEWORK_JOINED: Final = {
    "new": "subscribed",
    "again": "subscribed again",
    "returned": "returned from an earlier store",
}
_TASKS: Final[Mapping[TaskState, tuple[str, str]]] = {
    TaskState.QUEUED: ("task-queued", "waits for an agent"),
    TaskState.STAGING: ("task-placed", "was placed"),
    TaskState.STARTING: ("task-starting", "is starting"),
    TaskState.RUNNING: ("task-running", "is running"),
    TaskState.KILLING: ("task-killing", "is being killed"),
    TaskState.FINISHED: ("task-finished", "finished"),
    TaskState.FAILED: ("task-failed", "failed"),
    TaskState.KILLED: ("task-killed", "was killed"),
    TaskState.LOST: ("task-lost", "was lost"),
    TaskState.ERROR: ("task-error", "was refused"),
    TaskState.DROPPED: ("task-dropped", "was dropped before it started"),
    TaskState.UNREACHABLE: ("task-unreachable", "is on an unreachable agent"),
    TaskState.GONE: ("task-gone", "is gone with its agent"),
    TaskState.GONE_BY_OPERATOR: ("task-gone", "is gone with its agent"),
    TaskState.UNKNOWN: ("task-unknown", "is unknown to its agent"),
}
_PREEMPTED: Final = {
    "yielded": "ended by itself in time",
    "killed": "was killed",
    "spared": "was spared: its resources are no longer needed",
    "requeued": "has ended, and is queued again",
}
_FIXED: Final[Mapping[type, str]] = {
    journal.TermBegan: "term-began",
    journal.OffersLapsed: "offers-lapsed",
    facts.AgentJoined: "agent-registered",
    facts.AgentOperated: "agent-operated",
    facts.AgentDrained: "agent-drained",
    facts.AgentRefused: "agent-refused",
    facts.TasksUnproven: "agent-tasks-unproven",
    facts.AgentUnhealthy: "agent-unhealthy",
    facts.AgentHealthy: "agent-healthy",
    facts.FrameworkJoined: "framework-subscribed",
    facts.FrameworkTornDown: "framework-torn-down",
    facts.OffersUnanswered: "framework-backed-off",
    facts.HoldMade: "hold-made",
    facts.HoldEnded: "hold-ended",
    facts.ReservationMade: "reservation-made",
    facts.ReservationChanged: "reservation-changed",
    facts.RoleChanged: "role-changed",
    facts.BudgetReached: "budget-reached",
    journal.Preempting: "preemption-begun",
    facts.PreemptionEnded: "preemption-ended",
}
# All kinds of events.
KINDS: Final = tuple(
    sorted(
        {
            *_FIXED.values(),
            *(kind for kind, _ in _AGENT_LEFT.values()),
            *(kind for kind, _ in _TASKS.values()),
            "framework-disconnected",
            "framework-removed",
        }
    )
)

# A word for the kinds that people want to know of: something failed, or is not as it should be.
PROBLEM: Final = "problem"
_PROBLEMS: Final = frozenset(
    {
        *(f"agent-{word}" for word in ("suspected", "disconnected", "unreachable", "gone")),
        *("agent-refused", "agent-tasks-unproven", "agent-unhealthy"),
        *("framework-backed-off", "offers-lapsed"),
        *(_TASKS[state][0] for state in (*FAILURES, TaskState.UNREACHABLE, TaskState.UNKNOWN)),
        *("budget-reached", "preemption-begun"),
    }
)


def kind_of(what: journal.Happening) -> str:
    """Return the kind of an event."""
    if isinstance(what, facts.TaskMoved):
        return _TASKS[what.state][0]
    if isinstance(what, facts.AgentLeft):
        return _AGENT_LEFT[what.why][0]
    if isinstance(what, facts.FrameworkLeft):
        return f"framework-{what.why}"
    return _FIXED[type(what)]


def matching_kinds(names: Iterable[str]) -> frozenset[str] | None:
    """Return the kinds of these names, or with these first parts; None for no names: all.

    `problem` stands for all kinds of failures. Raises InvalidRequest if there is no such kind.
    """
    found: set[str] = set()
    for name in names:
        called = {kind for kind in KINDS if kind == name or kind.startswith(f"{name}-")}
        called |= _PROBLEMS if name == PROBLEM else frozenset()
        if not called:
            raise InvalidRequest(
                f"no kind of event is called {printable(name[:40])!r}; there are {', '.join(KINDS)}"
            )
        found |= called
    return frozenset(found) or None


def line_of(entry: journal.JournalEntry, epoch: int) -> pb.ClusterEvent:
    """Return the event for readers, which share it: do not change it."""
    made = entry.line
    if not isinstance(made, pb.ClusterEvent):
        what: Any = entry.what
        agent_id, framework_id = getattr(what, "agent_id", ""), getattr(what, "framework_id", "")
        agent = _named(agent_id, entry.names.get(agent_id, "") or getattr(what, "hostname", ""))
        name = entry.names.get(framework_id, "") or getattr(what, "name", "")
        framework = _named(framework_id, name)
        made = entry.line = pb.ClusterEvent(
            id=journal.id_text(epoch, entry.number),
            time_ms=entry.wall_ms,
            kind=kind_of(what),
            text=printable(_TEXTS[type(what)](what, agent, framework)),
            agent_id=agent_id,
            framework_id=framework_id,
            task_id=getattr(what, "task_id", ""),
            role=_role(entry),
        )
    return made


def _role(entry: journal.JournalEntry) -> str:
    role = getattr(entry.what, "role", "")
    if isinstance(entry.what, facts.TaskMoved | facts.PreemptionEnded) and len(entry.roles) == 1:
        return entry.roles[0]
    return str(role)


def _quoted(text: str) -> str:
    return text if len(text) <= journal.MOST_QUOTED else f"{text[: journal.MOST_QUOTED - 1]}…"


def _because(text: str) -> str:
    return f": {_quoted(text)}" if text else ""


def _named(own_id: str, name: str) -> str:
    return f"{_quoted(name)} ({short_id(own_id)})" if name else short_id(own_id)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _offers_lapsed(what: journal.OffersLapsed, _agent: str, framework: str) -> str:
    parts = [
        f"{_count(number, 'offer')} {verb}"
        for number, verb in ((what.rescinded, "rescinded"), (what.expired, "expired"))
        if number
    ]
    return f"Framework {framework}: {', '.join(parts)}"


def _agent_joined(what: facts.AgentJoined, agent: str, _framework: str) -> str:
    tasks = f", with {_count(what.tasks, 'task')}" if what.tasks else ""
    return f"Agent {agent} {_AGENT_JOINED[what.kind]}{tasks}"


def _framework_joined(what: facts.FrameworkJoined, _agent: str, framework: str) -> str:
    # A caller who may view one of several roles need not know the others.
    roles = f"role {what.roles[0]}" if len(what.roles) == 1 else _count(len(what.roles), "role")
    return f"Framework {framework} {_FRAMEWORK_JOINED[what.kind]} in {roles}"


def _framework_left(what: facts.FrameworkLeft, _agent: str, framework: str) -> str:
    verb = "disconnected" if what.why == "disconnected" else "was removed"
    return f"Framework {framework} {verb}{_because(what.message)}"


def _torn_down(what: facts.FrameworkTornDown, _agent: str, framework: str) -> str:
    left = f"; {_count(what.tasks, 'task')} are left" if what.tasks else ""
    return f"An operator tore down framework {framework}{left}"


def _task_moved(what: facts.TaskMoved, agent: str, framework: str) -> str:
    place = f" on {agent}" if what.agent_id else ""
    reason = "" if what.reason is Reason.NONE else f" [{what.reason.name}]"
    moved = _TASKS[what.state][1]
    return f"Task {what.task_id} of {framework} {moved}{place}{reason}{_because(what.message)}"


def _owner(what: facts.HoldMade | facts.HoldEnded, framework: str) -> str:
    return f"framework {framework}" if what.framework_id else f"role {what.role}"


def _hold_made(what: facts.HoldMade, agent: str, framework: str) -> str:
    end = "" if what.ttl_s is None else f" for {what.ttl_s:.0f} s"
    owner = _owner(what, framework)
    resources, hold_id = _quoted(what.resources), _quoted(what.hold_id)
    return f"Hold {hold_id} was made for {owner}{end}: {resources} of agent {agent}"


def _hold_ended(what: facts.HoldEnded, agent: str, framework: str) -> str:
    runs = "runs" if what.tasks == 1 else "run"
    left = f"; {_count(what.tasks, 'task')} in it {runs} on" if what.tasks else ""
    owner = _owner(what, framework)
    hold_id, why = _quoted(what.hold_id), _because(what.message)
    return f"Hold {hold_id} for {owner} ended on agent {agent}{why}{left}"


def _reservation_made(what: facts.ReservationMade, _agent: str, _framework: str) -> str:
    agents = _count(len(what.agents), "agent")
    return f"Reservation {_quoted(what.reservation_id)} of {agents} was made for role {what.role}"


def _reservation_changed(what: facts.ReservationChanged, _agent: str, _framework: str) -> str:
    agents = _count(len(what.agents), "agent")
    lacks = f", and lacks {what.missing}" if what.missing else ""
    others = _count(what.tasks, "task") + " of others may run on them"
    change = {
        "announced": f"is announced on {agents}{lacks}",
        "began": f"began on {agents}{lacks}; {others}",
        "agents": f"has {agents} now{lacks}",
        "over": "is over",
        "deleted": "was deleted",
    }[what.change]
    return f"Reservation {_quoted(what.reservation_id)} for role {what.role} {change}"


def _role_changed(what: facts.RoleChanged, _agent: str, _framework: str) -> str:
    forced = " by force" if what.forced else ""
    before, after = _quoted(what.before or "default"), _quoted(what.after or "default")
    return f"An operator changed role {what.role}{forced}: {before} to {after}"


def _preemption_begun(what: journal.Preempting, agent: str, framework: str) -> str:
    lost = [_count(what.tasks, "task")] if what.tasks else []
    lost += [_count(what.offers, "offer")] if what.offers else []
    return (
        f"Preemption on agent {agent} for framework {framework} in role {what.role}:"
        f" {' and '.join(lost) or 'nothing'} for {_quoted(what.room)}{_because(what.message)}"
    )


# Of each event, with its agent and its framework as people know them.
_TEXTS: Final[Mapping[type, Callable[[Any, str, str], str]]] = {
    journal.TermBegan: lambda what, _a, _f: f"Master {what.master_id} began to lead",
    journal.OffersLapsed: _offers_lapsed,
    facts.AgentJoined: _agent_joined,
    facts.AgentLeft: lambda what, agent, _: (
        f"Agent {agent} {_AGENT_LEFT[what.why][1]}{_because(what.message)}"
    ),
    facts.AgentOperated: lambda what, agent, _: (
        f"{_OPERATED.get(what.action, what.action)} {agent}"
    ),
    facts.AgentDrained: lambda _, agent, _f: f"Agent {agent} is drained: no task is left",
    facts.AgentRefused: lambda what, agent, _: f"Agent {agent} was refused{_because(what.message)}",
    facts.TasksUnproven: lambda what, agent, _: (
        f"Agent {agent} was told to end {_count(what.tasks, 'task')} without proof of launch:"
        f" {_quoted(what.first)}"
    ),
    facts.AgentUnhealthy: lambda what, agent, _: (
        f"Agent {agent} cannot launch tasks{_because(what.problems)}"
    ),
    facts.AgentHealthy: lambda _, agent, _f: f"Agent {agent} can launch tasks again",
    facts.FrameworkJoined: _framework_joined,
    facts.FrameworkLeft: _framework_left,
    facts.FrameworkTornDown: _torn_down,
    facts.OffersUnanswered: lambda what, agent, framework: (
        f"Framework {framework} left offers of agent {agent} unanswered for {what.kept_s:.0f} s:"
        f" others come first for {what.back_off_s:.0f} s"
    ),
    facts.TaskMoved: _task_moved,
    facts.HoldMade: _hold_made,
    facts.HoldEnded: _hold_ended,
    facts.ReservationMade: _reservation_made,
    facts.ReservationChanged: _reservation_changed,
    facts.RoleChanged: _role_changed,
    facts.BudgetReached: lambda what, _a, _f: (
        f"Role {what.role} has used {what.used_ppm // 10_000} % of its budget of"
        f" {_quoted(what.budget)}"
    ),
    journal.Preempting: _preemption_begun,
    facts.PreemptionEnded: lambda what, _, framework: (
        f"The preempted task {what.task_id} of {framework} {_PREEMPTED[what.outcome]}"
    ),
}

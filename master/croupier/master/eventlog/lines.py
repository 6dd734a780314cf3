"""The lines of an event log, as values.

    {"head": {...}}                                  the first of each file
    {"role"|"agent"|"framework"|"offer"|"task": {}}  the state; not in the first file of a run
    {"at": S, "event": {...}, "did": [...], "decided": "..."}

`codec` names their fields, and writes and reads them.

The summary of the state begins a file, since older files may be deleted. `summarise` blocks the
master, so it only collects references to values that never change. Another thread turns them into
lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, get_args

from croupier.master.allocator import Rules
from croupier.master.core.events import Read
from croupier.master.core.frameworks import Framework
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.core.tasks import Task
from croupier.model.attributes import Attributes
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.isolation import NO_FEATURES, Features
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings

FORMAT: Final = 2
# Events that are logged: all but queries.
LOGGED: Final = tuple(each for each in get_args(Event) if each is not Read)
# One outcome of an event, in short; see `digest`.
Outcome = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a file.

    Attributes:
        version: the release that wrote the log.
        part: the number of the file in the master's run, from 1.
        at: seconds on the master's monotonic clock, as for events.
        wall_ms: the same moment, in milliseconds since the epoch.
        events: the number of events in earlier files.
        digest: of all decisions in earlier files.
        seed: the seed of the policy.
        roles: settings of roles from the master's flags.
        registry: the records that the master recovered; None in all parts but the first.
    """

    format: int
    version: str
    master_id: str
    part: int
    at: float
    wall_ms: int
    events: int
    digest: str
    settings: Settings
    policy: str
    seed: int
    rules: Rules
    roles: dict[Role, RoleSettings] = field(default_factory=dict)
    registry: Registry | None = None


@dataclass(frozen=True, slots=True)
class KnownRole:
    """The settings of a role."""

    role: Role
    settings: RoleSettings


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """An agent whose resources count in shares."""

    agent_id: AgentId
    hostname: str
    total: Resources
    attributes: Attributes
    features: Features = NO_FEATURES


@dataclass(frozen=True, slots=True)
class KnownFramework:
    """A framework that was not removed; `session` is 0 while it is disconnected."""

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    session: int
    demands: tuple[Demand, ...] = ()
    suppressed: tuple[Role, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownOffer:
    """An outstanding offer."""

    offer_id: OfferId
    framework_id: FrameworkId
    role: Role
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task that has held resources since its launch, or since its agent reported it."""

    framework_id: FrameworkId
    task_id: TaskId
    role: Role
    agent_id: AgentId
    resources: Resources
    since: float


Known = KnownRole | KnownAgent | KnownFramework | KnownOffer | KnownTask


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An event; `digest` is of all decisions including this one, empty if it had no effect."""

    at: float
    event: Event
    outcomes: tuple[Outcome, ...] = ()
    digest: str = ""


Line = Head | Known | LogEntry


def summarise(state: State) -> Callable[[], Iterator[Known]]:
    """Collect the state to list it later. O(agents + frameworks x demands + tasks + offers)."""
    roles = list(state.allocator.queries.roles().items())
    agents = [
        (agent.agent_id, agent.hostname, agent.total, agent.attributes, agent.features)
        for agent in state.agents.values()
        if agent.in_pool
    ]
    frameworks = [
        _framework(state, framework)
        for framework in state.frameworks.values()
        if not framework.is_removed
    ]
    offers = list(state.offers.values())
    tasks = [
        task
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
        if task.is_active
    ]

    def known() -> Iterator[Known]:
        yield from (KnownRole(*each) for each in roles)
        yield from (KnownAgent(*each) for each in agents)
        yield from frameworks
        for offer in offers:
            yield KnownOffer(offer.offer_id, offer.framework_id, offer.role, offer.agent_id)
        yield from map(_task, tasks)

    return known


def _task(task: Task) -> KnownTask:
    """Return the fields of a task that never change, since the task may change meanwhile."""
    info = task.info
    place = (task.framework_id, info.task_id, task.role, task.agent_id)
    return KnownTask(*place, info.resources, task.since)


def _framework(state: State, framework: Framework) -> KnownFramework:
    queries = state.allocator.queries
    return KnownFramework(
        framework.framework_id,
        framework.name,
        framework.roles,
        framework.session or 0,
        queries.demands(framework.framework_id),
        queries.suppressed_roles(framework.framework_id),
    )

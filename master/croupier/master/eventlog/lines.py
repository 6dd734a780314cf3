"""What the lines of an event log hold.

    {"head": {...}}                                  the first of each file
    {"role"|"agent"|"framework"|"offer"|"task": {}}  the state then; not in the first file of a run
    {"at": S, "event": {...}, "did": [...], "decided": "..."}

`codec` writes and reads them; `tags` names their fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, get_args

from croupier.master.allocator import Rules
from croupier.master.core.events import Read
from croupier.master.core.records import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.step import Event
from croupier.model.attributes import Attributes
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings

# 1: before lines had checksums.
FORMAT: Final = 2
# Events that are logged: all but those that only look.
LOGGED: Final = tuple(each for each in get_args(Event) if each is not Read)
# What followed from an event, in short; see `outcome`.
Deed = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """What opens a file.

    Attributes:
        format: of the log.
        version: of the program that wrote it.
        part: which file of the master's run this is, from 1.
        at: seconds on the master's monotonic clock, as for events.
        wall_ms: the same moment, in milliseconds since the epoch.
        events: how many events are in the files before this one.
        decided: the digest of all decisions in those.
        seed: of the policy.
        roles: what the flags set of roles.
        registry: what the master knew from its predecessors; None in all parts but the first.
    """

    format: int
    version: str
    master_id: str
    part: int
    at: float
    wall_ms: int
    events: int
    decided: str
    settings: Settings
    policy: str
    seed: int
    rules: Rules
    roles: dict[Role, RoleSettings] = field(default_factory=dict)
    registry: Registry | None = None


@dataclass(frozen=True, slots=True)
class KnownRole:
    """What is set of a role."""

    role: Role
    settings: RoleSettings


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """An agent whose resources count."""

    agent_id: AgentId
    hostname: str
    total: Resources
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class KnownFramework:
    """A framework that was not removed.

    Attributes:
        session: its stream; 0 while it is not connected.
        suppressed: the roles in which it asked for no offers.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    session: int
    demands: tuple[Demand, ...] = ()
    suppressed: tuple[Role, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownOffer:
    """An offer that stood."""

    offer_id: OfferId
    framework_id: FrameworkId
    role: Role
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task that held resources; `since` is when it was launched or found on its agent."""

    framework_id: FrameworkId
    task_id: TaskId
    role: Role
    agent_id: AgentId
    resources: Resources
    since: float


Known = KnownRole | KnownAgent | KnownFramework | KnownOffer | KnownTask


@dataclass(frozen=True, slots=True)
class Entry:
    """An event.

    Attributes:
        at: seconds on the master's monotonic clock.
        did: what followed from it, in short.
        decided: the digest of all decisions up to and with this one; empty if nothing
            followed from the event.
    """

    at: float
    event: Event
    did: tuple[Deed, ...] = ()
    decided: str = ""


Line = Head | Known | Entry

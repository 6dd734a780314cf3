"""A hold, as the master knows it: resources of one agent that are held for a framework or a role.

Rule: its state changes only along `TRANSITIONS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from croupier.master.core.records import HoldRecord
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, HoldId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.volume import Volume

# Of one framework, and of the roles that operators hold resources for together.
MAX_HOLDS: Final = 1_000
# The rest of a time to live is written again when a sixteenth of it has passed: at most once a
# minute, and at least once an hour. A failover makes a hold live longer by no more than that and
# its own duration.
_PARTS_SAVED: Final = 16
_SAVED_AFTER_S: Final = (60.0, 3600.0)


class HoldState(Enum):
    """Where a hold is charged.

    POOLED: its agent is in the pool, and it is dealt. ABSENT: its agent has yet to return to a new
    master; its owner is charged for the unused part. AWAY: its agent is unreachable, and nobody is
    charged. ENDED: the master forgets it.
    """

    POOLED = "pooled"
    ABSENT = "absent"
    AWAY = "away"
    ENDED = "ended"


TRANSITIONS: Final[dict[HoldState, tuple[HoldState, ...]]] = {
    HoldState.POOLED: (HoldState.AWAY, HoldState.ENDED),
    HoldState.ABSENT: (HoldState.AWAY, HoldState.ENDED),
    HoldState.AWAY: (HoldState.POOLED, HoldState.ABSENT, HoldState.ENDED),
    HoldState.ENDED: (),
}


@dataclass(slots=True)
class Hold:
    """Resources of one agent, for one owner, until they are released or their time is over.

    Attributes:
        framework_id: the framework that it is for; empty if it is for the role.
        made_by: the framework that made it; empty if an operator did.
        client_id: the run of that framework's program.
        seq: the number of the ACCEPT in that run.
        unused: the part that its owner is charged for while it is ABSENT.
        ttl_s: the time that it was given, or had left in the store; None if it has no end.
        volume: whether it is a volume, which is never offered.
        since: when it was made, or found in the store; seconds on the master's clock.
    """

    hold_id: HoldId
    agent_id: AgentId
    role: Role
    framework_id: FrameworkId
    resources: Resources
    state: HoldState = HoldState.AWAY
    made_by: FrameworkId = NO_FRAMEWORK
    client_id: str = ""
    seq: int = 0
    unused: Resources = NOTHING
    ttl_s: float | None = None
    since: float = 0.0
    volume: bool = False

    @property
    def place(self) -> AgentId:
        """The name that the allocator has for it."""
        return place_of(self.agent_id, self.hold_id)

    @property
    def as_volume(self) -> Volume:
        """The volume that it is, if it is one."""
        return Volume(self.hold_id, self.framework_id, "" if self.framework_id else self.role)

    @property
    def owner(self) -> tuple[FrameworkId, Role]:
        """Whom the allocator charges for it."""
        return self.framework_id, self.role

    @property
    def expires_at(self) -> float | None:
        """Seconds on the master's monotonic clock; None if it has no end."""
        return None if self.ttl_s is None else self.since + self.ttl_s

    @property
    def is_pooled(self) -> bool:
        """Whether its agent is in the pool."""
        return self.state is HoldState.POOLED

    @property
    def is_charged(self) -> bool:
        """Whether its owner is charged for it."""
        return self.state in (HoldState.POOLED, HoldState.ABSENT)

    def move(self, state: HoldState) -> None:
        """Change its state along `TRANSITIONS`."""
        assert state in TRANSITIONS[self.state], f"{self.hold_id}: {self.state} to {state}"
        self.state = state

    def record(self, now: float) -> HoldRecord:
        """Return its record, with the rest of its time."""
        left = 0 if self.expires_at is None else max(1, round((self.expires_at - now) * 1000))
        return HoldRecord(
            self.hold_id,
            self.agent_id,
            self.role,
            self.framework_id,
            self.resources,
            left,
            self.made_by,
            self.client_id,
            self.seq,
            self.volume,
        )

    def review_at(self, now: float) -> float | None:
        """Return when it ends or its record is to be written again; None if never."""
        if self.ttl_s is None:
            return None
        least_s, most_s = _SAVED_AFTER_S
        saved_at = now + min(most_s, max(least_s, self.ttl_s / _PARTS_SAVED))
        return min(self.since + self.ttl_s, saved_at)


def place_of(agent_id: AgentId, hold_id: HoldId) -> AgentId:
    """Return the allocator's name for a hold, or for the agent if there is none.

    No id has a slash, so the name differs from every agent's.
    """
    return AgentId(f"{agent_id}/{hold_id}") if hold_id else agent_id

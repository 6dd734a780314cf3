"""All records of a store, by kind and key.

Rule: `_KINDS` has each kind of record, with the class that deletes one: both have its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from croupier.master.core import access_records as access
from croupier.master.core import records as r
from croupier.master.core.usage_records import ForgetUsage, UsageRecord, usage_key
from croupier.model.access import KeyId
from croupier.model.ids import AgentId, FrameworkId, HoldId, ReservationId, Role


@dataclass(slots=True)
class Registry:
    """All records of a store; tasks by `task_key`, sums of usage by `usage_key`."""

    master: r.MasterRecord | None = None
    agents: dict[AgentId, r.AgentRecord] = field(default_factory=dict)
    frameworks: dict[FrameworkId, r.FrameworkRecord] = field(default_factory=dict)
    roles: dict[Role, r.RoleRecord] = field(default_factory=dict)
    tasks: dict[str, r.TaskRecord] = field(default_factory=dict)
    holds: dict[HoldId, r.HoldRecord] = field(default_factory=dict)
    reservations: dict[ReservationId, r.ReservationRecord] = field(default_factory=dict)
    groups: dict[str, access.GroupRecord] = field(default_factory=dict)
    rules: dict[str, access.RuleRecord] = field(default_factory=dict)
    tokens: dict[access.TokenId, access.TokenRecord] = field(default_factory=dict)
    revoked: dict[KeyId, access.RevokedKeyRecord] = field(default_factory=dict)
    usage: dict[str, UsageRecord] = field(default_factory=dict)

    def apply(self, record: r.Record) -> None:
        """Add one record, or delete one; the newest of a kind and key wins."""
        if isinstance(record, r.MasterRecord):
            self.master = record
            return
        kind = _KIND_OF[type(record)]
        kept: dict[str, r.Record] = getattr(self, kind.name)
        if isinstance(record, kind.record):
            kept[kind.key(record)] = record
        else:
            kept.pop(kind.key(record), None)

    def records(self) -> list[r.Record]:
        """Return all records."""
        kept = [record for kind in _KINDS for record in getattr(self, kind.name).values()]
        return kept if self.master is None else [self.master, *kept]


class _Kind(NamedTuple):
    """A kind of records; `name` is the attribute of `Registry` that has them."""

    name: str
    record: type
    forget: type
    key: Callable[[Any], str]


def _task_key(task: r.TaskRecord | r.ForgetTask) -> str:
    return r.task_key(task.framework_id, task.task_id)


_NAME: Final = attrgetter("name")
_KINDS: Final = (
    _Kind("agents", r.AgentRecord, r.ForgetAgent, attrgetter("agent_id")),
    _Kind("frameworks", r.FrameworkRecord, r.ForgetFramework, attrgetter("framework_id")),
    _Kind("roles", r.RoleRecord, r.ForgetRole, attrgetter("role")),
    _Kind("tasks", r.TaskRecord, r.ForgetTask, _task_key),
    _Kind("holds", r.HoldRecord, r.ForgetHold, attrgetter("hold_id")),
    _Kind("reservations", r.ReservationRecord, r.ForgetReservation, attrgetter("reservation_id")),
    _Kind("groups", access.GroupRecord, access.ForgetGroup, _NAME),
    _Kind("rules", access.RuleRecord, access.ForgetRule, _NAME),
    _Kind("tokens", access.TokenRecord, access.ForgetToken, attrgetter("token_id")),
    _Kind("revoked", access.RevokedKeyRecord, access.ForgetRevokedKey, attrgetter("key_id")),
    _Kind("usage", UsageRecord, ForgetUsage, usage_key),
)
_KIND_OF: Final = {cls: kind for kind in _KINDS for cls in (kind.record, kind.forget)}

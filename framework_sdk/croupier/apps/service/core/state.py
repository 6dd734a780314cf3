"""The state of a service and of its latest update, and questions about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from croupier.apps.service.core.instance import Instance, Slot, Stop
from croupier.apps.service.core.rules import Health, Rules, Version


class RolloutState(StrEnum):
    """The states of an update."""

    ROLLING = "rolling"
    ROLLING_BACK = "rolling back"
    DONE = "done"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether the update has ended, successfully or not."""
        return self in (RolloutState.DONE, RolloutState.ROLLED_BACK, RolloutState.FAILED)


@dataclass(slots=True)
class Rollout:
    """The latest update.

    Attributes:
        version: the number of the version that was applied.
        reason: why it failed.
    """

    version: int
    state: RolloutState
    began_at: float
    is_paused: bool = False
    reason: str = ""


_NO_HEALTH = Health()


@dataclass(slots=True)
class Service:
    """Everything that a controller knows about its service.

    Attributes:
        token: makes the ids of tasks differ from those of other states of the same service.
        framework_id: under which the instances run; empty before the first subscription.
        is_superseded: another controller has taken the service over.
        slots: the wanted instances by index, and those that are being removed.
        instances: the tasks that are not known to have ended, by id.
        target: the number of the version that all slots shall run.
        stable: the last version that all slots ran; None before the first.
        previous: the stable version before that.
        hold_until: no launch and no update before this time: the state may be old.
        decided_at: the time of the last decision.
        known_places: when each value of the spread attribute was last offered.
        explored_until: until then no further values are waited for.
        news: lines for people that are not printed yet.
    """

    name: str
    token: str
    rules: Rules
    versions: dict[int, Version]
    target: int
    rollout: Rollout
    role: str = "*"
    framework_id: str = ""
    is_superseded: bool = False
    stable: int | None = None
    previous: int | None = None
    slots: dict[int, Slot] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    next_version: int = 2
    next_task: int = 1
    is_stopping: bool = False
    hold_until: float = 0.0
    decided_at: float = 0.0
    known_places: dict[str, float] = field(default_factory=dict)
    explored_until: float = 0.0
    news: list[str] = field(default_factory=list)
    _by_slot: dict[int, list[Instance]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for instance in self.instances.values():
            self._by_slot.setdefault(instance.slot, []).append(instance)

    def add(self, instance: Instance) -> None:
        """Add a task."""
        self.instances[instance.task_id] = instance
        self._by_slot.setdefault(instance.slot, []).append(instance)

    def remove(self, task_id: str) -> Instance | None:
        """Forget a task; return it, or None if it is not known."""
        instance = self.instances.pop(task_id, None)
        if instance is not None:
            self._by_slot[instance.slot].remove(instance)
        return instance

    @classmethod
    def create(
        cls, name: str, token: str, rules: Rules, version: Version, now: float, role: str = "*"
    ) -> Service:
        """Return a service that was never run."""
        rollout = Rollout(version.number, RolloutState.ROLLING, now)
        return cls(name, token, rules, {version.number: version}, version.number, rollout, role)

    def health_of(self, instance: Instance) -> Health:
        """Return the check of its version; none for an instance of another controller."""
        version = self.versions.get(instance.version)
        return _NO_HEALTH if version is None else version.health

    def members(self, index: int) -> list[Instance]:
        """Return the instances of a slot, oldest first."""
        return list(self._by_slot.get(index, ()))

    def is_available(self, instance: Instance, now: float) -> bool:
        """Return whether an instance serves."""
        return instance.is_available(self.health_of(instance), self.rules.update.settle_s, now)

    def is_up(self, index: int, now: float, version: int | None = None) -> bool:
        """Return whether a slot has an available instance, of `version` if that is given."""
        return any(
            self.is_available(each, now)
            for each in self.members(index)
            if version is None or each.version == version
        )

    def wanted_slots(self) -> list[Slot]:
        """Return the slots that shall have an instance, by index."""
        most = 0 if self.is_stopping else self.rules.instances
        return [self.slots[index] for index in sorted(self.slots) if index < most]

    def unavailable(self, now: float) -> int:
        """Return how many wanted slots have no available instance."""
        return sum(not self.is_up(slot.index, now) for slot in self.wanted_slots())

    def launches_due(self, now: float) -> Iterator[Slot]:
        """Yield the slots for which an instance should be launched now."""
        if now < self.hold_until:
            return
        for slot in self.wanted_slots():
            if now >= slot.not_before and self._lacks_instance(slot):
                yield slot

    def _lacks_instance(self, slot: Slot) -> bool:
        members = [each for each in self.members(slot.index) if not _is_out_of_sight(each)]
        if any(each.version == slot.version and not each.is_stopping for each in members):
            return False
        if slot.is_surging:
            return not any(each.is_stopping for each in members)
        return not members


def _is_out_of_sight(instance: Instance) -> bool:
    """Return whether it was given up because its agent is lost."""
    return instance.is_stopping and (
        instance.unreachable_since is not None or instance.stop is Stop.UNREACHABLE
    )

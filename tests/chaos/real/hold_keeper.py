"""The holds of a framework of the workload: made, used like other offers, and released."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count, repeat

from croupier.model.resources import total_of
from croupier.sdk import (
    CroupierError,
    Framework,
    Hold,
    NotFound,
    Offer,
    Resources,
    Task,
    TaskVerdict,
)
from tests.chaos.real.journal import (
    Entry,
    HoldAnswered,
    HoldAsked,
    ReleaseAnswered,
    ReleaseAsked,
)
from tests.chaos.real.memory import Memory, number_of
from tests.chaos.real.work import HOLD, USE, VOLUME, HoldWork, hold_named

# Of both together, and of volumes.
MOST, MOST_VOLUMES = 5, 2
LOOK_S = 0.1
VOLUME_SIZE = Resources.parse("disk:1MB")


class HoldKeeper:
    """Makes holds, and releases each when its time is over, or when `releases_all`."""

    def __init__(
        self,
        framework: Framework,
        memory: Memory,
        write: Callable[[Entry], None],
        seed: int,
        unit: Resources,
    ) -> None:
        self._framework, self._memory, self._write = framework, memory, write
        self._seed, self._unit = seed, unit
        self._numbers = count(memory.last_hold + 1)
        self._made: dict[str, float] = {}
        # Their verdicts are lost: they may have been made.
        self._unknown = list(memory.unsettled_holds)
        self.releases_all = False

    @property
    def has_room(self) -> bool:
        """Return whether there may be another hold."""
        return len(self._memory.holds) + len(self._memory.unsettled_holds) < MOST

    def next(self, offer: Offer) -> HoldWork | None:
        """Return the next hold or volume, if it fits into the offer."""
        number = next(self._numbers)
        is_volume = len(self._memory.volumes) < MOST_VOLUMES and number % 2 == 0
        stem = self._framework.name + (VOLUME if is_volume else HOLD)
        work = hold_named(self._seed, f"{stem}-{number}")
        return work if self._resources(work) <= offer.resources else None

    async def make(
        self, work: HoldWork, offer: Offer, tasks: Sequence[Task], refuse_s: float
    ) -> Sequence[TaskVerdict]:
        """Make a hold and launch tasks, of one offer; return the verdicts on these."""
        self._write(HoldAsked(work.hold_id, offer.agent_id))
        hold = Hold(self._resources(work), work.ttl_s, volume=work.is_volume, id=work.hold_id)
        try:
            verdict = await self._framework.hold(offer, hold, tasks, refuse_s)
        except CroupierError:
            self._unknown.append(work.hold_id)
            raise
        error = verdict.operations[0].error
        self._write(HoldAnswered(work.hold_id, "" if error is None else str(error)))
        self._made[work.hold_id] = time.monotonic()
        return verdict.tasks

    async def keep(self) -> None:
        """Release what is due, until cancelled."""
        while True:
            for hold_id in [*self._unknown, *self._memory.holds]:
                if self._framework.framework_id is not None and self._is_due(hold_id):
                    await self._release(hold_id)
            await asyncio.sleep(LOOK_S)

    def _is_due(self, hold_id: str) -> bool:
        """Return whether to release a hold; forget one that ends by itself."""
        if hold_id in self._memory.unsettled_holds:
            return True
        if hold_id not in self._memory.holds:
            return False
        work = hold_named(self._seed, hold_id)
        if work.is_volume and self._is_used(hold_id):
            return False
        age_s = time.monotonic() - self._made.get(hold_id, 0.0)
        if work.kept_s is not None:
            return age_s >= work.kept_s
        if work.ttl_s is not None and age_s >= work.ttl_s:
            del self._memory.holds[hold_id]
        return work.ttl_s is None and self.releases_all

    def _is_used(self, volume_id: str) -> bool:
        stem = f"{USE}{number_of(volume_id)}-"
        return any(stem in task_id for task_id in self._memory.alive())

    async def _release(self, hold_id: str) -> None:
        self._write(ReleaseAsked(hold_id))
        try:
            (verdict,) = await self._framework.release(hold_id)
        except CroupierError:
            return  # asked again in a moment
        if verdict.error is None or isinstance(verdict.error, NotFound):
            self._write(ReleaseAnswered(hold_id, str(verdict.error or "")))

    def _resources(self, work: HoldWork) -> Resources:
        if work.is_volume:
            return VOLUME_SIZE
        return total_of(repeat(self._unit, work.units))

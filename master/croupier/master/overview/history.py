"""Usage in the last hour of this term: a sample each 10 s, in bounded memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NoReturn

from croupier.master.core.hold_charges import cluster_use
from croupier.master.core.state import State
from croupier.master.overview.shared import Walk
from croupier.master.services.paging import Read
from croupier.master.services.visibility import Visibility
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError
from croupier.model.ids import Role
from croupier.v1 import operator_pb2 as pb

STEP_S: Final = 10.0
SAMPLES: Final = 360
# Roles of one sample, and roles that are shown; the rest is summed up.
MOST_ROLES: Final = 32
SHOWN_ROLES: Final = 12
FULL: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment; parts and shares are in thousandths.

    Attributes:
        at: seconds on the master's monotonic clock.
        used: the used part of each resource.
        shares: dominant shares of the largest roles at the top.
        rest: the sum of the shares of the other roles at the top.
    """

    at: float
    used: dict[str, int]
    shares: dict[Role, int]
    rest: int


class History:
    """The samples of one term."""

    def __init__(self, clock: Clock) -> None:
        """Start without samples."""
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def __len__(self) -> int:
        return len(self._samples)

    async def record(self, read: Read) -> NoReturn:
        """Take a sample every `STEP_S` until cancelled; skip those that fail."""
        while True:
            # The master may be busy, or its term ends.
            with suppress(CroupierError):
                await self.sample(read)
            await asyncio.sleep(STEP_S)

    async def sample(self, read: Read) -> None:
        """Take a sample; raises CroupierError if the state cannot be read."""
        shares: dict[Role, float] = {}

        def add(state: State, roles: Sequence[Role]) -> None:
            for role in roles:
                shares[role] = float(state.allocator.queries.role_share(role))

        await Walk(read).over(lambda state: state.allocator.queries.top_roles(), add)
        largest = nlargest(MOST_ROLES, shares.items(), key=lambda item: item[1])
        rest = sum(shares.values()) - sum(share for _, share in largest)
        used = await read(_used_parts)
        parts = {role: round(FULL * share) for role, share in largest}
        self._samples.append(Sample(self._clock.now(), used, parts, max(0, round(FULL * rest))))

    def view(self, visible: Visibility) -> pb.GetHistoryResponse:
        """Return what a caller may view of the samples."""
        samples = list(self._samples)
        wall_ms, now = self._clock.wall_ms(), self._clock.now()
        wire = pb.GetHistoryResponse(
            times_ms=[max(0, wall_ms - round(1000 * (now - each.at))) for each in samples]
        )
        totals: dict[Role, int] = {}
        for sample in samples:
            for role, share in sample.shares.items():
                totals[role] = totals.get(role, 0) + share
        seen = [role for role in totals if visible.has_role(role)]
        shown = nlargest(SHOWN_ROLES, seen, key=lambda role: totals[role])
        for role in shown:
            wire.shares.add(name=role, per_mille=(each.shares.get(role, 0) for each in samples))
        if visible.has_cluster:
            names = dict.fromkeys(name for each in samples for name in each.used)
            for name in names:
                wire.used.add(name=name, per_mille=(each.used.get(name, 0) for each in samples))
            named = frozenset(shown)
            wire.others.name = "others"
            wire.others.per_mille.extend(
                each.rest + sum(part for role, part in each.shares.items() if role not in named)
                for each in samples
            )
        return wire


def _used_parts(state: State) -> dict[str, int]:
    queries = state.allocator.queries
    used, _, _ = cluster_use(state)
    amounts = used.scalars
    return {name: FULL * amounts.get(name, 0) // total for name, total in queries.total.items()}

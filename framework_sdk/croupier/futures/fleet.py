"""The framework that runs workers as tasks.

Rule: `plan` is the one place where workers are asked for, and `on_offers` where they are launched.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from croupier.futures.exchange import Exchange
from croupier.futures.shape import Shape
from croupier.futures.start import ExecutorSettings
from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    Demand,
    Framework,
    NotFound,
    Offer,
    PreemptRequest,
    Resources,
    Task,
    TaskState,
    TaskStatus,
    TaskVerdict,
    Unavailable,
    enforces,
)

_LOGGER: Final = logging.getLogger("croupier.futures")
# A call of 1 MiB at most: each task has the command of a worker and its secret.
MAX_LAUNCHES: Final = 100
# Time for which tasks outlive the connection to a master. A client that is killed leaves no
# workers anyway: they end when their connection ends.
FAILOVER_S: Final = 120.0


class Fleet(Framework):
    """Launches the workers that are missing."""

    def __init__(
        self,
        settings: ExecutorSettings,
        exchange: Exchange,
        make_task: Callable[[str, Shape], Task],
        first: Shape,
    ) -> None:
        super().__init__(
            name=settings.name,
            role=settings.role,
            master=settings.master,
            credentials=settings.credentials,
            insecure=settings.insecure,
            failover_timeout_s=FAILOVER_S,
            demand=first.resources,
            demand_count=0,
            constraints=first.constraints,
        )
        self._exchange, self._make_task = exchange, make_task
        self._missing: dict[Shape, int] = {}
        # What the master was last told to be missing, less what was launched since.
        self._declared: dict[Shape, int] = {}
        self._demanded: dict[Shape, tuple[Constraint, ...]] = {}
        self._calling = asyncio.Lock()
        # Task ids that are unique in the cluster are easier to name in commands.
        self._tag = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def plan(self, missing: Mapping[Shape, int]) -> None:
        """Ask for so many further workers of each shape."""
        async with self._calling:
            self._missing = dict(missing)
            if self._missing == {shape: n for shape, n in self._declared.items() if n}:
                return
            counts: Counter[tuple[Resources, tuple[Constraint, ...]]] = Counter()
            for shape, count in (self._missing or dict.fromkeys(self._declared, 0)).items():
                counts[shape.resources, self._constraints(shape)] += count
            try:
                await self.demands(Demand(unit, n, on) for (unit, on), n in counts.items())
                self._declared = dict(self._missing)
            except Unavailable:
                return  # the next plan says it again
            except CroupierError as error:
                self._exchange.on_fleet_failed(error)

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch missing workers on offers."""
        async with self._calling:
            for offer in offers:
                await self._use(offer)

    async def on_update(self, status: TaskStatus) -> None:
        """Report the end of a task."""
        is_unknown = status.state is TaskState.UNKNOWN and status.decided_in_s is None
        if status.state.is_terminal or is_unknown:
            self._exchange.on_task_ended(status)

    async def on_preempt(self, request: PreemptRequest) -> None:
        """End the workers after the calls that they run; the master kills those that are late."""
        self._exchange.on_preempted(tuple(request.task_ids))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    async def _use(self, offer: Offer) -> None:
        chosen = list(itertools.islice(self._chosen(offer), MAX_LAUNCHES))
        if not chosen:
            await self._quietly(self.decline(offer))
            return
        for task, shape in chosen:
            self._exchange.board.place(task.task_id, shape)
            self._count(shape, -1)
        try:
            verdicts = await self.accept(offer, [task for task, _ in chosen], refuse_s=0)
        except Unavailable:
            # The tasks may run. Those that do connect; updates tell about the others.
            await self._quietly(self.reconcile([task.task_id for task, _ in chosen]))
            return
        except CroupierError as error:
            self._exchange.on_fleet_failed(error)
            return
        for (_, shape), verdict in zip(chosen, verdicts, strict=True):
            self._judge(shape, verdict)

    def _judge(self, shape: Shape, verdict: TaskVerdict) -> None:
        error = verdict.error
        if error is None:
            return
        self._exchange.forget(verdict.task_id)
        self._missing[shape] = self._missing.get(shape, 0) + 1
        if not isinstance(error, (Conflict, NotFound, Unavailable)):
            self._exchange.on_fleet_failed(error)

    def _chosen(self, offer: Offer) -> Iterator[tuple[Task, Shape]]:
        """Yield tasks for the offer: first of the shape that was asked for first."""
        facts = {
            **offer.attributes,
            "hostname": offer.hostname,
            "isolation": ",".join(sorted(offer.isolation)),
        }
        left = offer.resources
        for shape, count in list(self._missing.items()):
            if not all(constraint.holds(facts) for constraint in shape.constraints):
                continue
            for _ in range(count):
                if not shape.resources <= left:
                    break
                task = self._make_task(f"worker-{self._tag}-{next(self._numbers)}", shape)
                if not task.needs <= offer.isolation:
                    break
                left -= shape.resources
                yield task, shape

    def _constraints(self, shape: Shape) -> tuple[Constraint, ...]:
        """Return the constraints of a shape, with one on what its tasks need of an agent."""
        found = self._demanded.get(shape)
        if found is None:
            needs = self._make_task("sample", shape).needs
            found = shape.constraints + ((enforces(*sorted(needs)),) if needs else ())
            self._demanded[shape] = found
        return found

    def _count(self, shape: Shape, change: int) -> None:
        for counts in (self._missing, self._declared):
            if shape in counts:
                counts[shape] += change

    async def _quietly(self, calling: Any) -> None:
        try:
            await calling
        except (Conflict, NotFound, Unavailable) as error:
            _LOGGER.debug("a call failed: %s", error)

"""The class that frameworks derive from."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from collections.abc import Iterable, Sequence
from typing import ClassVar

from croupier.model.attributes import Constraint, facts_of
from croupier.model.demand import Demand, check_demands
from croupier.model.errors import CroupierError, InvalidRequest, ProtocolViolation
from croupier.model.ids import Role, check_id
from croupier.model.limits import DEFAULT_FAILOVER_TIMEOUT_S, DEFAULT_REFUSE_S
from croupier.model.resources import Resources
from croupier.model.task import TaskStatus
from croupier.model.verdict import TaskVerdict
from croupier.net.address import DEFAULT_MASTER, MASTER_PORT, parse_addresses
from croupier.process.clock import SystemClock
from croupier.sdk.core.subscription import Launch, Standing
from croupier.sdk.demand_args import demands_of, one_demand, roles_of
from croupier.sdk.duration import milliseconds
from croupier.sdk.failure import Failure
from croupier.sdk.log import log_event
from croupier.sdk.offer import Offer
from croupier.sdk.preempt import PreemptRequest
from croupier.sdk.program import run_until_signalled
from croupier.sdk.session import Session
from croupier.sdk.settings import Settings
from croupier.sdk.task import Task
from croupier.sdk.wire import Identity, accept_call, decline_calls, demand_call, kill_call
from croupier.v1 import framework_pb2 as pb


class Framework:
    """A program that runs tasks on a cluster: derive from it, override handlers, run it.

    Handlers are called one at a time, in the order of what arrived, and may await anything,
    the methods below included. What a handler raises is logged as `handler_failed`, and the
    framework goes on. The connection mends itself: after `on_subscribed` was called again,
    all offers from before are void and everything else is as it was.
    """

    _settings: ClassVar[Settings] = Settings()

    def __init__(
        self,
        name: str | None = None,
        role: str | None = None,
        master: str | None = None,
        framework_id: str | None = None,
        failover_timeout_s: float = DEFAULT_FAILOVER_TIMEOUT_S,
        demand: Resources | None = None,
        *,
        demand_count: int | None = None,
        constraints: Iterable[Constraint] | None = None,
        offer_lease_s: float | None = None,
        roles: Iterable[str] | None = None,
        demands: Iterable[Demand] = (),
    ) -> None:
        """Describe the framework; nothing is sent before `run`.

        Args:
            name: for people; the class's name if None.
            role: whose share its use is charged to; None is `*`, if there are no `roles`.
            master: HOST:PORT, or several joined by commas; None takes CROUPIER_MASTER from
                the environment, or 127.0.0.1:5050.
            framework_id: of an earlier run whose tasks to take over; None for a new one.
            failover_timeout_s: how long tasks run on without their framework.
            demand: what one task takes, so that offers are cut to size and room that
                nobody needs goes to others; None asks for whole remainders.
            demand_count: how many of those are wanted; None is without end.
            constraints: what agents must be like, if there is a demand.
            offer_lease_s: how long offers may be held; None is the master's default, 10 s. The
                master bounds it (`--max-offer-lease`, 15 s); see `Offer.expires_at`.
            roles: several, at most 32, in place of `role`. Each offer is of one of them.
            demands: several shapes, at most 64, in place of `demand`; each may name a role, and
                is of the first if it does not. A role without one is offered nothing.

        Raises:
            InvalidRequest: if one of these cannot be.
        """
        self._name = type(self).__name__ if name is None else name
        own = roles_of(role, roles)
        wanted = demands_of(one_demand(demand, demand_count, constraints), demands, own)
        self._standing = Standing(
            check_id("framework", framework_id) if framework_id else "", wanted, own
        )
        address = (
            os.environ.get("CROUPIER_MASTER", str(DEFAULT_MASTER)) if master is None else master
        )
        identity = Identity(
            name=self._name,
            client_id=uuid.uuid4().hex,
            hostname=socket.gethostname(),
            failover_timeout_ms=milliseconds("the failover timeout", failover_timeout_s),
            offer_lease_ms=milliseconds("the offer lease", offer_lease_s or 0.0),
        )
        self._session = Session(
            self,
            identity,
            self._standing,
            parse_addresses(address, MASTER_PORT),
            self._settings,
            SystemClock(),
            random.Random(),
        )

    @property
    def name(self) -> str:
        """For people."""
        return self._name

    @property
    def role(self) -> str:
        """Whose share the framework's use is charged to; the first if there are several."""
        return self._standing.roles[0]

    @property
    def roles(self) -> tuple[str, ...]:
        """All its roles."""
        return self._standing.roles

    @property
    def framework_id(self) -> str | None:
        """What the master knows the framework by; None before the first `on_subscribed`."""
        return self._standing.framework_id or None

    async def on_subscribed(self, framework_id: str) -> None:
        """The master took the framework in: at first, and again after each reconnection.

        Offers from before are void.
        """

    async def on_offers(self, offers: list[Offer]) -> None:
        """Offers arrived; answer each by `accept` or `decline`, now or while its lease runs.

        Declines all if not overridden. If it raises, the offers that it did not answer are
        declined.
        """
        await self.decline(offers)

    async def on_rescind(self, offer_id: str) -> None:
        """An offer that `on_offers` was shown, and that was not answered, is no more."""

    async def on_update(self, status: TaskStatus) -> None:
        """A task changed its state. Acknowledged when this returns without raising.

        If it raises, the agent sends the update again; the task's later ones come after it.
        """

    async def on_failure(self, failure: Failure) -> None:
        """An agent is lost. Updates say what became of its tasks."""

    async def on_preempt(self, request: PreemptRequest) -> None:
        """Others are owed room that these tasks take: end them, or the master does.

        If nothing is done, as by default, the master kills them once the grace is over.
        """

    async def on_error(self, error: CroupierError) -> None:
        """The framework is over, as by FailedOver or Removed; `run` is about to raise `error`."""
        log_event(
            logging.ERROR, "framework_failed", framework_id=self.framework_id, error=str(error)
        )

    async def accept(
        self,
        offers: Offer | Sequence[Offer],
        tasks: Iterable[Task],
        refuse_s: float = DEFAULT_REFUSE_S,
    ) -> list[TaskVerdict]:
        """Launch `tasks` on the sum of `offers`, which are of one agent and in one role.

        What the tasks leave over is declined for `refuse_s`. Without tasks this is a decline.

        Returns:
            One verdict per task, in order. A stale offer fails them all.

        Raises:
            InvalidRequest: if there is no offer, or the call is larger than the master takes.
            Unavailable: if there is no answer within 30 s of connected time. The tasks may
                have been launched: updates or `reconcile` tell.
            CroupierError: if the master refused the call without looking at its tasks.
        """
        launched = list(tasks)
        if not launched:
            await self.decline(offers, refuse_s)
            return []
        offer_ids = _offer_ids(offers)
        first = offers if isinstance(offers, Offer) else offers[0]
        verdict = await self._session.call(
            accept_call(offer_ids, launched, refuse_s),
            answers=offer_ids,
            launch=Launch(
                Role(first.role),
                tuple(task.resources for task in launched),
                facts_of(first.hostname, first.attributes),
            ),
        )
        if [task.task_id for task in verdict.tasks] != [task.task_id for task in launched]:
            raise verdict.error or ProtocolViolation("the verdict is not about the call's tasks")
        return list(verdict.tasks)

    async def decline(
        self,
        offers: Offer | Sequence[Offer],
        refuse_s: float = DEFAULT_REFUSE_S,
        reason: str = "",
    ) -> None:
        """Give `offers` back, and see nothing of the kind from those agents for `refuse_s`.

        Offers that have ended meanwhile are no error.

        Args:
            offers: one or several, of any agents.
            refuse_s: 0 sets no filter.
            reason: for people and metrics; at most 256 characters.

        Raises:
            NotFound: if an offer was never made to this framework.
            InvalidRequest: if there is no offer, or an argument cannot be.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        offer_ids = _offer_ids(offers)
        for call in decline_calls(offer_ids, refuse_s, reason):
            await self._call(call, answers=offer_ids)

    async def demand(
        self,
        unit: Resources | None,
        count: int | None = None,
        constraints: Iterable[Constraint] | None = None,
    ) -> None:
        """Say what is wanted from now on: `count` tasks of `unit`, beyond what runs.

        The count falls by itself with each task launched. None asks for whole remainders.
        Replaces all that was wanted before.

        Raises:
            InvalidRequest: if that can never be dealt.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        await self.demands(one_demand(unit, count, constraints))

    async def demands(self, demands: Iterable[Demand]) -> None:
        """Say what is wanted from now on, in several shapes and roles.

        None at all asks for whole remainders in every role. Otherwise a role without a demand
        is offered nothing. Replaces all that was wanted before.

        Raises:
            InvalidRequest: if that can never be dealt, a shape is named twice, there are over
                64, or one is for a role that the framework has not.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        standing = self._standing
        wanted = check_demands(demands, standing.roles)
        verdict = await self._session.call(
            demand_call(wanted), opened=lambda seq: standing.on_demands_sent(seq, wanted)
        )
        if verdict.error is not None:
            raise verdict.error

    async def suppress(self, *roles: str) -> None:
        """Ask for no more offers in these roles, or in all, until `revive`; those held stay.

        Raises:
            InvalidRequest: if a role is not one of the framework's.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        own = self._standing.own(roles)
        self._standing.suppress(own)
        await self._call(pb.Call(suppress=pb.Suppress(roles=own)))

    async def revive(self, *roles: str) -> None:
        """Ask for offers again in these roles, or in all, and forget what was refused there.

        Raises:
            InvalidRequest: if a role is not one of the framework's.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        own = self._standing.own(roles)
        self._standing.revive(own)
        await self._call(pb.Call(revive=pb.Revive(roles=own)))

    async def kill(self, task_id: str, grace_s: float | None = None) -> None:
        """Have a task killed; an update tells when it is.

        Args:
            task_id: of the task.
            grace_s: seconds between SIGTERM and SIGKILL; None is what the task says.

        Raises:
            NotFound: if the master knows no such task of this framework.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        await self._call(kill_call(task_id, grace_s))

    async def reconcile(self, task_ids: Iterable[str] | None = None) -> None:
        """Have the state of these tasks, or of all if None, sent to `on_update`.

        Raises:
            Unavailable: if there is no answer within 30 s of connected time.
        """
        wanted = [] if task_ids is None else list(task_ids)
        if task_ids is None or wanted:
            await self._call(pb.Call(reconcile=pb.Reconcile(task_ids=wanted)))

    async def stop(self, teardown: bool = False) -> None:
        """End this framework; `run` returns.

        Its tasks run on for the failover timeout, in which a framework with the same id may
        take them over; with `teardown` they are killed and the id is never used again.
        Waits for the end, except within a handler, which must return first.

        Raises:
            CroupierError: if the master did not confirm the teardown within 5 s; all the
                same this framework ends.
        """
        await self._session.stop(teardown)

    async def run(self) -> None:
        """Connect, and serve the handlers until `stop`. A framework runs once.

        Raises:
            FailedOver: if another program took over the framework's id.
            Removed: if the framework was removed.
            InvalidRequest: if the master does not take such a framework.
            CroupierError: any other error that connecting again cannot mend.
        """
        await self._session.run()

    def run_forever(self, *, teardown: bool = False) -> None:
        """`run` as a program: SIGINT and SIGTERM stop it, a second one ends the process.

        Main thread only.

        Args:
            teardown: whether a signal also ends the framework's tasks.

        Raises:
            CroupierError: as `run` does.
        """
        asyncio.run(run_until_signalled(self, teardown))

    async def _call(self, call: pb.Call, answers: Sequence[str] = ()) -> None:
        verdict = await self._session.call(call, answers=answers)
        if verdict.error is not None:
            raise verdict.error


def _offer_ids(offers: Offer | Sequence[Offer]) -> list[str]:
    chosen = [offers] if isinstance(offers, Offer) else offers
    if not chosen:
        raise InvalidRequest("no offer is given")
    return [offer.id for offer in chosen]

"""The base class of frameworks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from croupier.model.attributes import Constraint, check_constraints, facts_of
from croupier.model.demand import Demand, check_demands
from croupier.model.durations import to_milliseconds
from croupier.model.errors import CroupierError, InvalidRequest, ProtocolViolation
from croupier.model.ids import Role, check_id
from croupier.model.isolation import known_features
from croupier.model.limits import DEFAULT_FAILOVER_TIMEOUT_S, DEFAULT_REFUSE_S
from croupier.model.resources import Resources
from croupier.model.task import TaskStatus
from croupier.model.verdict import TaskVerdict
from croupier.net.address import DEFAULT_MASTER, MASTER_PORT, parse_addresses
from croupier.process.clock import SystemClock
from croupier.sdk.core.subscription import (
    AcceptedTasks,
    Subscription,
    demands_of,
    one_demand,
    roles_of,
)
from croupier.sdk.credentials import Credentials, CredentialSource
from croupier.sdk.log import log_event
from croupier.sdk.offer import Agent, Failure, Offer, PreemptRequest
from croupier.sdk.output import read_output
from croupier.sdk.program import run_until_signalled
from croupier.sdk.session import Session
from croupier.sdk.settings import Settings
from croupier.sdk.task import Task
from croupier.sdk.wire import (
    accept_call,
    decline_calls,
    demand_call,
    kill_call,
    submit_calls,
    withdraw_calls,
)
from croupier.v1 import framework_pb2 as pb


class Framework:
    """A program that runs tasks on a cluster: derive from it, override handlers, run it.

    Handlers are called one at a time, in the order in which their events arrived. They may await
    anything, including the methods below. An exception in a handler is logged as `handler_failed`,
    and affects only that event. The SDK reconnects by itself: after `on_subscribed` is called
    again, all earlier offers are void and everything else is unchanged.
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
        credentials: Credentials | Callable[[], Credentials] | None = None,
        insecure: bool = False,
    ) -> None:
        """Describe the framework; nothing is sent before `run`.

        Args:
            name: shown to people; the class's name if None.
            role: the role whose share its tasks are charged to; None is `*`, if there are no
                `roles`.
            master: HOST:PORT, or several joined by commas; None takes CROUPIER_MASTER from
                the environment, or 127.0.0.1:5050.
            framework_id: id of an earlier run, to take over its tasks; None for a new framework.
            failover_timeout_s: time for which tasks keep running without their framework.
            demand: resources of one task, so that offers are cut to size and other frameworks
                get the rest; None asks for whole remainders.
            demand_count: the number of those tasks; None is unlimited.
            constraints: on the agents, if there is a demand.
            offer_lease_s: time for which offers are held; None is the master's default, 10 s. The
                master bounds it (`--max-offer-lease`, 15 s); see `Offer.expires_at`.
            roles: several, at most 32, in place of `role`. Each offer is in one of them.
            demands: several shapes, at most 64, in place of `demand`. Each may name a role; the
                first role is the default. A role without a demand gets no offers.
            credentials: for a cluster with authentication; None looks in the environment
                (CROUPIER_TLS_CA, CROUPIER_TOKEN_FILE, ...), then in
                ~/.config/croupier/credentials/HOST:PORT.toml for the first master that has one. A
                function, and these places, are asked for each connection.
            insecure: send secrets of tasks even unencrypted to other machines.

        Raises:
            InvalidRequest: if an argument is invalid, or the credentials cannot be used.
        """
        self._is_insecure = insecure
        self._name = type(self).__name__ if name is None else name
        own = roles_of(role, roles)
        wanted = demands_of(one_demand(demand, demand_count, constraints), demands, own)
        self._subscription = Subscription(
            check_id("framework", framework_id) if framework_id else "", wanted, own
        )
        if type(self).on_offers is Framework.on_offers:
            self._subscription.suppress(())
        address = (
            os.environ.get("CROUPIER_MASTER", str(DEFAULT_MASTER)) if master is None else master
        )
        identity = pb.Subscribe(
            framework=pb.FrameworkInfo(
                name=self._name,
                hostname=socket.gethostname(),
                failover_timeout_ms=to_milliseconds("the failover timeout", failover_timeout_s),
            ),
            client_id=uuid.uuid4().hex,
            offer_lease_ms=to_milliseconds("the offer lease", offer_lease_s or 0.0),
            takes_reconciled=True,
        )
        masters = parse_addresses(address, MASTER_PORT)
        self._session = Session(
            self,
            identity,
            self._subscription,
            masters,
            self._settings,
            SystemClock(),
            CredentialSource(credentials, masters),
        )

    @property
    def name(self) -> str:
        """Name shown to people."""
        return self._name

    @property
    def role(self) -> str:
        """The role whose share its tasks are charged to; the first if there are several."""
        return self._subscription.roles[0]

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles of the framework."""
        return self._subscription.roles

    @property
    def framework_id(self) -> str | None:
        """Id that the master assigned; None before the first `on_subscribed`."""
        return self._subscription.framework_id or None

    async def on_subscribed(self, framework_id: str) -> None:
        """Handle a subscription: the first, and one after each reconnection.

        All earlier offers are void.
        """

    async def on_offers(self, offers: list[Offer]) -> None:
        """Handle offers: answer each by `accept` or `decline`, now or while its lease runs.

        A framework that does not override this gets no offers, until it calls `revive`; the
        default declines all. If the handler raises, the SDK declines the offers that it did
        not answer.
        """
        await self.decline(offers)

    async def on_rescind(self, offer_id: str) -> None:
        """Handle the rescission of an unanswered offer that `on_offers` received."""

    async def on_update(self, status: TaskStatus) -> None:
        """Handle a task's new state; the SDK acknowledges it when this returns.

        If the handler raises, the agent sends the update again, before later ones of the task.
        """

    async def on_failure(self, failure: Failure) -> None:
        """Handle the loss of an agent. Updates report the states of its tasks."""

    async def on_preempt(self, request: PreemptRequest) -> None:
        """Handle a preemption request: end its tasks, or the master kills them.

        The default does nothing, so the master kills them when the grace is over.
        """

    async def on_error(self, error: CroupierError) -> None:
        """Handle the error that ended the framework; `run` is about to raise it."""
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

        The remainder is declined for `refuse_s`. Without tasks this is a decline.

        Returns:
            One verdict per task, in order. A stale offer fails all tasks.

        Raises:
            InvalidRequest: if there is no offer, the call is larger than the master takes, or
                secrets would be sent unencrypted to another machine, or to a master that does not
                know them.
            Unavailable: if there is no answer within 30 s of connected time. The tasks may
                have been launched: updates or `reconcile` show it.
            CroupierError: if the master refused the whole call.
        """
        launched = list(tasks)
        if not launched:
            await self.decline(offers, refuse_s)
            return []
        if any(task.secrets for task in launched):
            self._session.check_secrets(is_insecure=self._is_insecure)
        offer_ids = _offer_ids(offers)
        first = offers if isinstance(offers, Offer) else offers[0]
        verdict = await self._session.call(
            accept_call(offer_ids, launched, refuse_s),
            answers=offer_ids,
            launch=AcceptedTasks(
                Role(first.role),
                tuple(task.resources for task in launched),
                facts_of(first.hostname, first.attributes, known_features(first.isolation)),
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
        """Decline `offers`, and get no such offers of those agents for `refuse_s`.

        Offers that have ended meanwhile are ignored.

        Args:
            offers: one or several, of any agents.
            refuse_s: duration of the filter; 0 sets none.
            reason: for people and metrics; at most 256 characters.

        Raises:
            NotFound: if an offer was never made to this framework.
            InvalidRequest: if there is no offer, or an argument is invalid.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        offer_ids = _offer_ids(offers)
        for call in decline_calls(offer_ids, refuse_s, reason):
            await self._call(call, answers=offer_ids)

    async def submit(
        self,
        tasks: Iterable[Task],
        role: str | None = None,
        constraints: Iterable[Constraint] | None = None,
        max_per_agent: int | None = None,
    ) -> list[TaskVerdict]:
        """Hand tasks to the master, which places them; no offers are needed.

        The master deals to them in the same order and within the same limits as to declared demand.
        A task without an error in its verdict is QUEUED, and survives a restart of the master. Then
        `on_update` tells STAGING, with its agent, and all later states. Queued tasks wait while the
        framework is disconnected, and end with it. `withdraw` and `kill` end one.

        A framework that only submits need not override `on_offers`; it gets no offers then. Others
        get none of whole remainders in a role while they have tasks queued there.

        Args:
            tasks: their resources are scalars: `ports:2` is any two ports.
            role: one of the framework's; None is its first.
            constraints: all must hold on the agent.
            max_per_agent: place a task only on agents that run fewer tasks of this framework.

        Returns:
            One verdict per task, in order.

        Raises:
            InvalidRequest: if a task is larger than the master takes, or secrets would be sent
                unencrypted to another machine.
            Unavailable: if there is no answer within 30 s of connected time. The tasks may have
                been queued: updates or `reconcile` show it.
        """
        listed = list(tasks)
        if any(task.secrets for task in listed):
            self._session.check_secrets(is_insecure=self._is_insecure)
        own = self._subscription.own(() if role is None else (role,))
        asked = check_constraints(constraints or ())
        most_bytes = self._session.max_bytes
        calls = submit_calls(listed, own[0] if own else "", asked, max_per_agent, most_bytes)
        verdicts = await self._session.call_each(calls)
        if [task.task_id for task in verdicts] != [task.task_id for task in listed]:
            raise ProtocolViolation("the verdicts are not about the call's tasks")
        return verdicts

    async def withdraw(self, task_ids: Iterable[str]) -> list[TaskVerdict]:
        """End tasks that are still queued; an update tells that each is KILLED.

        They never run, except one that its agent starts at this moment, which is killed.

        Returns:
            One verdict per task, in order. Its error is NotFound for an unknown task, and Conflict
            for a task that was placed already, and may run or has ended.

        Raises:
            Unavailable: if there is no answer within 30 s of connected time.
        """
        return await self._session.call_each(withdraw_calls(list(task_ids)))

    def agent(self, agent_id: str) -> Agent | None:
        """Return what is known of an agent; None if it made no offer and runs no submitted task."""
        return self._session.agents.get(agent_id)

    async def demand(
        self,
        unit: Resources | None,
        count: int | None = None,
        constraints: Iterable[Constraint] | None = None,
    ) -> None:
        """Replace the demand by `count` further tasks of `unit`.

        The count falls by itself with each task launched. A unit of None asks for whole
        remainders.

        Raises:
            InvalidRequest: if no offer can ever meet the demand.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        await self.demands(one_demand(unit, count, constraints))

    async def demands(self, demands: Iterable[Demand]) -> None:
        """Replace the demand by several shapes and roles.

        No demand at all asks for whole remainders in every role. Otherwise a role without a
        demand gets no offers.

        Raises:
            InvalidRequest: if no offer can ever meet one, a shape is named twice, there are over
                64, or one names a role that the framework does not have.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        subscription = self._subscription
        wanted = check_demands(demands, subscription.roles)
        verdict = await self._session.call(
            demand_call(wanted), opened=lambda seq: subscription.on_demands_sent(seq, wanted)
        )
        if verdict.error is not None:
            raise verdict.error

    async def suppress(self, *roles: str) -> None:
        """Stop offers in these roles, or in all, until `revive`. Offers that are held stay.

        Raises:
            InvalidRequest: if a role is not one of the framework's.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        own = self._subscription.own(roles)
        self._subscription.suppress(own)
        await self._call(pb.Call(suppress=pb.Suppress(roles=own)))

    async def revive(self, *roles: str) -> None:
        """Resume offers in these roles, or in all, and remove the filters there.

        Raises:
            InvalidRequest: if a role is not one of the framework's.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        own = self._subscription.own(roles)
        self._subscription.revive(own)
        await self._call(pb.Call(revive=pb.Revive(roles=own)))

    async def kill(self, task_id: str, grace_s: float | None = None) -> None:
        """Kill a task; an update reports its end.

        Args:
            task_id: of the task.
            grace_s: seconds between SIGTERM and SIGKILL; None is the task's own.

        Raises:
            NotFound: if the master knows no such task of this framework.
            Unavailable: if there is no answer within 30 s of connected time.
        """
        await self._call(kill_call(task_id, grace_s))

    async def reconcile(self, task_ids: Iterable[str] | None = None) -> None:
        """Make the master send the state of these tasks, or of all if None, to `on_update`.

        Raises:
            Unavailable: if there is no answer within 30 s of connected time.
        """
        wanted = [] if task_ids is None else list(task_ids)
        if task_ids is None or wanted:
            await self._call(pb.Call(reconcile=pb.Reconcile(task_ids=wanted)))

    async def read_output(
        self, task_id: str, *, stderr: bool = False, tail: int | None = None
    ) -> bytes:
        """Return what a task of this framework has written so far, at most its last 16 MiB.

        An ended task's output can be read as long as its agent keeps the sandbox.

        Args:
            task_id: id of the task.
            stderr: whether to read stderr in place of stdout.
            tail: only so many last lines.

        Raises:
            InvalidRequest: if an argument is malformed.
            NotFound: if there is no such task or output, or the task has no agent yet.
            PermissionDenied: if the framework's principal may not read it.
            Unavailable: if neither master nor agent answers within 30 s.
        """
        return await read_output(self._session.reader, task_id, stderr=stderr, tail=tail)

    async def stop(self, teardown: bool = False) -> None:
        """End this framework; `run` returns.

        Its tasks keep running for the failover timeout, in which a framework with the same id can
        take them over. With `teardown` they are killed, and the id is never used again. Waits for
        the end, except in a handler, which must return first.

        Raises:
            CroupierError: if the master did not confirm the teardown within 5 s; the framework
                ends nevertheless.
        """
        await self._session.stop(teardown)

    async def run(self) -> None:
        """Connect, and serve the handlers until `stop`. A framework runs once.

        Raises:
            FailedOver: if another program took over the framework's id.
            Removed: if the framework was removed.
            InvalidRequest: if the master refuses the framework.
            CroupierError: for any other error that a reconnection cannot fix.
        """
        await self._session.run()

    def run_forever(self, *, teardown: bool = False) -> None:
        """Run as a program: SIGINT and SIGTERM stop it, a second one ends the process.

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

"""The base class of frameworks."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable, Iterable
from typing import ClassVar

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.durations import to_milliseconds
from croupier.model.errors import CroupierError
from croupier.model.ids import check_id
from croupier.model.limits import DEFAULT_FAILOVER_TIMEOUT_S
from croupier.model.resources import Resources
from croupier.model.task import TaskStatus
from croupier.net.address import DEFAULT_MASTER, MASTER_PORT, parse_addresses
from croupier.net.task_scope import end
from croupier.process.clock import SystemClock
from croupier.sdk.core.subscription import Subscription, demands_of, one_demand, roles_of
from croupier.sdk.credentials import Credentials, CredentialSource
from croupier.sdk.framework_calls import FrameworkCalls
from croupier.sdk.log import log_event
from croupier.sdk.offer import Failure, Message, Offer, PreemptRequest
from croupier.sdk.session import Session
from croupier.sdk.settings import Settings
from croupier.v1 import framework_pb2 as pb


class Framework(FrameworkCalls):
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

    async def on_message(self, message: Message) -> None:
        """Handle a message from an executor. Each arrives at most once; some may be lost."""

    async def on_preempt(self, request: PreemptRequest) -> None:
        """Handle a preemption request: end its tasks, or the master kills them.

        The default does nothing, so the master kills them when the grace is over.
        """

    async def on_error(self, error: CroupierError) -> None:
        """Handle the error that ended the framework; `run` is about to raise it."""
        log_event(
            logging.ERROR, "framework_failed", framework_id=self.framework_id, error=str(error)
        )

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
        asyncio.run(_run_until_signalled(self, teardown))


async def _run_until_signalled(framework: Framework, teardown: bool) -> None:
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        signalled.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    async def stop_when_signalled() -> None:
        await signalled.wait()
        try:
            await framework.stop(teardown)
        except CroupierError as error:
            log_event(logging.WARNING, "teardown_failed", error=str(error))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    stopping = asyncio.create_task(stop_when_signalled())
    try:
        await framework.run()
    finally:
        await end(stopping)

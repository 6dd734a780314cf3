"""An operator who reserves agents during a round, and looks at who is given them.

Rule: a reservation that was answered is listed until its end. While it binds, others are neither
offered its agents nor get tasks there, and its owner gets the room.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random

import grpc.aio

from croupier.model.errors import CroupierError
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster
from tests.chaos.real.work import BRIEF
from tests.harness.eventually import eventually

RPC_S = 5.0
LOOK_S = 0.1
MAKES = 0.4
# Of a reservation that does not begin in a test.
FAR_S = 7200.0
# How long the owner may take to get the room; others have the grace of preemption before.
SERVED_S = 30.0
# What a master answers that has refused a reservation.
REFUSED = (grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION,
           grpc.StatusCode.INVALID_ARGUMENT)  # fmt: skip
BINDING = ("announced", "active")


class ReservationKeeper:
    """Makes reservations for the roles of frameworks.

    Attributes:
        seen: how many were made, and how often one was found to bind.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = 0
        self._lasting: set[str] = set()
        self._found: list[Violation] = []
        self.seen: Counter[str] = Counter()

    async def keep(self, random: Random) -> None:
        """Make reservations and look at their agents, until cancelled."""
        while True:
            # Who leads may change at any moment.
            with suppress(grpc.aio.AioRpcError, CroupierError):
                if not self._number or random.random() < MAKES:
                    await self._make_any(random)
                await self._look()
            await asyncio.sleep(LOOK_S)

    async def settle(self, is_clock_true: bool) -> list[Violation]:
        """Check what is listed, delete it, and check that an owner gets its room.

        `is_clock_true`: no clock has jumped, so that no reservation can have ended before its time.

        Raises:
            AssertionError: if that takes too long.
        """
        found, self._found = self._found, []
        lasting, self._lasting = self._lasting, set()
        listed: set[str] = set()

        async def is_listed() -> bool:
            listed.update(view.reservation_id for view in await self._list())
            return True

        await _until(is_listed, "reservations are listed")
        lost = sorted(lasting - listed) if is_clock_true else []
        found += [Violation("reservation_lost", each, "it is not listed") for each in lost]
        await _until(self._delete_all, "all reservations are deleted")
        await self._check_served()
        await _until(self._delete_all, "all reservations are deleted")
        return found

    async def _make_any(self, random: Random) -> None:
        """Make one that begins soon, or one that does not begin."""
        role = random.choice(sorted(self._cluster.frameworks))
        if random.random() < 0.3:
            self._lasting.add(await self._make(role, FAR_S, FAR_S))
        else:
            await self._make(role, random.uniform(0.05, 0.5), random.uniform(1.0, 4.0))

    async def _make(self, role: str, in_s: float, for_s: float, agents: int = 1) -> str:
        """Reserve some agents.

        Raises:
            grpc.aio.AioRpcError: if the answer is an error, or does not come.
            CroupierError: if no master leads.
        """
        self._number += 1
        operator = await self._cluster.operator()
        begin_ms = int(1000 * (time.time() + in_s))
        wanted = pb.CreateReservationRequest(
            reservation_id=f"r{self._number}",
            role=role,
            agents=agents,
            begin_time_ms=begin_ms,
            end_time_ms=begin_ms + int(1000 * for_s),
        )
        try:
            await operator.CreateReservation(wanted, timeout=RPC_S)
        except grpc.aio.AioRpcError as error:
            self.seen["reservations refused"] += error.code() in REFUSED
            raise
        self.seen["reservations made"] += 1
        return wanted.reservation_id

    async def _list(self) -> list[pb.ReservationView]:
        operator = await self._cluster.operator()
        told = await operator.ListReservations(pb.ListReservationsRequest(), timeout=RPC_S)
        return list(told.reservations)

    async def _look(self) -> None:
        """Compare the tasks and offers of reserved agents at two moments."""
        operator = await self._cluster.operator()
        asked = pb.ListTasksRequest()
        before = _bound(await self._list())
        if not before:
            return
        old = (await operator.ListTasks(asked, timeout=RPC_S)).tasks
        new = (await operator.ListTasks(asked, timeout=RPC_S)).tasks
        offers = (await operator.ListOffers(pb.ListOffersRequest(), timeout=RPC_S)).offers
        after = _bound(await self._list())
        roles = {
            place: view.role
            for place, view in before.items()
            # And not another one after it.
            if place in after and after[place].reservation_id == view.reservation_id
        }
        self.seen["looks at reserved agents"] += len(roles)
        self._found += check_reserved(roles, old, new, offers)

    async def _delete_all(self) -> bool:
        """Delete all reservations; some may end meanwhile. Return whether none is left."""
        operator = await self._cluster.operator()
        for view in await self._list():
            named = pb.DeleteReservationRequest(reservation_id=view.reservation_id)
            await operator.DeleteReservation(named, timeout=RPC_S)
        return not await self._list()

    async def _check_served(self) -> None:
        """Check that a framework that always has tasks queued gets the agent of its role."""
        roles = sorted(self._cluster.frameworks)
        made: list[str] = []
        known: set[str] = set()

        async def has_made() -> bool:
            # The agents with the fewest tasks are taken; of all but one, others are preempted.
            most = len(self._cluster.agents) - 1
            # An earlier attempt may have made some.
            await self._delete_all()
            await self._make(roles[-1], 0.1, FAR_S, most)
            made.append(await self._make(roles[0], 0.1, FAR_S))
            return True

        async def is_served() -> bool:
            await self._look()
            bound = _bound(view for view in await self._list() if view.reservation_id == made[-1])
            operator = await self._cluster.operator()
            listed = (await operator.ListTasks(pb.ListTasksRequest(), timeout=RPC_S)).tasks
            there = {view.task.task_id: view.role for view in listed if view.agent_id in bound}
            if bound and not known:
                known.update(there, [""])
            return any(role == roles[0] and key not in known for key, role in there.items())

        await _until(has_made, "agents are reserved")
        await _until(is_served, "a role has tasks on the agent reserved for it")


async def _until(attempt: Callable[[], Awaitable[bool]], what: str) -> None:
    """Repeat a request until it succeeds.

    Raises:
        AssertionError: if it does not in time.
    """

    async def is_done() -> bool:
        with suppress(grpc.aio.AioRpcError, CroupierError):
            return await attempt()
        return False

    await eventually(is_done, SERVED_S, what)


def check_reserved(
    roles: Mapping[str, str],
    old: Iterable[pb.TaskView],
    new: Iterable[pb.TaskView],
    offers: Iterable[pb.OfferView],
) -> Iterator[Violation]:
    """Yield what others got of agents that are reserved for these roles, by agent.

    `old` and `new` are tasks at two moments. What is in a hold was given before; and agents start
    the brief tasks that are lined up there until they are told not to.
    """
    known = {view.task.task_id for view in old if view.agent_id in roles}
    for task in new:
        is_placed = TaskState(task.status.state) is not TaskState.QUEUED
        is_old = task.task.task_id in known or BRIEF in task.task.task_id or bool(task.hold_id)
        if is_placed and not is_old and roles.get(task.agent_id, task.role) != task.role:
            yield Violation("reserved", task.agent_id, f"{task.task.task_id} is placed there")
    for view in offers:
        agent_id, role = view.offer.agent_id, view.offer.role
        if not view.offer.hold_id and roles.get(agent_id, role) != role:
            yield Violation("reserved", agent_id, f"it is offered to {role}")


def _bound(views: Iterable[pb.ReservationView]) -> dict[str, pb.ReservationView]:
    """Return the reservations that bind, by agent."""
    return {
        agent.agent_id: view for view in views if view.state in BINDING for agent in view.agents
    }

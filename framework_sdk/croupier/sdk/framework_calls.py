"""The calls of a framework to its master."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from croupier.model.attributes import Constraint, check_constraints, facts_of
from croupier.model.demand import Demand, check_demands
from croupier.model.durations import to_milliseconds
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.model.executor import check_message
from croupier.model.ids import Role
from croupier.model.isolation import known_features
from croupier.model.limits import DEFAULT_REFUSE_S
from croupier.model.resources import Resources
from croupier.model.task_group import check_parts
from croupier.model.verdict import OperationVerdict, TaskVerdict, Verdict
from croupier.sdk import wire
from croupier.sdk.core.subscription import AcceptedTasks, Subscription, one_demand
from croupier.sdk.gang import Gang
from croupier.sdk.hold import Hold
from croupier.sdk.offer import Agent, Offer
from croupier.sdk.output import read_output
from croupier.sdk.session import Session
from croupier.sdk.task import Task
from croupier.v1 import framework_pb2 as pb


class FrameworkCalls:
    """The calls of a framework, each of which waits for its verdict."""

    _session: Session
    _subscription: Subscription
    _is_insecure: bool

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
        return list((await self._send_accept(offers, launched, refuse_s)).tasks)

    async def hold(
        self,
        offers: Offer | Sequence[Offer],
        hold: Hold,
        tasks: Iterable[Task] = (),
        refuse_s: float = DEFAULT_REFUSE_S,
    ) -> Verdict:
        """Hold resources of `offers`, and launch `tasks`, which take from the hold first.

        A hold is made of offers without a `hold_id`, or of the rest beside such offers. Until it
        ends, what is unused of it is offered to this framework only, or to its role. Tasks that run
        in it when it ends run on. Submitted tasks use holds before anything else.

        Args:
            offers: of one agent and in one role. The remainder is declined for `refuse_s`.
            hold: what to hold.
            tasks: are launched on the hold and the rest of the offers.
            refuse_s: duration of the filter.

        Returns:
            The verdict: its only operation is about the hold, its tasks are those of the call. A
            refused hold does not affect the tasks.

        Raises:
            InvalidRequest, Unavailable, CroupierError: as `accept`.
        """
        return await self._send_accept(offers, list(tasks), refuse_s, hold)

    async def release(self, *hold_ids: str) -> list[OperationVerdict]:
        """End holds of this framework, and holds for a role that it made.

        Returns:
            One verdict per hold, in order. Its error is NotFound if the hold has ended already.

        Raises:
            Unavailable: if there is no answer within 30 s of connected time.
        """
        verdict = await self._session.call(pb.Call(release=pb.Release(hold_ids=hold_ids)))
        if verdict.error is not None:
            raise verdict.error
        return list(verdict.operations)

    async def launch_group(
        self,
        offers: Offer | Sequence[Offer],
        tasks: Iterable[Task],
        group_id: str | None = None,
        refuse_s: float = DEFAULT_REFUSE_S,
    ) -> list[TaskVerdict]:
        """Launch `tasks` as one group on the sum of `offers`: all of them, or none.

        They start together, and share a directory that CROUPIER_GROUP_DIR names. What the end of
        one means to the others is its `part`: those that are ended are KILLED with GROUP_ENDED.

        Args:
            offers: of one agent and in one role. The remainder is declined for `refuse_s`.
            tasks: at most 64.
            group_id: an id that no other group of the framework has; None makes one.
            refuse_s: duration of the filter.

        Returns:
            One verdict per task, in order. If one has an error, all have one.

        Raises:
            InvalidRequest, Unavailable, CroupierError: as `accept`.
        """
        grouped = _grouped(tasks, group_id or uuid.uuid4().hex)
        return list((await self._send_accept(offers, grouped, refuse_s)).tasks)

    async def _send_accept(
        self,
        offers: Offer | Sequence[Offer],
        launched: list[Task],
        refuse_s: float,
        hold: Hold | None = None,
    ) -> Verdict:
        if any(task.secrets for task in launched):
            self._session.check_secrets(is_insecure=self._is_insecure)
        offer_ids = _offer_ids(offers)
        first = offers if isinstance(offers, Offer) else offers[0]
        verdict = await self._session.call(
            wire.accept_call(offer_ids, launched, refuse_s, hold),
            answers=offer_ids,
            launch=AcceptedTasks(
                Role(first.role),
                tuple(task.resources for task in launched),
                facts_of(
                    first.hostname,
                    first.attributes,
                    known_features(first.isolation),
                    first.agent_id,
                ),
            ),
        )
        if [task.task_id for task in verdict.tasks] != [task.task_id for task in launched]:
            raise verdict.error or ProtocolViolation("the verdict is not about the call's tasks")
        if hold is not None and not verdict.operations:
            raise verdict.error or ProtocolViolation("the master does not know holds")
        return verdict

    async def decline(
        self, offers: Offer | Sequence[Offer], refuse_s: float = DEFAULT_REFUSE_S, reason: str = ""
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
        for call in wire.decline_calls(offer_ids, refuse_s, reason):
            await self._call(call, answers=offer_ids)

    async def submit(
        self,
        tasks: Iterable[Task],
        role: str | None = None,
        constraints: Iterable[Constraint] | None = None,
        max_per_agent: int | None = None,
        group: str | None = None,
        gang: Gang | None = None,
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
            group: the tasks are one group with this id, which no other group of the framework has:
                all are queued or none, and they are placed together, on one agent. See
                `launch_group`.
            gang: the tasks are this gang: all are queued or none, and they are placed together, on
                one or several agents.

        Returns:
            One verdict per task, in order.

        Raises:
            InvalidRequest: if a task is larger than the master takes, or secrets would be sent
                unencrypted to another machine.
            Unavailable: if there is no answer within 30 s of connected time. The tasks may have
                been queued: updates or `reconcile` show it.
        """
        if group is not None and gang is not None:
            raise InvalidRequest("tasks are one group or one gang, not both")
        listed = list(tasks) if group is None else _grouped(tasks, group)
        if gang is not None:
            listed = gang.members(listed)
        if any(task.secrets for task in listed):
            self._session.check_secrets(is_insecure=self._is_insecure)
        own = self._subscription.own(() if role is None else (role,))
        asked = check_constraints(constraints or ())
        most_bytes = self._session.max_bytes
        calls = wire.submit_calls(listed, own[0] if own else "", asked, max_per_agent, most_bytes)
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
        return await self._session.call_each(wire.withdraw_calls(list(task_ids)))

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
        wanted = check_demands(demands, self._subscription.roles)
        verdict = await self._session.call(wire.demand_call(wanted), demands=wanted)
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
        kill = pb.Kill(task_id=task_id)
        if grace_s is not None:
            kill.kill_policy.grace_ms = to_milliseconds("the kill grace", grace_s)
        await self._call(pb.Call(kill=kill))

    async def send_message(self, executor_id: str, data: bytes) -> None:
        """Send a message to an executor. It arrives at most once, and may be lost.

        It is lost if the executor is not registered with its agent, which it may not yet be when it
        is RUNNING, or takes no more messages. What must arrive is the `data` of a task.

        Args:
            executor_id: the task id of the executor.
            data: at most 64 KiB.

        Raises:
            NotFound: if the master knows no such task of this framework.
            InvalidRequest: if the data are too large, or that task is no executor.
            Conflict: if the executor has ended.
            Unavailable: if the message was dropped, because the agent is not connected or there
                are too many messages; or if the connection broke, so that it may be lost.
        """
        message = pb.SendMessage(task_id=executor_id, data=check_message(data))
        await self._call(pb.Call(send_message=message))

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

    async def _call(self, call: pb.Call, answers: Sequence[str] = ()) -> None:
        verdict = await self._session.call(call, answers=answers)
        if verdict.error is not None:
            raise verdict.error


def _grouped(tasks: Iterable[Task], group_id: str) -> list[Task]:
    grouped = [task.in_group(group_id) for task in tasks]
    check_parts(group_id, [task.part for task in grouped])
    return grouped


def _offer_ids(offers: Offer | Sequence[Offer]) -> list[str]:
    chosen = [offers] if isinstance(offers, Offer) else offers
    if not chosen:
        raise InvalidRequest("no offer is given")
    return [offer.id for offer in chosen]

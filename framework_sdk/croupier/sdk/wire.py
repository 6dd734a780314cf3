"""Calls and events of the framework protocol, to and from the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from croupier.model.attributes import Constraint, attribute_text
from croupier.model.clock import Clock
from croupier.model.demand import Demand
from croupier.model.durations import from_milliseconds, to_milliseconds
from croupier.model.errors import InvalidRequest
from croupier.model.limits import MAX_OFFERS_PER_CALL, MAX_REASON, MAX_TASKS_PER_SUBMIT
from croupier.model.verdict import OperationVerdict, TaskVerdict, Verdict
from croupier.net.errors import error_from_wire
from croupier.sdk.core.subscription import Subscription
from croupier.sdk.hold import Hold
from croupier.sdk.offer import Agent, Offer, PreemptRequest
from croupier.sdk.task import Task
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.resources import (
    attributes_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)
from croupier.wire.task import demand_to_wire, task_to_wire


def subscribe_call(identity: pb.Subscribe, subscription: Subscription) -> pb.Call:
    """Return a SUBSCRIBE with the current subscription and the constant fields in `identity`."""
    everywhere = subscription.suppressed == subscription.roles
    subscribe = pb.Subscribe(
        framework=pb.FrameworkInfo(
            framework_id=subscription.framework_id, roles=subscription.roles
        ),
        demands=map(demand_to_wire, subscription.demands),
        suppressed=everywhere,
        suppressed_roles=() if everywhere else subscription.suppressed,
    )
    subscribe.MergeFrom(identity)
    return pb.Call(subscribe=subscribe)


def accept_call(
    offer_ids: Sequence[str], tasks: Sequence[Task], refuse_s: float, hold: Hold | None = None
) -> pb.Call:
    """Return an ACCEPT that makes a hold and launches `tasks` on the sum of the offers.

    Tasks of one group that follow each other are launched together.
    """
    operations: list[pb.Operation] = []
    for group_id, unit in groupby(tasks, attrgetter("group_id")):
        messages = [task_to_wire(task.info, task.secrets) for task in unit]
        if group_id:
            operations.append(pb.Operation(launch_group=pb.LaunchGroup(tasks=messages)))
        else:
            operations.append(pb.Operation(launch=pb.Launch(tasks=messages)))
    if hold is not None:
        operations.append(pb.Operation(hold=_hold_to_wire(hold)))
    accept = pb.Accept(offer_ids=offer_ids, operations=operations, filters=_filters(refuse_s))
    return pb.Call(accept=accept)


def _hold_to_wire(hold: Hold) -> pb.Hold:
    return pb.Hold(
        hold_id=hold.id,
        resources=resources_to_wire(hold.resources),
        ttl_ms=0 if hold.ttl_s is None else max(1, to_milliseconds("the ttl", hold.ttl_s)),
        for_role=hold.for_role,
        volume=hold.volume,
    )


def submit_calls(
    tasks: Sequence[Task],
    role: str,
    constraints: Iterable[Constraint],
    max_per_agent: int | None,
    most_bytes: int,
) -> list[pb.Call]:
    """Return the SUBMITs of these tasks: a call has at most 1,000, and `most_bytes` of them.

    Tasks of one group or gang that follow each other are one call.
    """
    placement = pb.Submit(
        role=role,
        constraints=[constraint_to_wire(each) for each in constraints],
        max_per_agent=max_per_agent,
    )
    found: list[pb.Call] = []
    for (group_id, gang_id), unit in groupby(tasks, attrgetter("group_id", "gang_id")):
        messages = (task_to_wire(task.info, task.secrets) for task in unit)
        if group_id or gang_id:
            found.append(pb.Call(submit=placement))
            found[-1].submit.group, found[-1].submit.gang = bool(group_id), bool(gang_id)
            found[-1].submit.tasks.extend(messages)
        else:
            found += _split(messages, placement, most_bytes)
    return found


def _split(
    messages: Iterable[task_pb2.TaskInfo], placement: pb.Submit, most_bytes: int
) -> list[pb.Call]:
    found: list[pb.Call] = []
    size = 0
    for message in messages:
        # A field of a message takes a few bytes more than its content.
        taken = message.ByteSize() + 8
        last = found[-1].submit if found else None
        if last is None or len(last.tasks) == MAX_TASKS_PER_SUBMIT or size + taken > most_bytes:
            found.append(pb.Call(submit=placement))
            last, size = found[-1].submit, placement.ByteSize() + 64
        last.tasks.append(message)
        size += taken
    return found


def withdraw_calls(task_ids: Sequence[str]) -> list[pb.Call]:
    """Return the WITHDRAWs of these tasks; a call names at most 1,000."""
    parts = _parts(task_ids, MAX_TASKS_PER_SUBMIT)
    return [pb.Call(withdraw=pb.Withdraw(task_ids=part)) for part in parts]


def decline_calls(offer_ids: Sequence[str], refuse_s: float, reason: str) -> list[pb.Call]:
    """Return the DECLINEs of these offers: the master takes 1,000 offers in a call.

    Raises InvalidRequest if the reason is over 256 characters.
    """
    if len(reason) > MAX_REASON:
        raise InvalidRequest(f"the reason is longer than {MAX_REASON} characters")
    filters = _filters(refuse_s)
    parts = _parts(offer_ids, MAX_OFFERS_PER_CALL)
    declines = [pb.Decline(offer_ids=part, filters=filters, reason=reason) for part in parts]
    return [pb.Call(decline=decline) for decline in declines]


def _parts(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    return [ids[begin : begin + most] for begin in range(0, len(ids), most)]


def demand_call(demands: Iterable[Demand]) -> pb.Call:
    """Return an UPDATE_DEMAND."""
    return pb.Call(update_demand=pb.UpdateDemand(demands=map(demand_to_wire, demands)))


def verdict_from_wire(wire: pb.Verdict) -> Verdict:
    """Return the verdict in `wire`. A refused call launched no task, even if it lists one."""
    error = error_from_wire(wire.error) if wire.HasField("error") else None
    tasks = tuple(
        TaskVerdict(task.task_id, error_from_wire(task.error) if task.HasField("error") else error)
        for task in wire.tasks
    )
    operations = tuple(
        OperationVerdict(each.id, error_from_wire(each.error) if each.HasField("error") else error)
        for each in wire.operations
    )
    return Verdict(wire.seq, error, tasks, operations)


def preempt_from_wire(wire: pb.PreemptRequest, clock: Clock) -> PreemptRequest:
    """Return the request in `wire`, which has just arrived; its grace runs on `clock`."""
    grace_s = from_milliseconds(wire.grace_ms)
    return PreemptRequest(
        task_ids=tuple(wire.task_ids),
        agent_id=wire.agent_id,
        role=wire.role,
        grace_s=grace_s,
        reason=wire.reason,
        expires_at=clock.now() + grace_s,
        clock=clock,
    )


def agent_from_wire(wire: pb.AgentDescription) -> Agent:
    """Return the agent in `wire`; raises InvalidRequest if it is malformed."""
    attributes = attributes_from_wire(wire.attributes)
    texts = {name: attribute_text(value) for name, value in attributes.items()}
    return Agent(wire.agent_id, wire.hostname, wire.http_address, texts, frozenset(wire.isolation))


def offer_from_wire(wire: pb.Offer, agent: Agent | None, clock: Clock) -> Offer:
    """Return the offer in `wire`, which has just arrived, of an agent if it was described.

    Raises InvalidRequest if an amount of resources is malformed.
    """
    known = agent or Agent(wire.agent_id, hostname="", http_address="")
    return Offer(
        id=wire.offer_id,
        agent_id=wire.agent_id,
        hostname=known.hostname,
        resources=resources_from_wire(wire.resources),
        attributes=known.attributes,
        role=wire.role,
        http_address=known.http_address,
        expires_at=clock.now() + from_milliseconds(wire.lease_ms),
        clock=clock,
        isolation=known.isolation,
        hold_id=wire.hold_id,
    )


def _filters(refuse_s: float) -> pb.Filters:
    return pb.Filters(refuse_ms=to_milliseconds("the time to refuse", refuse_s))

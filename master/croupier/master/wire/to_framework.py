"""Messages to frameworks, in protobuf."""

from __future__ import annotations

from typing import assert_never

from croupier.master.core import messages
from croupier.model.ids import AgentId
from croupier.model.isolation import feature_names
from croupier.model.verdict import Verdict
from croupier.net.errors import error_to_wire
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.v1 import framework_pb2 as pb
from croupier.wire.resources import attributes_to_wire, devices_to_wire, resources_to_wire
from croupier.wire.task import status_to_wire

# The latest description of each agent that a session has carried.
KnownAgents = dict[AgentId, messages.AgentDescription]


def event_to_wire(message: messages.ToFramework, known: KnownAgents) -> pb.Event:
    """Return the event for `message`; adds to `known` the agents that it describes."""
    match message:
        case messages.Offered():
            described = _new(message.agent, known)
            return pb.Event(offers=pb.Offers(offers=[offer_to_wire(message)], agents=described))
        case Verdict():
            return pb.Event(verdict=verdict_to_wire(message))
        case messages.Updated(statuses):
            update = pb.Update(statuses=[status_to_wire(status) for status in statuses])
            return pb.Event(update=update)
        case messages.Placed(agent, statuses):
            update = pb.Update(statuses=[status_to_wire(status) for status in statuses])
            update.agents.extend(_new(agent, known))
            return pb.Event(update=update)
        case messages.Rescinded(offer_id, reason):
            return pb.Event(rescind=pb.Rescind(offer_id=offer_id, reason=reason))
        case messages.AgentFailed(agent_id, hostname, text):
            return pb.Event(failure=pb.Failure(agent_id=agent_id, hostname=hostname, message=text))
        case messages.MessageArrived(task_id, agent_id, data):
            arrived = pb.MessageArrived(task_id=task_id, agent_id=agent_id, data=data)
            return pb.Event(message_arrived=arrived)
        case messages.PreemptRequested(task_ids, agent_id, grace_s, role, reason):
            return pb.Event(
                preempt_request=pb.PreemptRequest(
                    task_ids=task_ids,
                    agent_id=agent_id,
                    grace_ms=round(grace_s * 1000),
                    role=role,
                    reason=reason,
                )
            )
        case messages.Subscribed(framework_id, heartbeat_s, master_id):
            return pb.Event(
                subscribed=pb.Subscribed(
                    framework_id=framework_id,
                    heartbeat_ms=round(heartbeat_s * 1000),
                    master_id=master_id,
                    max_message_bytes=MAX_MESSAGE_BYTES,
                    takes_secrets=True,
                    takes_submissions=True,
                )
            )
        case messages.Heartbeat():
            return pb.Event(heartbeat=pb.Heartbeat())
        case _:
            assert_never(message)


def verdict_to_wire(verdict: Verdict) -> pb.Verdict:
    """Return the answer to a call."""
    wire = pb.Verdict(seq=verdict.seq)
    if verdict.error is not None:
        wire.error.CopyFrom(error_to_wire(verdict.error))
    for task in verdict.tasks:
        refused = wire.tasks.add(task_id=task.task_id)
        if task.error is not None:
            refused.error.CopyFrom(error_to_wire(task.error))
    for operation in verdict.operations:
        answered = wire.operations.add(id=operation.id)
        if operation.error is not None:
            answered.error.CopyFrom(error_to_wire(operation.error))
    return wire


def agent_to_wire(agent: messages.AgentDescription) -> pb.AgentDescription:
    """Return the description of an agent that frameworks get."""
    return pb.AgentDescription(
        agent_id=agent.agent_id,
        hostname=agent.hostname,
        attributes=attributes_to_wire(agent.attributes),
        http_address=agent.http_address,
        isolation=feature_names(agent.features),
        devices=devices_to_wire(agent.devices),
    )


def offer_to_wire(offer: messages.Offered) -> pb.Offer:
    """Return an offer without the description of its agent."""
    return pb.Offer(
        offer_id=offer.offer_id,
        agent_id=offer.agent.agent_id,
        role=offer.role,
        resources=resources_to_wire(offer.resources),
        lease_ms=round(offer.lease_s * 1000),
        hold_id=offer.hold_id,
    )


def _new(agent: messages.AgentDescription, known: KnownAgents) -> list[pb.AgentDescription]:
    """Return the agent's description, unless the session has carried it."""
    if known.get(agent.agent_id) is agent:
        return []
    known[agent.agent_id] = agent
    return [agent_to_wire(agent)]

"""Orders to agents, in protobuf."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from croupier.master.access.cluster_keys import LinkKeys
from croupier.master.core.messages import Heartbeat, Registered, ToAgent
from croupier.master.leadership.lineage import Lineage
from croupier.model import agent_orders
from croupier.model.secrets import NO_SECRETS, SecretValues
from croupier.net.outbox import Encoded, joined
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, task_pb2
from croupier.wire.store_position import position_to_wire
from croupier.wire.task import task_to_wire, volume_to_wire


def response_to_wire(orders: Iterable[Encoded], epoch: int, lineage: Lineage) -> bytes:
    """Return a serialized response with `orders`, the epoch and the position of the store."""
    response = pb.AgentServiceConnectResponse(
        master_epoch=epoch,
        cluster=lineage.cluster,
        position=position_to_wire(lineage.position()),
        first_commit=lineage.first_commit,
    )
    return response.SerializeToString() + joined(orders)


def group_to_wire(launches: Iterable[pb.Order]) -> pb.Order:
    """Return the order to launch the tasks of these orders as a group."""
    tasks = [each.launch for each in launches]
    return pb.Order(launch_group=pb.LaunchTaskGroup(tasks=tasks))


def order_to_wire(
    message: ToAgent,
    secrets: SecretValues = NO_SECRETS,
    links: LinkKeys | None = None,
    reconnect_s: float = 0.0,
) -> pb.Order:
    """Return the order for `message`; a launch delivers `secrets`.

    REGISTERED has the agent's key of `links` to output (None: output needs no links), and the bound
    of its waits between attempts to reconnect (0: its own).
    """
    match message:
        case agent_orders.LaunchTask(
            framework_id, task, role, framework_epoch, proof, lined_up, sequence
        ):
            launch = pb.LaunchTask(
                framework_id=framework_id,
                task=task_to_wire(task, secrets),
                role=role,
                framework_epoch=framework_epoch,
                proof=bytes.fromhex(proof),
                lined_up=lined_up,
                sequence=sequence,
            )
            return pb.Order(launch=launch)
        case agent_orders.LaunchGroup(orders):
            return group_to_wire(order_to_wire(order) for order in orders)
        case agent_orders.RecallTask(framework_id, task_id):
            return pb.Order(recall=pb.RecallTask(framework_id=framework_id, task_id=task_id))
        case agent_orders.AcknowledgeUpdate(framework_id, task_id, sequence):
            return pb.Order(
                acknowledge=pb.AcknowledgeUpdate(
                    framework_id=framework_id, task_id=task_id, sequence=sequence
                )
            )
        case agent_orders.KillTask(framework_id, task_id, grace_ms, reason, framework_epoch):
            kill = pb.KillTask(
                framework_id=framework_id,
                task_id=task_id,
                reason=task_pb2.Reason.ValueType(reason),
                framework_epoch=framework_epoch,
            )
            if grace_ms is not None:
                kill.kill_policy.grace_ms = grace_ms
            return pb.Order(kill=kill)
        case agent_orders.ExecutorMessage(framework_id, task_id, data):
            sent = pb.ExecutorMessage(framework_id=framework_id, task_id=task_id, data=data)
            return pb.Order(executor_message=sent)
        case agent_orders.SetVolume(volume, size):
            return pb.Order(volume=volume_to_wire(volume, size))
        case agent_orders.ResendUpdates(framework_id):
            return pb.Order(resend=pb.ResendUpdates(framework_id=framework_id))
        case Registered(agent_id, heartbeat_s, master_id):
            return pb.Order(
                registered=pb.Registered(
                    agent_id=agent_id,
                    master_id=master_id,
                    heartbeat_ms=round(heartbeat_s * 1000),
                    takes_health=True,
                    link_key=b"" if links is None else links.key_of(agent_id),
                    requires_links=links is not None,
                    reconnect_ms=round(reconnect_s * 1000),
                )
            )
        case Heartbeat():
            return pb.Order(heartbeat=framework_pb2.Heartbeat())
        case _:
            assert_never(message)

"""Write a framework: a program that runs its tasks on what a Croupier master offers it.

    class Hello(Framework):
        async def on_offers(self, offers):
            await self.accept(offers[0], [Task(["echo", "hello"], resources=UNIT)])

    Hello(demand=UNIT, demand_count=1).run_forever()

These names are the whole public API, with `croupier.sdk.executor` for executors and
`croupier.sdk.testing` for tests.
"""

from croupier.model.attributes import (
    Constraint,
    enforces,
    equals,
    exists,
    matches,
    not_equals,
    not_exists,
    not_matches,
)
from croupier.model.demand import Demand
from croupier.model.devices import DeviceRequest
from croupier.model.errors import (
    Conflict,
    CroupierError,
    FailedOver,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    ProtocolViolation,
    Removed,
    TooSlow,
    Unauthenticated,
    Unavailable,
)
from croupier.model.executor import ExecutorSpec
from croupier.model.ids import Role
from croupier.model.isolation import Isolation, Limits, Usage
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskState, TaskStatus
from croupier.model.verdict import OperationVerdict, TaskVerdict, Verdict
from croupier.model.volume import VolumeMount
from croupier.sdk.core.offers import fit
from croupier.sdk.credentials import Credentials
from croupier.sdk.framework import Framework
from croupier.sdk.gang import Gang
from croupier.sdk.hold import Hold
from croupier.sdk.offer import Agent, Failure, Message, Offer, PreemptRequest
from croupier.sdk.task import Task

__all__ = [
    "Agent",
    "Conflict",
    "Constraint",
    "Credentials",
    "CroupierError",
    "Demand",
    "DeviceRequest",
    "ExecutorSpec",
    "FailedOver",
    "Failure",
    "Framework",
    "Gang",
    "Hold",
    "InvalidRequest",
    "Isolation",
    "Limits",
    "Message",
    "NotFound",
    "Offer",
    "OperationVerdict",
    "PermissionDenied",
    "PreemptRequest",
    "ProtocolViolation",
    "Reason",
    "Removed",
    "Resources",
    "Role",
    "Task",
    "TaskState",
    "TaskStatus",
    "TaskVerdict",
    "TooSlow",
    "Unauthenticated",
    "Unavailable",
    "Usage",
    "Verdict",
    "VolumeMount",
    "enforces",
    "equals",
    "exists",
    "fit",
    "matches",
    "not_equals",
    "not_exists",
    "not_matches",
]

"""A hold that a framework makes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from croupier.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Hold:
    """Resources of an agent that are offered to their owner only, until they are released.

    The framework, or its role, is charged for them as long as the hold lives, whether it uses them
    or not. What is unused is offered with `Offer.hold_id`.

    Attributes:
        ttl_s: seconds until the hold ends; None: it ends only when it is released.
        for_role: whether all frameworks in the role, and below it, may use it.
        volume: whether it is a volume: tasks that name it, as `Task(volumes=...)`, find a directory
            that stays until it is released. Its resources are disk only, and it is never offered.
        id: unique in the cluster among the holds that live.
    """

    resources: Resources
    ttl_s: float | None = None
    for_role: bool = False
    volume: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

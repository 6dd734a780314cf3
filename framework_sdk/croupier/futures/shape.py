"""The shape of a worker: calls of the same shape share workers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.sdk import Constraint, InvalidRequest, Resources

DEFAULT_CPUS: Final = 1.0
DEFAULT_MEM: Final = "512MB"


@dataclass(frozen=True, slots=True)
class Shape:
    """The task of a worker.

    Attributes:
        limits: hard limits, as those of a `Task`.
        image: root file system; empty for the agent's.
        python: the program that runs Python on the agent.
    """

    resources: Resources
    constraints: tuple[Constraint, ...] = ()
    limits: str = ""
    image: str = ""
    python: str = field(default_factory=lambda: sys.executable)
    # Each call looks up its shape several times, and a hash of resources is made of text.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.resources, self.constraints, self.limits, self.image, self.python
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash


def resources_of(
    cpus: float | None, mem: str | None, resources: Resources | str | None
) -> Resources | None:
    """Return the resources that the arguments name; None if they name none.

    Raises InvalidRequest if `resources` is given beside the others, or they cannot be read.
    """
    if resources is not None:
        if cpus is not None or mem is not None:
            raise InvalidRequest("give either resources, or cpus and mem")
        return Resources.parse(resources) if isinstance(resources, str) else resources
    if cpus is None and mem is None:
        return None
    cpus = DEFAULT_CPUS if cpus is None else cpus
    return Resources.parse(f"cpus:{cpus:g};mem:{DEFAULT_MEM if mem is None else mem}")


def shape_of(
    old: Shape,
    cpus: float | None,
    mem: str | None,
    resources: Resources | str | None,
    constraints: Iterable[Constraint] | None,
    limits: str | Mapping[str, str | float] | None,
    image: str | None,
    python: str | None,
) -> Shape:
    """Return the shape that the arguments name; what is None is that of `old`.

    Raises InvalidRequest as `resources_of` does.
    """
    if limits is not None and not isinstance(limits, str):
        limits = ";".join(f"{name}:{amount}" for name, amount in limits.items())
    return Shape(
        resources_of(cpus, mem, resources) or old.resources,
        old.constraints if constraints is None else tuple(constraints),
        old.limits if limits is None else limits,
        old.image if image is None else image,
        old.python if python is None else python,
    )

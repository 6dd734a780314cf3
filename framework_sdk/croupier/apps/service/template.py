"""From the `task` table of a version to the tasks of its instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from croupier.apps.job_file import TaskSpec
from croupier.apps.service.check_script import guarded
from croupier.apps.service.core.instance import Instance
from croupier.apps.service.core.placement import PORTS, Needs
from croupier.apps.service.core.rules import Check, Health
from croupier.sdk import Constraint, Demand, Resources, Task, exists, not_equals

MAX_PORTS: Final = 100
# A framework may have 100 constraints for each demand.
_MAX_AVOIDED: Final = 60


@dataclass(frozen=True, slots=True)
class Template:
    """What each instance of a version runs, and the number of its ports."""

    spec: TaskSpec
    ports: int

    def needs(self) -> Needs:
        """Return what one instance takes."""
        return Needs(self.spec.resources, self.ports, self.spec.task("check").needs)

    def demand(self, count: int, spread: str, avoided: Iterable[str]) -> Demand:
        """Return the demand for `count` instances, on no agent with an avoided value."""
        scalars = dict(self.spec.resources.scalars)
        if self.ports:
            scalars[PORTS] = self.ports * 1000
        return Demand(
            Resources(scalars),
            count,
            (*self.spec.conditions(), *_avoiding(spread, sorted(avoided))),
            # Instances go to different agents where they can.
            max_per_offer=1,
        )

    def task(self, service: str, instance: Instance, health: Health, resources: Resources) -> Task:
        """Return the task of an instance.

        Raises:
            InvalidRequest: if no agent can ever run it.
        """
        env = {
            "CROUPIER_SERVICE": service,
            "CROUPIER_INSTANCE": str(instance.slot),
            "CROUPIER_VERSION": str(instance.version),
            "HOST": instance.host,
        }
        spec = self.spec
        argv = spec.command or ("/bin/sh", "-c", spec.shell)
        if health.check is Check.COMMAND:
            argv = guarded(argv, health, spec.grace_s)
        given = replace(
            spec,
            command=argv,
            shell="",
            resources=resources,
            env={**env, **spec.env},
        )
        labels = {"service": service, "version": str(instance.version)}
        return given.task(instance.task_id, f"{service} {instance.slot}", labels)


def _avoiding(spread: str, avoided: list[str]) -> tuple[Constraint, ...]:
    """Return constraints against the values, and against agents without one if "" is among them."""
    if len(avoided) > _MAX_AVOIDED:
        return ()
    return tuple(not_equals(spread, value) if value else exists(spread) for value in avoided)

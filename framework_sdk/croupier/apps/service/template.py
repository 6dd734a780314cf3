"""Demands, and the tasks of instances, by the `task` table of a version."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from croupier.apps.job_file.section import Section
from croupier.apps.job_file.task_spec import TASK_KEYS, read_task
from croupier.apps.service.core.instance import Instance, Slot
from croupier.apps.service.core.placement import (
    PORTS,
    Room,
    Template,
    avoided_places,
    place_counts,
)
from croupier.apps.service.core.rules import Check
from croupier.apps.service.core.state import Service
from croupier.apps.service.health_checks import guarded
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.sdk import Constraint, Demand, Offer, Resources, Task, exists, not_equals

MAX_PORTS: Final = 100
# A framework may have 100 constraints for each demand.
_MAX_AVOIDED: Final = 60
# A service has waits and restarts of its own.
_NOT_OF_SERVICES: Final = ("timeout", "retries", "backoff", "requeue")
_TASK_KEYS: Final = tuple(key for key in TASK_KEYS if key not in _NOT_OF_SERVICES)


def read_template(task: Section, ports: int) -> Template:
    """Read the `task` table; raises InvalidRequest if it has a mistake."""
    task.check_keys(_TASK_KEYS)
    spec = read_task(task, keys_checked=True)
    total = spec.total
    if "ports" in total.scalars or total.ranges or total.sets:
        raise task.error("only amounts are allowed; give `ports = 2` beside `name`", "resources")
    return Template(spec, ports, spec.needs)


def _avoiding(spread: str, avoided: list[str]) -> tuple[Constraint, ...]:
    """Return constraints against the values, and against agents without one if "" is among them."""
    if len(avoided) > _MAX_AVOIDED:
        return ()
    return tuple(not_equals(spread, value) if value else exists(spread) for value in avoided)


class Demands:
    """The demands of one service, by the templates of its versions."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._templates: dict[int, Template] = {}

    def template(self, number: int) -> Template:
        """Return the template of a version; raises InvalidRequest if it is no longer valid."""
        if number not in self._templates:
            content = self._service.versions[number].content
            task = Section(content).required("task")
            self._templates[number] = read_template(task, int(content["ports"]))
        return self._templates[number]

    def tasks(self, instance: Instance, resources: Resources) -> list[Task]:
        """Return the task of an instance with `resources`, and those beside it.

        Raises InvalidRequest if no agent can ever run it.
        """
        spec, health = self.template(instance.version).spec, self._service.health_of(instance)
        service, version = self._service.name, str(instance.version)
        env = {
            "CROUPIER_SERVICE": service,
            "CROUPIER_INSTANCE": str(instance.slot),
            "CROUPIER_VERSION": version,
            "HOST": instance.host,
        }
        argv = spec.command or ("/bin/sh", "-c", spec.shell)
        if health.check is Check.COMMAND:
            argv = guarded(argv, health, spec.grace_s)
        beside = {n: replace(s, env={**env, **s.env}) for n, s in spec.beside.items()}
        given = replace(
            spec,
            command=argv,
            shell="",
            resources=resources,
            env={**env, **spec.env},
            beside=beside,
        )
        labels = {"service": service, "version": version}
        return given.tasks(instance.task_id, f"{service} {instance.slot}", labels)

    def of(self, version: int, count: int, avoided: Iterable[str]) -> Demand:
        """Return the demand for `count` instances of a version, but on no `avoided` place."""
        template, spread = self.template(version), self._service.rules.spread
        scalars = dict(template.spec.total.scalars)
        if template.ports:
            scalars[PORTS] = template.ports * 1000
        conditions = (*template.spec.conditions(), *_avoiding(spread, sorted(avoided)))
        # Instances go to different agents where they can.
        return Demand(Resources(scalars), count, conditions, max_per_offer=1)

    def room(self, offer: Offer) -> Room:
        """Return an offer as the core sees it."""
        spread = self._service.rules.spread
        if not spread:
            where = offer.agent_id
        elif spread == "hostname":
            where = offer.hostname
        else:
            where = offer.attributes.get(spread, "")
        return Room(offer.id, offer.agent_id, _host(offer), where, offer.resources, offer.isolation)

    def wanted(self, now: float) -> list[Demand]:
        """Return what is lacking; offers of nothing else are made."""
        service = self._service
        due: dict[int, list[Slot]] = {}
        for slot in service.launches_due(now):
            if slot.version in service.versions:
                due.setdefault(slot.version, []).append(slot)
        if not due:
            return [self.of(service.target, 0, ())]
        counts = place_counts(service)
        demands: dict[tuple[object, ...], Demand] = {}
        for version, slots in due.items():
            longest = min(slots, key=lambda s: now if s.wanted_since is None else s.wanted_since)
            demand = self.of(version, len(slots), avoided_places(service, longest, counts, now))
            # Versions of one shape are one demand.
            key = (demand.unit, frozenset(demand.constraints))
            if key in demands:
                demand = replace(demand, count=len(slots) + (demands[key].count or 0))
            demands[key] = demand
        return list(demands.values())


def _host(offer: Offer) -> str:
    """Return the address at which the ports of the agent's tasks are reached."""
    with suppress(InvalidRequest):
        return Address.parse(offer.http_address.rpartition("//")[2]).host
    return offer.hostname

"""The state of a service as JSON values, for its file.

What a restart finds out again, such as the results of checks, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

from croupier.apps.service.core.instance import Instance, Stop
from croupier.apps.service.core.rollout import Rollout, RolloutState
from croupier.apps.service.core.rules import Check, Health, Restart, Rules, Update, Version
from croupier.apps.service.core.slot import Slot
from croupier.apps.service.core.state import Service

T = TypeVar("T")

_PASSING: Final = {
    Instance: ("misses", "check_due", "is_checking", "checked", "killed_at"),
    Slot: ("wanted_since",),
}
_SIMPLE: Final = (
    "name",
    "token",
    "target",
    "stable",
    "previous",
    "next_version",
    "next_task",
    "is_stopping",
)


def to_json(service: Service) -> dict[str, Any]:
    """Return what `from_json` reads."""
    return {
        **{name: getattr(service, name) for name in _SIMPLE},
        "rules": asdict(service.rules),
        "rollout": asdict(service.rollout),
        "versions": [asdict(each) for each in service.versions.values()],
        "slots": [_kept(each) for each in service.slots.values()],
        "instances": [_kept(each) for each in service.instances.values()],
    }


def from_json(values: Mapping[str, Any]) -> Service:
    """Return the service.

    Raises:
        KeyError, TypeError, ValueError: if the values are not those of a service.
    """
    rules = dict(values["rules"])
    versions = [_version(each) for each in values["versions"]]
    slots = [_made(Slot, each) for each in values["slots"]]
    instances = [_instance(each) for each in values["instances"]]
    rollout = dict(values["rollout"])
    return Service(
        **{name: values[name] for name in _SIMPLE},
        rules=_made(
            Rules,
            {
                **rules,
                "restart": _made(Restart, rules["restart"]),
                "update": _made(Update, rules["update"]),
            },
        ),
        rollout=_made(Rollout, {**rollout, "state": RolloutState(rollout["state"])}),
        versions={each.number: each for each in versions},
        slots={each.index: each for each in slots},
        instances={each.task_id: each for each in instances},
    )


def _kept(value: Instance | Slot) -> dict[str, Any]:
    return {key: kept for key, kept in asdict(value).items() if key not in _PASSING[type(value)]}


def _version(values: Mapping[str, Any]) -> Version:
    health = dict(values["health"])
    made = _made(Health, {**health, "check": Check(health["check"])})
    return _made(Version, {**values, "health": made})


def _instance(values: Mapping[str, Any]) -> Instance:
    ports = tuple(map(int, values["ports"]))
    return _made(Instance, {**values, "ports": ports, "stop": Stop(values["stop"])})


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass; keys that a newer release has added are ignored."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in known})

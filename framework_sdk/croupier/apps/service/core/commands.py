"""Changes that an operator makes to a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from croupier.apps.service.core.rules import MAX_INSTANCES, Health, Rules, Version
from croupier.apps.service.core.state import Rollout, RolloutState, Service
from croupier.model.errors import Conflict, InvalidRequest


def apply(
    service: Service,
    rules: Rules,
    digest: str,
    health: Health,
    content: Mapping[str, Any],
    now: float,
) -> bool:
    """Apply a file; return whether it starts an update.

    A file whose instances would be the same changes only the rules and the number of instances.
    """
    was_stopped, service.is_stopping = service.is_stopping, False
    service.rules = rules
    if service.versions[service.target].digest == digest:
        if was_stopped:
            service.rollout = Rollout(service.target, RolloutState.ROLLING, now)
        return was_stopped
    _roll(service, Version(service.next_version, digest, health, content), now)
    return True


def is_rejected(service: Service, digest: str) -> bool:
    """Return whether the latest update was to this content, and was rolled back."""
    version = service.versions.get(service.rollout.version)
    is_back = service.rollout.state in (RolloutState.ROLLING_BACK, RolloutState.ROLLED_BACK)
    return is_back and version is not None and version.digest == digest


def scale(service: Service, instances: int) -> None:
    """Set the number of instances, until a file is applied.

    Raises:
        InvalidRequest: if there cannot be that many.
        Conflict: if the service is stopping.
    """
    _check_runs(service)
    if not 0 <= instances <= MAX_INSTANCES:
        raise InvalidRequest(f"a service has between 0 and {MAX_INSTANCES} instances")
    service.news.append(f"scaled from {service.rules.instances} to {instances} instances")
    service.rules = replace(service.rules, instances=instances)


def restart(service: Service, now: float) -> None:
    """Replace all instances, by an update to the same version.

    Raises:
        Conflict: if the service is stopping.
    """
    _check_runs(service)
    old = service.versions[service.target]
    _roll(service, Version(service.next_version, old.digest, old.health, old.content), now)


def undo(service: Service, now: float) -> int:
    """Return to the version before the latest update; return its number.

    Raises:
        Conflict: if there is none.
    """
    _check_runs(service)
    if service.stable is not None and service.target != service.stable:
        service.target = service.stable
        service.rollout.state = RolloutState.ROLLING_BACK
        service.rollout.reason = "undone by an operator"
        service.rollout.is_paused = False
        return service.target
    if service.previous is None or service.previous not in service.versions:
        raise Conflict(f"service {service.name} has no earlier version to return to")
    service.target = service.previous
    service.rollout = Rollout(service.target, RolloutState.ROLLING, now)
    return service.target


def pause(service: Service, *, is_paused: bool) -> None:
    """Halt or continue the update.

    Raises:
        Conflict: if there is none under way.
    """
    _check_runs(service)
    if service.rollout.state.is_over:
        raise Conflict(f"service {service.name} has no update under way")
    service.rollout.is_paused = is_paused


def _roll(service: Service, version: Version, now: float) -> None:
    service.next_version = version.number + 1
    service.versions[version.number] = version
    service.target = version.number
    service.rollout = Rollout(version.number, RolloutState.ROLLING, now)


def _check_runs(service: Service) -> None:
    if service.is_stopping:
        raise Conflict(f"service {service.name} is stopped; apply its file to start it")

"""Events of a service: states and ends of its tasks, checks, and changes by an operator."""

from __future__ import annotations

import re
from dataclasses import replace

from croupier.apps.controller.outcomes import is_blameless
from croupier.apps.service.core.instance import Instance, Stop
from croupier.apps.service.core.rules import MAX_INSTANCES, Rules, Version
from croupier.apps.service.core.state import Rollout, RolloutState, Service
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.task import TaskState, TaskStatus

_RUNS = frozenset({TaskState.RUNNING, TaskState.KILLING})


def on_live(service: Service, status: TaskStatus, now: float) -> None:
    """Apply the state of a task that has not ended; adopt one that is not known."""
    instance = service.instances.get(status.task_id) or _adopt(service, status, now)
    instance.agent_id = status.agent_id or instance.agent_id
    if status.state is TaskState.UNREACHABLE:
        if instance.unreachable_since is None:
            instance.unreachable_since = now
            service.news.append(f"{_label(instance)}: its agent cannot be reached")
    elif status.state in _RUNS:
        instance.on_running(now)
    else:
        instance.unreachable_since = None


def on_end(service: Service, status: TaskStatus, now: float) -> None:
    """Apply the end of a task, or that the master does not know it any more."""
    instance = service.remove(status.task_id)
    if instance is None:
        return
    slot = service.slots.get(instance.slot)
    text = str(instance.stop) if instance.is_stopping else _end_text(status)
    if instance.stop is not Stop.UNREACHABLE:
        service.news.append(f"{_label(instance)}: ended: {text}")
    if slot is None or (instance.is_stopping and instance.stop is not Stop.PREEMPTED):
        return
    restart = service.rules.restart
    if instance.is_stopping or is_blameless(status):
        slot.on_loss(instance.task_id, restart, now)
    elif instance.version == slot.version:
        slot.on_failure(text, instance.task_id, restart, now)


def on_refused(service: Service, task_id: str, text: str, now: float, *, is_fault: bool) -> None:
    """Apply a refused launch; with `is_fault` the version is to blame, such as by a bad command."""
    instance = service.remove(task_id)
    slot = None if instance is None else service.slots.get(instance.slot)
    if instance is None or slot is None:
        return
    if is_fault:
        slot.on_failure(text, task_id, service.rules.restart, now)
        service.news.append(f"{_label(instance)}: refused: {text}")
    else:
        slot.on_loss(task_id, service.rules.restart, now)


def on_preempt(service: Service, task_ids: tuple[str, ...]) -> None:
    """End instances whose resources the master takes back."""
    for task_id in task_ids:
        instance = service.instances.get(task_id)
        if instance is not None and not instance.is_stopping:
            instance.stop = Stop.PREEMPTED
            service.news.append(f"{_label(instance)}: ended, as the master takes its resources")


def on_check(service: Service, task_id: str, *, passed: bool, text: str, now: float) -> None:
    """Apply the result of a health check."""
    instance = service.instances.get(task_id)
    if instance is not None:
        health = service.health_of(instance)
        was_healthy = instance.healthy_since is not None
        instance.on_check(health, passed=passed, text=text, now=now)
        if was_healthy != (instance.healthy_since is not None):
            state = "unhealthy" if was_healthy else "healthy"
            service.news.append(f"{_label(instance)}: {state}: {text}")


def _adopt(service: Service, status: TaskStatus, now: float) -> Instance:
    """Take over a task that another controller of this service launched."""
    found = re.match(r".*-([0-9]{1,6})-v[0-9]+-", status.task_id)
    index = int(found[1]) if found else service.rules.instances
    instance = Instance(status.task_id, index, 0, now, agent_id=status.agent_id)
    if status.state is TaskState.RUNNING:
        # It ran before, and nothing else is known of it: it counts as available at once.
        instance.running_since = instance.healthy_since = now - service.rules.update.settle_s
    slot = service.slots.get(index)
    if slot is not None and not any(not each.is_stopping for each in service.members(index)):
        slot.assign(0, now)
    service.add(instance)
    service.news.append(f"{_label(instance)}: taken over: {status.task_id}")
    return instance


def _end_text(status: TaskStatus) -> str:
    if status.message:
        return status.message[:200]
    if status.exit_code is not None:
        return f"exit code {status.exit_code}"
    return status.state.name if status.signal is None else f"signal {status.signal}"


def _label(instance: Instance) -> str:
    version = f"v{instance.version}" if instance.version else "of another controller"
    return f"instance {instance.slot} ({version})"


def apply(service: Service, rules: Rules, version: Version, now: float) -> bool:
    """Apply a file; return whether it starts an update, to `version` with the next number.

    A file whose instances would be the same changes only the rules and the number of instances.
    """
    was_stopped, service.is_stopping = service.is_stopping, False
    service.rules = rules
    if service.versions[service.target].digest == version.digest:
        if was_stopped:
            service.rollout = Rollout(service.target, RolloutState.ROLLING, now)
        return was_stopped
    _roll(service, version, now)
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
        Conflict: if the service is stopping, as the next ones raise, too.
    """
    _check_runs(service)
    if not 0 <= instances <= MAX_INSTANCES:
        raise InvalidRequest(f"a service has between 0 and {MAX_INSTANCES} instances")
    service.news.append(f"scaled from {service.rules.instances} to {instances} instances")
    service.rules = replace(service.rules, instances=instances)


def restart(service: Service, now: float) -> None:
    """Replace all instances, by an update to the same version."""
    _check_runs(service)
    _roll(service, service.versions[service.target], now)


def undo(service: Service, now: float) -> int:
    """Return to the version before the latest update; return its number.

    Raises Conflict if there is none.
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
    """Halt or continue the update; raises Conflict if there is none under way."""
    _check_runs(service)
    if service.rollout.state.is_over:
        raise Conflict(f"service {service.name} has no update under way")
    service.rollout.is_paused = is_paused


def _roll(service: Service, version: Version, now: float) -> None:
    """Start an update to `version`, under the next number."""
    number, service.next_version = service.next_version, service.next_version + 1
    service.versions[number] = replace(version, number=number)
    service.target = number
    service.rollout = Rollout(number, RolloutState.ROLLING, now)


def _check_runs(service: Service) -> None:
    if service.is_stopping:
        raise Conflict(f"service {service.name} is stopped; apply its file to start it")

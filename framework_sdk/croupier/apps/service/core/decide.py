"""The decisions of a service: from its state to kills and versions.

Rule: the controller ends an available instance only while at most `max_unavailable` wanted slots
are unavailable after that, or while another instance of the slot is available.
"""

from __future__ import annotations

from typing import Final

from croupier.apps.service.core.instance import Instance, Slot, Stop
from croupier.apps.service.core.state import RolloutState, Service

# A kill is sent again if the task has not ended this long after it.
KILL_AGAIN_S: Final = 30.0


def decide(service: Service, now: float, *, is_connected: bool = True) -> list[str]:
    """Decide at time `now`; return the ids of tasks to kill.

    Time without a connection to a master does not count against an update.
    """
    gap, service.decided_at = now - service.decided_at, max(now, service.decided_at)
    if service.is_stopping:
        for instance in service.instances.values():
            _stop(instance, Stop.SERVICE_STOPPED)
        service.slots.clear()
        return _kills_due(service, now)
    if not is_connected:
        _shift_deadlines(service, gap)
    _fit_slots(service, now)
    _observe(service, now)
    if now >= service.hold_until:
        _judge_rollout(service, now)
        _assign_versions(service, now)
        for slot in list(service.slots.values()):
            _stop_members(service, slot, now)
        _stop_unhealthy(service, now)
        _finish_rollout(service, now)
    _note_wants(service, now)
    return _kills_due(service, now)


def resume(service: Service, now: float) -> None:
    """Continue after a restart of the controller: deadlines begin anew."""
    service.decided_at = now
    for slot in service.slots.values():
        if slot.down_since is not None:
            slot.down_since = now
        slot.not_before = min(slot.not_before, now + service.rules.restart.most_s)
    for instance in service.instances.values():
        instance.killed_at = None
        instance.check_due = now


def _shift_deadlines(service: Service, gap: float) -> None:
    for slot in service.slots.values():
        if slot.down_since is not None:
            slot.down_since += max(0.0, gap)


def _fit_slots(service: Service, now: float) -> None:
    """Add slots, and end those that are not wanted any more."""
    for index in range(service.rules.instances):
        if index not in service.slots:
            service.slots[index] = Slot(index, service.target, down_since=now)
    for instance in service.instances.values():
        if instance.slot >= service.rules.instances:
            _stop(instance, Stop.SURPLUS)
    for index in [each for each in service.slots if each >= service.rules.instances]:
        del service.slots[index]


def _observe(service: Service, now: float) -> None:
    for instance in service.instances.values():
        instance.observe_time(service.health_of(instance), now)
    for slot in service.slots.values():
        slot.observe(service.is_up(slot.index, now, slot.version), service.rules.restart, now)


def _judge_rollout(service: Service, now: float) -> None:
    """End an update whose instances fail."""
    rollout = service.rollout
    if rollout.state is not RolloutState.ROLLING or rollout.is_paused:
        return
    reason = _fault(service, now)
    if not reason:
        return
    rollout.reason = reason
    can_return = service.stable is not None and service.stable != service.target
    if can_return and service.rules.update.rolls_back:
        assert service.stable is not None
        service.news.append(
            f"version {service.target} failed: {reason}; rolling back to version {service.stable}"
        )
        service.target, rollout.state = service.stable, RolloutState.ROLLING_BACK
    else:
        service.news.append(f"version {service.target} failed: {reason}")
        rollout.state = RolloutState.FAILED


def _fault(service: Service, now: float) -> str:
    update = service.rules.update
    for slot in service.wanted_slots():
        if slot.version != service.target:
            continue
        if slot.failures >= update.failures:
            return f"instance {slot.index} failed {slot.failures} times: {slot.last_failure}"
        if slot.down_since is not None and now - slot.down_since > update.healthy_within_s:
            last = f" ({slot.last_failure})" if slot.last_failure else ""
            limit = f"{update.healthy_within_s:g} s"
            return f"instance {slot.index} is not available after {limit}{last}"
    return ""


def _assign_versions(service: Service, now: float) -> None:
    """Give slots the wanted version, as far as the rules allow."""
    rollout, update = service.rollout, service.rules.update
    if rollout.is_paused or (rollout.state is RolloutState.FAILED and service.stable is not None):
        return
    outdated = [slot for slot in service.wanted_slots() if slot.version != service.target]
    serving = [slot for slot in outdated if service.is_up(slot.index, now)]
    for slot in outdated:
        if slot not in serving and not _is_out_of_reach(service, slot):
            slot.assign(service.target, now)
    down = service.unavailable(now)
    surging = sum(slot.is_surging for slot in service.wanted_slots())
    for slot in serving:
        if slot.is_surging:
            # Its new instance is of a version that is not wanted any more; the old one serves.
            slot.assign(service.target, now, is_surging=not _runs_target(service, slot))
        elif surging < update.surge:
            slot.assign(service.target, now, is_surging=True)
            surging += 1
        elif down < update.max_unavailable:
            slot.assign(service.target, now)
            down += 1


def _is_out_of_reach(service: Service, slot: Slot) -> bool:
    """Return whether its instance may still run where the master cannot see it."""
    return any(
        each.unreachable_since is not None and not each.is_stopping
        for each in service.members(slot.index)
    )


def _runs_target(service: Service, slot: Slot) -> bool:
    return any(
        each.version == service.target and not each.is_stopping
        for each in service.members(slot.index)
    )


def _stop_members(service: Service, slot: Slot, now: float) -> None:
    """End the instances of a slot that are outdated, double, or lost."""
    members = [each for each in service.members(slot.index) if not each.is_stopping]
    current = [each for each in members if each.version == slot.version]
    keeps_old = slot.is_surging and not any(service.is_available(i, now) for i in current)
    old = [each for each in members if each.version != slot.version]
    serving = [each for each in old if keeps_old and service.is_available(each, now)]
    for instance in old:
        if instance not in serving[:1]:
            _stop(instance, Stop.OUTDATED)
    for instance in _doubles(service, current, now):
        _stop(instance, Stop.SURPLUS)
    for instance in current:
        since = instance.unreachable_since
        if since is None or instance.is_stopping or service.is_available(instance, now):
            continue
        is_sick = instance.is_sick(service.health_of(instance))
        if is_sick or now - since >= service.rules.unreachable_s:
            _stop(instance, Stop.UNREACHABLE)
            slot.on_loss(instance.task_id, service.rules.restart, now)
            service.news.append(f"instance {slot.index}: replaced, as its agent is lost")


def _doubles(service: Service, current: list[Instance], now: float) -> list[Instance]:
    """Return all but the best of several instances in one slot."""
    best = max(
        current,
        key=lambda i: (service.is_available(i, now), i.unreachable_since is None, -i.launched_at),
        default=None,
    )
    return [each for each in current if each is not best]


def _stop_unhealthy(service: Service, now: float) -> None:
    """End instances that fail their checks, at most `max_unavailable` that once were healthy.

    A fault between controller and instances must not end all of them at once. Those that the
    controller has ended count until their slot is available again, or for `healthy_within_s`.
    """
    update = service.rules.update
    most = max(1, update.max_unavailable)
    ailing = sum(
        slot.ailing_until > now and not service.is_up(slot.index, now)
        for slot in service.wanted_slots()
    )
    for slot in service.wanted_slots():
        for instance in service.members(slot.index):
            if instance.is_stopping or not instance.is_sick(service.health_of(instance)):
                continue
            if instance.was_healthy:
                if ailing >= most:
                    continue
                ailing += 1
                slot.ailing_until = now + update.healthy_within_s
            _stop(instance, Stop.UNHEALTHY)
            text = f"unhealthy: {instance.checked}"
            slot.on_failure(text, instance.task_id, service.rules.restart, now)
            service.news.append(f"instance {slot.index} (v{instance.version}): ended: {text}")


def _finish_rollout(service: Service, now: float) -> None:
    """Record the end of an update: every slot runs the target, and nothing else is left."""
    rollout, target = service.rollout, service.target
    if rollout.state in (RolloutState.DONE, RolloutState.ROLLED_BACK):
        return
    slots = service.wanted_slots()
    if not all(s.version == target and service.is_up(s.index, now, target) for s in slots):
        return
    if any(each.version != target for each in service.instances.values()):
        return
    if rollout.state is RolloutState.ROLLING_BACK:
        rollout.state = RolloutState.ROLLED_BACK
        service.news.append(f"rolled back to version {target}")
    else:
        rollout.state, rollout.reason = RolloutState.DONE, ""
        if service.stable != target:
            service.previous, service.stable = service.stable, target
        service.news.append(f"version {target} runs: {len(slots)} of {len(slots)} instances")
    rollout.is_paused = False
    _forget_versions(service)


def _forget_versions(service: Service) -> None:
    kept = {service.target, service.stable, service.previous, service.rollout.version}
    for number in [each for each in service.versions if each not in kept]:
        del service.versions[number]


def _note_wants(service: Service, now: float) -> None:
    due = {slot.index for slot in service.launches_due(now)}
    for slot in service.slots.values():
        if slot.index not in due:
            slot.wanted_since = None
        elif slot.wanted_since is None:
            slot.wanted_since = now


def _stop(instance: Instance, why: Stop) -> None:
    if not instance.is_stopping:
        instance.stop = why


def _kills_due(service: Service, now: float) -> list[str]:
    due = []
    for instance in service.instances.values():
        if not instance.is_stopping:
            continue
        if instance.killed_at is None or now - instance.killed_at >= KILL_AGAIN_S:
            instance.killed_at = now
            due.append(instance.task_id)
    return due

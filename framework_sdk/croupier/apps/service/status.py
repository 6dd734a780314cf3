"""A service as people and scripts see it: its status, and the lines of its controller."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Final

from croupier.apps.service.core.instance import Instance
from croupier.apps.service.core.state import RolloutState, Service
from croupier.cli.table import Column, Table, number, text
from croupier.cli.terminal import print_lines
from croupier.model.durations import duration_text
from croupier.model.printable import printable
from croupier.process.logging import lines_to
from croupier.process.queue_writer import LineWriter

KEPT: Final = 500


def service_view(service: Service, now: float, *, controller_pid: int) -> dict[str, Any]:
    """Return the service as JSON values; `controller_pid` is 0 if no controller runs."""
    rollout = service.rollout
    wanted = service.wanted_slots()
    instances = sorted(service.instances.values(), key=lambda each: (each.slot, each.launched_at))
    return {
        "name": service.name,
        "role": service.role,
        "framework_id": service.framework_id,
        "state": "taken over" if service.is_superseded else state_of(service, now),
        "controller_pid": controller_pid,
        "wanted": len(wanted) if service.is_stopping else service.rules.instances,
        "available": sum(service.is_up(slot.index, now) for slot in wanted),
        "version": service.target,
        "stable_version": service.stable,
        "rollout": {
            "version": rollout.version,
            "state": rollout.state.value,
            "is_paused": rollout.is_paused,
            "reason": rollout.reason,
            "is_over": rollout.state.is_over,
            "updated": sum(service.is_up(s.index, now, service.target) for s in wanted),
        },
        "instances": [_row(service, each, now) for each in instances],
        "waiting": [
            {
                "instance": slot.index,
                "failures": slot.failures,
                "last_failure": slot.last_failure,
                "launch_in_s": round(max(0.0, slot.not_before - now), 1),
            }
            for slot in wanted
            if not service.members(slot.index)
        ],
    }


def state_of(service: Service, now: float) -> str:
    """Return the state of the service in a word or two."""
    if service.is_stopping:
        return "stopped" if not service.instances else "stopping"
    if not service.rollout.state.is_over:
        return "paused" if service.rollout.is_paused else service.rollout.state.value
    if service.rollout.state is RolloutState.FAILED:
        return "failed"
    return "degraded" if service.unavailable(now) else "running"


def summary_lines(view: dict[str, Any]) -> list[str]:
    """Return the lines above the table of instances."""
    rollout = view["rollout"]
    pid = view["controller_pid"]
    lines = [
        f"service     {view['name']} ({view['state']})",
        f"available   {view['available']} of {view['wanted']}",
        f"version     {view['version']}",
        f"update      to version {rollout['version']}: {rollout['state']}"
        + (" (paused)" if rollout["is_paused"] else "")
        + (f": {rollout['reason']}" if rollout["reason"] else ""),
        f"controller  {f'process {pid}' if pid else 'none runs; instances are not replaced'}",
    ]
    for slot in view["waiting"]:
        why = f", after {slot['failures']} failures" if slot["failures"] else ""
        last = f" ({slot['last_failure']})" if slot["last_failure"] else ""
        when = f"starts in {slot['launch_in_s']} s" if slot["launch_in_s"] else "waits for offers"
        lines.append(f"instance {slot['instance']}: {when}{why}{last}")
    return lines


def _row(service: Service, instance: Instance, now: float) -> dict[str, Any]:
    return {
        "instance": instance.slot,
        "version": instance.version,
        "state": _instance_state(service, instance, now),
        "task_id": instance.task_id,
        "agent_id": instance.agent_id,
        "host": instance.host,
        "ports": list(instance.ports),
        "place": instance.place if service.rules.spread else "",
        "running_s": None if instance.running_since is None else now - instance.running_since,
        "check": instance.checked,
    }


def _instance_state(service: Service, instance: Instance, now: float) -> str:
    if instance.is_stopping:
        return f"ending ({instance.stop})"
    if instance.unreachable_since is not None:
        return "unreachable"
    if instance.running_since is None:
        return "launching"
    if service.is_available(instance, now):
        return "available"
    if instance.healthy_since is not None:
        return "healthy"
    return "unhealthy" if instance.was_healthy else "starting"


INSTANCES = Table(
    (
        number("INSTANCE", "instance"),
        number("VERSION", "version"),
        text("STATE", "state"),
        Column(
            "ADDRESS",
            lambda row: ",".join(f"{row['host']}:{port}" for port in row["ports"]) or row["host"],
        ),
        text("PLACE", "place", rank=2),
        Column(
            "AGE",
            lambda row: "" if row["running_s"] is None else duration_text(row["running_s"]),
            rank=1,
        ),
        text("CHECK", "check", rank=3),
        text("TASK", "task_id", is_id=True),
    ),
    "no instances",
)
SERVICES = Table(
    (
        text("SERVICE", "name"),
        text("STATE", "state"),
        Column("AVAILABLE", lambda view: f"{view['available']}/{view['wanted']}"),
        number("VERSION", "version"),
        Column("CONTROLLER", lambda view: str(view["controller_pid"] or "none")),
    ),
    "no services",
)


class Journal:
    """The latest 500 lines, numbered; `last` is the latest number, 0 before the first line."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._lines: deque[str] = deque(maxlen=KEPT)
        self.last = 0
        self._stdout: LineWriter | None = None

    def write(self, line: str) -> None:
        """Print a line, and keep it. No state of stdout ends or delays a service."""
        self._print(f"{self._service}: {line}")
        self._lines.append(line)
        self.last += 1

    def since(self, number: int) -> list[str]:
        """Return the lines after line `number`."""
        return list(self._lines)[-(self.last - number) :] if number < self.last else []

    def _print(self, line: str) -> None:
        try:
            fd = sys.stdout.fileno()
        except (OSError, ValueError):
            print_lines(line)  # stdout is no file
            return
        if self._stdout is None:
            self._stdout = lines_to(fd, self._on_recovered)
        self._stdout.put(f"{printable(line)}\n".encode())

    def _on_recovered(self, lost: int) -> None:
        self._print(f"{self._service}: {lost} lines before this one could not be written")

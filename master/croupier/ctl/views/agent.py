"""Agents, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.api.http_pb2 import Affected
from croupier.cli.table import Column, Table, age, amount, number, object_id, text
from croupier.cli.terminal import View, many, named
from croupier.ctl.views.isolation import default_user_text, levels_text
from croupier.model.devices import DEVICES
from croupier.model.durations import duration_text
from croupier.model.scalar import MILLI, format_milli, format_scalar

_MAX_BLOCKERS = 10
_IN_USE = ("used", "offered", "held")


def state_text(agent: View) -> str:
    """Return the agent's state, such as `connected, draining (3 left)`."""
    words = [agent["state"]]
    drain = agent["drain"]
    if drain is not None:
        words.append("drained" if drain["done"] else f"draining ({drain['tasks_left']} left)")
    if agent["deactivated"]:
        words.append("deactivated")
    if agent["problems"]:
        words.append(f"unhealthy ({', '.join(each['part'] for each in agent['problems'])})")
    if agent["decided_in_s"] is not None:
        words.append(f"given up in {duration_text(agent['decided_in_s'])}")
    return ", ".join(words)


def held_text(agent: View) -> str:
    """Return the idle part of the agent's holds; empty if there is none."""
    return str(agent["held"]["text"])


AGENTS = Table(
    (
        text("HOST", "hostname"),
        object_id("AGENT", "agent_id", 1),
        Column("STATE", state_text),
        number("TASKS", "tasks", 2),
        amount("USED", "used", 3),
        amount("OFFERED", "offered", 6),
        Column("HELD", held_text, rank=6, is_optional=True),
        amount("TOTAL", "total", 4),
        Column(
            "ATTRIBUTES",
            lambda view: ";".join(f"{name}:{value}" for name, value in view["attributes"].items()),
            rank=7,
        ),
        Column(
            "ISOLATION",
            lambda view: levels_text(view["isolation"]) if _is_isolation_known(view) else "",
            rank=8,
        ),
        age("CONNECTED", "age_s", 5),
    ),
    "no agents are registered",
)


def _is_isolation_known(agent: View) -> bool:
    # A master that took over learns it from the registration.
    return bool(agent["isolation"]) or agent["state"] == "connected"


def name_of(agent: View) -> str:
    """Return the agent's hostname with its id."""
    return f"agent {named(agent['hostname'], agent['agent_id'])}"


def drain_lines(agent: View) -> Iterator[str]:
    """Yield the progress of the agent's drain, and the tasks that it waits for."""
    drain = agent["drain"]
    if drain["done"]:
        yield f"{name_of(agent)} is drained: it has no tasks left, and gets no offers"
        return
    line = f"{name_of(agent)} is draining: {many(drain['tasks_left'], 'task')} left"
    if drain["estimate_s"] is None:
        yield f"{line}; the remaining time is unknown while the agent is disconnected"
    else:
        yield f"{line}; all are killed within {duration_text(drain['estimate_s'])}"
    blockers = drain["blockers"]
    for each in blockers[:_MAX_BLOCKERS]:
        yield f"  {each['task_id']} of {each['framework_id']}: {each['reason']}"
    if len(blockers) > _MAX_BLOCKERS:
        yield f"  and {len(blockers) - _MAX_BLOCKERS} more"


def task_count_lines(affected: Affected) -> Iterator[str]:
    """Yield the number of tasks of each framework."""
    for each in affected.frameworks:
        framework = named(each.name, each.framework_id)
        yield f"  {many(each.tasks, 'task')} of framework {framework}"


def device_lines(agent: View) -> Iterator[str]:
    """Yield each named device of the agent, and the tasks that have a part of it."""
    slots = [slot for key in _IN_USE for slot in agent[key]["sets"].get(DEVICES, ())]
    taken = {slot.partition("#")[0] for slot in slots}
    for device in agent["devices"]:
        about = [device["type"]] if device["type"] else []
        if device["memory_mib"]:
            about.append(format_scalar("mem", device["memory_mib"] * MILLI))
        about += [f"{each['topology']} {each['name']}" for each in device["groups"]]
        if device["slots"] > 1:
            about.append(f"{device['slots']} slots")
        uses = [each for each in agent["device_uses"] if each["device_id"] == device["device_id"]]
        tasks = [f"{each['task_id']} ({format_milli(each['milli'])})" for each in uses]
        what = f" ({', '.join(about)})" if about else ""
        # Offered or held, or of a task that the caller may not view.
        state = "taken" if device["device_id"] in taken else "free"
        yield f"  {device['kind']} {device['device_id']}{what}: {', '.join(tasks) or state}"


def agent_lines(agent: View, affected: Affected | None = None) -> Iterator[str]:
    """Yield all that is known about an agent; `affected` is by its live tasks."""
    yield f"{name_of(agent)}: {state_text(agent)}"
    for key in ("total", "used", "offered"):
        yield f"  {key}: {agent[key]['text'] or 'nothing'}"
    if held_text(agent):
        yield f"  held and idle: {held_text(agent)} (croupier holds)"
    attributes = ", ".join(f"{name}:{value}" for name, value in agent["attributes"].items())
    yield f"  attributes: {attributes or 'none'}"
    if _is_isolation_known(agent):
        isolation = agent["isolation"]
        features = f" ({', '.join(isolation)})" if isolation else ""
        yield f"  isolation: {levels_text(isolation)}{features}"
        yield f"  tasks without a user run as: {default_user_text(agent['default_user'])}"
    else:
        yield "  isolation: unknown until it is connected"
    yield f"  address: {agent['http_address'] or 'none'}"
    yield from device_lines(agent)
    for each in agent["problems"]:
        yield f"  unhealthy: {each['part']}: {each['message']}"
    if affected is not None:
        yield from task_count_lines(affected)
    if agent["drain"] is not None:
        yield from drain_lines(agent)

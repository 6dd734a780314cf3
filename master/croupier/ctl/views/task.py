"""Tasks and offers, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.api.times import time_text
from croupier.ctl.table import Column, Table, age, amount, text
from croupier.ctl.views.amounts import View
from croupier.ctl.views.isolation import isolation_text, use_lines
from croupier.model.task import Reason, TaskState

# Reasons that the state or the exit code implies.
_PLAIN = (Reason.NONE.name, Reason.COMMAND_EXECUTOR_FAILED.name)


def task_lines(task: View, live_use: View | None = None) -> Iterator[str]:
    """Yield all that is known about a task; `live_use` is what it has used so far, if it runs."""
    named = f" ({task['name']})" if task["name"] else ""
    code = _code_text(task)
    ending = f", code {code}" if code else ""
    why = _reason_text(task)
    yield f"task {task['task_id']}{named}: {task['state']}{ending}{f' ({why})' if why else ''}"
    if task["message"]:
        yield f"  message: {task['message']}"
    yield f"  framework: {task['framework_id']}, role {task['role']}"
    if task["state"] == TaskState.QUEUED.name:
        yield f"  agent: it waits for one (croupier why {task['framework_id']} tells why)"
    else:
        pid = f", pid {task['pid']}" if task["pid"] else ""
        yield f"  agent: {task['agent_id'] or 'none'}{pid}"
    yield from _time_lines(task)
    yield f"  command: {task['shell'] or ' '.join(task['command'] or ()) or 'unknown'}"
    if task["secrets"]:
        yield f"  secrets: {', '.join(task['secrets'])}"
    yield f"  resources: {task['resources']['text']}"
    isolation = isolation_text(task["isolation"]) if task["isolation"] else ""
    if isolation:
        yield f"  isolation: {isolation}"
    yield from use_lines(task["resources"], task["limits"], live_use or task["usage"])


def _time_lines(task: View) -> Iterator[str]:
    """Yield the times that are known, with the spans between them."""
    earlier_ms = None
    for word in ("submitted", "placed", "started", "ended"):
        at_ms = task.get(f"{word}_ms")
        if at_ms is None:
            continue
        after = ""
        if earlier_ms is not None:
            # The clocks of master and agent may differ.
            after = f", after {max(0, at_ms - earlier_ms) / 1000:.3f} s"
        yield f"  {word}: {time_text(at_ms)}{after}"
        earlier_ms = at_ms


def _code_text(view: View) -> str:
    """Return the exit code, or -N if signal N ended the task."""
    if view["signal"] is not None:
        return str(-view["signal"])
    return "" if view["exit_code"] is None else str(view["exit_code"])


def _reason_text(view: View) -> str:
    return "" if view["reason"] in (*_PLAIN, view["state"]) else str(view["reason"])


OFFERS = Table(
    (
        text("OFFER", "offer_id", is_id=True),
        text("FRAMEWORK", "framework_id", 4, is_id=True),
        text("AGENT", "agent_id", 3, is_id=True),
        text("ROLE", "role", 5),
        Column("LEASE", lambda view: f"{view['lease_s']:g}s", is_number=True, rank=1),
        amount("RESOURCES", "resources", 2),
    ),
    "no offers are outstanding",
)
TASKS = Table(
    (
        text("TASK", "task_id", is_id=True),
        text("NAME", "name", 6),
        text("FRAMEWORK", "framework_id", 1, is_id=True),
        text("AGENT", "agent_id", 5, is_id=True),
        text("ROLE", "role", 7),
        text("STATE", "state"),
        Column("CODE", _code_text, is_number=True, rank=3),
        Column("WHY", _reason_text, rank=4),
        amount("RESOURCES", "resources", 8),
        age("AGE", "age_s", 2),
    ),
    "no tasks are running or have ended recently",
)
TASKS_WITH_COMMANDS = Table(
    (
        *TASKS.columns,
        Column("COMMAND", lambda view: view["shell"] or " ".join(view["command"] or ()), rank=4),
    ),
    TASKS.empty,
)

"""Tasks and offers, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from croupier.api.times import time_text
from croupier.cli.table import Column, Table, age, amount, object_id, text
from croupier.cli.terminal import View, many, named
from croupier.ctl.views.isolation import isolation_text, use_lines
from croupier.model.durations import span_text
from croupier.model.ids import short_id
from croupier.model.preemption import CHECKPOINT_SIGNALS
from croupier.model.task import TERMINAL, Reason, TaskState

_ENDED = frozenset(state.name for state in TERMINAL)


def is_live(task: View) -> bool:
    """Return whether a task has not ended."""
    return task["state"] not in _ENDED


def _is_lined_up(task: View) -> bool:
    return bool(task["state"] == TaskState.QUEUED.name and task["hostname"])


def task_lines(task: View) -> Iterator[str]:
    """Yield all that is known about a task."""
    title = f" ({task['name']})" if task["name"] else ""
    code = _code_text(task)
    ending = f", code {code}" if code else ""
    why = _reason_text(task)
    yield f"task {task['task_id']}{title}: {task['state']}{ending}{f' ({why})' if why else ''}"
    if task["message"]:
        yield f"  message: {task['message']}"
    framework_id = task["framework_id"]
    yield f"  framework: {named(task['framework_name'], framework_id)}, role {task['role']}"
    if _is_lined_up(task):
        yield f"  agent: lined up at {task['hostname']}, behind tasks like it"
    elif task["state"] == TaskState.QUEUED.name:
        yield f"  agent: it waits for one (croupier why {short_id(framework_id)} tells why)"
    else:
        pid = f", pid {task['pid']}" if task["pid"] else ""
        yield f"  agent: {named(task['hostname'], task['agent_id']) or 'none'}{pid}"
    yield from _unit_lines(task)
    yield from _time_lines(task)
    if task["executor_id"]:
        yield f"  executor: {task['executor_id']}"
    else:
        yield f"  command: {task['shell'] or ' '.join(task['command'] or ()) or 'unknown'}"
    if task["secrets"]:
        yield f"  secrets: {', '.join(task['secrets'])}"
    yield f"  resources: {task['resources']['text']}"
    if task["hold_id"]:
        yield f"  hold: {task['hold_id']}"
    for mount in task["volumes"]:
        how = ", read-only" if mount["read_only"] else ""
        yield f"  volume: {mount['volume_id']} at {mount['path']}{how}"
    yield from _preemption_lines(task)
    isolation = isolation_text(task["isolation"]) if task["isolation"] else ""
    if isolation:
        yield f"  isolation: {isolation}"
    if task["executor_id"]:
        yield f"  limits and use: those of its executor (croupier task show {task['executor_id']})"
    else:
        yield from use_lines(task["resources"], task["limits"], task["usage"])


def _unit_lines(task: View) -> Iterator[str]:
    """Yield the group and the gang of the task."""
    if task["group"]:
        yield f"  group: {task['group']['group_id']}, its {task['group']['part']}"
    if gang := task["gang"]:
        hosts = f" on {', '.join(gang['hosts'])}" if gang["hosts"] else ""
        yield f"  gang: {gang['gang_id']}, rank {gang['rank']} of {gang['size']}{hosts}"
        if gang["restarts"]:
            yield f"  restarts of its gang: {task['requeues']} of {gang['restarts']} so far"


def _preemption_lines(task: View) -> Iterator[str]:
    """Yield what preemption may do with the task, and has done."""
    rules = task["preemption"] or {}
    if rules.get("min_run_s"):
        yield f"  minimum run time: {span_text(rules['min_run_s'])}"
    if rules.get("checkpoint_signal"):
        yield f"  checkpoint signal: {CHECKPOINT_SIGNALS[rules['checkpoint_signal']]}"
    if rules.get("requeue"):
        yield f"  requeued after preemption: {many(task['requeues'], 'time')} so far"


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
    """Return the reason, unless the state or the exit code implies it."""
    is_plain = view["reason"] in (Reason.NONE.name, view["state"])
    is_exit = view["reason"] == Reason.COMMAND_EXECUTOR_FAILED.name and _code_text(view)
    return "" if is_plain or is_exit else str(view["reason"])


def _why_text(view: View) -> str:
    """Return the reason of a task's state, or that its agent has not returned to a new master."""
    is_staging = view["state"] == TaskState.STAGING.name
    return str(view["message"]) if is_staging else _reason_text(view)


def _failure_text(view: View) -> str:
    """Return how a task failed, such as `code 3` or `MEMORY_LIMIT`."""
    code, reason = _code_text(view), _reason_text(view)
    words = [f"code {code}" if code else "", reason]
    return ", ".join(filter(None, words)) or str(view["state"])


# Masters do not know the names of older tasks.
_FRAMEWORK = Column(
    "FRAMEWORK", lambda view: view["framework_name"] or short_id(view["framework_id"])
)
_HOST = Column("HOST", lambda view: view["hostname"] or short_id(view["agent_id"]), is_id=True)
# The first that a narrow terminal leaves out: names are before them.
_IDS = (object_id("FRAMEWORK-ID", "framework_id", 10), object_id("AGENT-ID", "agent_id", 11))
OFFERS = Table(
    (
        object_id("OFFER", "offer_id"),
        replace(_FRAMEWORK, rank=4),
        replace(_HOST, rank=3),
        text("ROLE", "role", 5),
        Column("LEASE", lambda view: f"{view['lease_s']:g}s", is_number=True, rank=1),
        amount("RESOURCES", "resources", 2),
        *_IDS,
    ),
    "no offers are outstanding",
)


def _gang_text(view: View) -> str:
    """Return the rank and the gang of a task, such as `3 of train`."""
    gang = view["gang"]
    return f"{gang['rank']} of {gang['gang_id']}" if gang else ""


TASKS = Table(
    (
        text("TASK", "task_id", is_id=True),
        text("NAME", "name", 6),
        replace(_FRAMEWORK, rank=1),
        replace(_HOST, rank=5),
        text("ROLE", "role", 7),
        text("STATE", "state"),
        Column("CODE", _code_text, is_number=True, rank=3),
        Column("WHY", _why_text, rank=4),
        amount("RESOURCES", "resources", 8),
        age("AGE", "age_s", 2),
        *_IDS,
        Column(
            "GROUP",
            lambda view: view["group"]["group_id"] if view["group"] else "",
            rank=9,
            is_optional=True,
        ),
        Column("GANG", _gang_text, rank=9, is_optional=True),
        Column(
            "REQUEUES",
            lambda view: str(view["requeues"] or ""),
            is_number=True,
            rank=8,
            is_optional=True,
        ),
    ),
    "no tasks are running or have ended recently",
)
FAILURES = Table(
    (
        text("TASK", "task_id", is_id=True),
        replace(_FRAMEWORK, rank=2),
        replace(_HOST, rank=3),
        Column("WHY", lambda view: _failure_text(view)),
        age("AGO", "age_s", 1),
        text("MESSAGE", "message", 4),
    ),
    "no task has failed recently in this term",
)
_COMMAND = Column("COMMAND", lambda view: view["shell"] or " ".join(view["command"] or ()), rank=4)


def _start_text(task: View, key: str) -> str:
    """Return a time of the forecast of a task; it is unknown for some that wait."""
    if not task["forecast"]:
        return "lined up" if _is_lined_up(task) else ""
    seconds = task["forecast"][key]
    return "unknown" if seconds is None else span_text(seconds)


_ETA = (
    Column("ETA", lambda view: _start_text(view, "median_s"), is_number=True, rank=2),
    Column("ETA-90%", lambda view: _start_text(view, "late_s"), is_number=True, rank=3),
)


def task_table(*, commands: bool = False, eta: bool = False) -> Table:
    """Return the table of tasks, with these columns beside."""
    more = ((_COMMAND,) if commands else ()) + (_ETA if eta else ())
    return Table((*TASKS.columns, *more), TASKS.empty)

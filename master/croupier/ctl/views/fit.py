"""What could start now, as `croupier fit` shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from croupier.cli.terminal import View, many, named
from croupier.model.durations import span_text

# Agents and tasks that are printed; `--json` has more.
MOST_ROWS: Final = 10


def fit_lines(found: View, unit: str, role: str, count: int | None) -> Iterator[str]:
    """Yield how many tasks fit, where, why not elsewhere, and what would help for one more.

    The last is left out if `count` tasks fit.
    """
    units = found["units"]
    place = f" in role {role}" if role else ""
    yield f"{many(units, 'task')} of <{unit}> could start now{place}"
    if found["limit"]:
        yield f"  no more because of a limit: {found['limit']}"
        if found["fitting"] > units:
            yield f"  the agents have room for {found['fitting']}"
    agents = found["agents"]
    for agent in agents[:MOST_ROWS]:
        yield f"  {agent['units']} on {named(agent['hostname'], agent['agent_id'])}"
    further = len(agents[MOST_ROWS:]) + found["other_agents"]
    if further:
        yield f"  and more on {many(further, 'other agent')}"
    for reason in found["reasons"]:
        detail = f": {reason['detail']}" if reason["detail"] else ""
        yield f"  {reason['cause']}, {many(reason['agents'], 'agent')}{detail}"
    if (count is None or units < count) and not found["limit"]:
        yield from _move_lines(found["move"])


def _move_lines(move: View | None) -> Iterator[str]:
    if move is None:
        yield "no end of tasks makes room for one more"
        return
    where = f"agent {named(move['hostname'], move['agent_id'])}" if move["agent_id"] else "an agent"
    offers = [many(move["offers"], "offer")] if move["offers"] else []
    tasks = [many(move["count"], "task")] if move["count"] else []
    shown = move["tasks"][:MOST_ROWS]
    end = ":" if shown else ""
    yield f"one more would fit on {where} without {' and '.join([*offers, *tasks])}{end}"
    for task in shown:
        framework = named(task["framework_name"], task["framework_id"])
        yield (
            f"  task {task['task_id']} of {framework} in role {task['role']}:"
            f" {task['resources']['text']}, for {span_text(task['age_s'])}"
        )
    further = move["count"] - len(shown)
    if shown and further:
        yield f"  and {many(further, 'other task')}"

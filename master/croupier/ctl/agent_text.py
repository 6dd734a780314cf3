"""What is said of agents: how they stand, how far a drain is, what would come of an operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from croupier.ctl.views import View
from croupier.model.durations import duration_text

# Of what stands in the way, so much is shown.
_SHOWN = 10


def state_words(agent: View) -> str:
    """How the agent stands, in a few words: `connected, draining (3 left)`."""
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


def named(agent: View) -> str:
    """The agent's id, with its hostname."""
    host = agent["hostname"]
    return f"agent {agent['agent_id']}" + (f" ({host})" if host else "")


def progress_line(agent: View) -> str:
    """How far the agent's drain is, in one line."""
    drain = agent["drain"]
    if drain["done"]:
        return f"{named(agent)} is drained: no task is left, and it is offered to nobody"
    left, estimate = drain["tasks_left"], drain["estimate_s"]
    line = f"{named(agent)} is draining: {many(left, 'task')} left"
    if estimate is None:
        return f"{line}; the agent is away, so it cannot be said until when"
    return f"{line}; all are ended by force within {duration_text(estimate)}"


def blocker_lines(agent: View) -> Iterator[str]:
    """What stands in the way of a drain; what it does not wait for is not shown at its end."""
    drain = agent["drain"]
    if drain["done"]:
        return
    blockers = drain["blockers"]
    for each in blockers[:_SHOWN]:
        yield f"  {each['task_id']} of {each['framework_id']}: {each['reason']}"
    if len(blockers) > _SHOWN:
        yield f"  and {len(blockers) - _SHOWN} more"


def task_lines(tasks: Sequence[View], frameworks: Sequence[View]) -> Iterator[str]:
    """How many of these tasks each framework has."""
    names = {each["framework_id"]: each["name"] for each in frameworks}
    counts = Counter(task["framework_id"] for task in tasks)
    for framework_id, number in sorted(counts.items()):
        name = names.get(framework_id, "")
        yield f"  {many(number, 'task')} of framework {framework_id}" + (f" ({name})" * bool(name))


def agent_lines(agent: View, tasks: Sequence[View], frameworks: Sequence[View]) -> Iterator[str]:
    """All that is known of an agent."""
    yield f"{named(agent)}: {state_words(agent)}"
    for key in ("total", "used", "offered"):
        yield f"  {key}: {agent[key]['text'] or 'nothing'}"
    attributes = ", ".join(f"{name}:{value}" for name, value in agent["attributes"].items())
    yield f"  attributes: {attributes or 'none'}"
    yield f"  address: {agent['http_address'] or 'none'}"
    for each in agent["problems"]:
        yield f"  unhealthy: {each['part']}: {each['message']}"
    yield from task_lines(tasks, frameworks)
    if agent["drain"] is not None:
        yield progress_line(agent)
        yield from blocker_lines(agent)


def many(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"

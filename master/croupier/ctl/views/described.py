"""Lines of events; and the pages of `croupier describe`: one object, its tasks and its events."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from croupier.api.times import time_text
from croupier.cli.table import Table, lines_of
from croupier.cli.terminal import View, many
from croupier.ctl.views import agent as agents
from croupier.ctl.views import framework as frameworks
from croupier.ctl.views.framework import framework_lines, reason_lines
from croupier.ctl.views.role import (
    budget_text,
    min_run_text,
    past_text,
    preemption_text,
    resource_weights_text,
)
from croupier.ctl.views.task import TASKS
from croupier.model.durations import duration_text
from croupier.model.printable import printable

# Narrower terminals get the time without the date, and no kind.
WIDE: Final = 80
KIND_WIDTH: Final = 22


def agent_page(found: View, width: int | None) -> Iterator[str]:
    """Yield all about an agent; tables are as wide as `width`, or in full if it is None."""
    agent = found["agent"]
    yield from agents.agent_lines(agent)
    if agent.get("age_s") is not None:
        yield f"  connected for: {duration_text(agent['age_s'])}"
    agent_id = agent["agent_id"]
    yield from _tasks(found, agent["tasks"], f"croupier tasks --agent {agent_id}", width)
    yield from event_section(found["events"], width)


def framework_page(found: View, width: int | None) -> Iterator[str]:
    """Yield all about a framework, as `agent_page` does."""
    framework, why = found["framework"], found["why"]
    framework_id = framework["framework_id"]
    state = frameworks.state_text(framework)
    first, *rest = framework_lines(framework, why["policy"], state, why["lined_up_hosts"])
    yield first
    noun = "role" if len(framework["roles"]) == 1 else "roles"
    yield f"  {noun}: {', '.join(framework['roles'])}"
    yield from rest
    if framework.get("age_s") is not None:
        yield f"  connected for: {duration_text(framework['age_s'])}"
    yield f"  runs on: {framework['hostname'] or 'unknown'}"
    if framework["webui_url"]:
        yield f"  web page: {framework['webui_url']}"
    timeout = duration_text(framework["failover_timeout_s"])
    yield f"  its tasks end if it is away for: {timeout}"
    more = f"croupier tasks --framework {framework_id}"
    yield from _tasks(found, framework["tasks"], more, width, "FRAMEWORK")
    yield ""
    yield from reason_lines(why, "")
    yield from event_section(found["events"], width)


def role_page(found: View, width: int | None) -> Iterator[str]:
    """Yield all about a role, as `agent_page` does."""
    role = found["role"]
    weights = resource_weights_text(role)
    yield f"role {role['role']}: weight {role['weight']:g}" + (f" ({weights})" if weights else "")
    past = past_text(role)
    if past:
        yield f"  it used {past}"
    yield f"  its share is {role['share']:.3f}, and it is entitled to {role['entitlement']:.3f}"
    for key in ("used", "offered"):
        yield f"  {key}: {role[key]['text'] or 'nothing'}"
    yield f"  guarantee: {role['guarantee']['text'] or 'none'}"
    yield f"  limit: {role['limit']['text'] or 'none'}"
    inherited = "as in the role above"
    yield f"  preemption: {preemption_text(role) or inherited}"
    if role["budget"]:
        yield f"  budget: {budget_text(role)}"
    yield f"  minimum run time: {min_run_text(role) or inherited}"
    yield ""
    yield f"{many(role['frameworks'], 'framework')}" + (":" if found["frameworks"] else "")
    if found["frameworks"]:
        yield from lines_of(Table(frameworks.FRAMEWORKS.columns, ""), found["frameworks"], width)
        if role["frameworks"] > len(found["frameworks"]):
            yield f"croupier frameworks --text {role['role']} lists all"
        yield "croupier why FRAMEWORK tells why one gets no more offers"
    yield from _tasks(found, role["tasks"], f"croupier tasks --role {role['role']}", width)
    yield from event_section(found["events"], width)


def _tasks(
    found: View, number: int, more: str, width: int | None, omitted: str = ""
) -> Iterator[str]:
    """Yield how many tasks have not ended, and the first ones, without the column `omitted`."""
    tasks = found["tasks"]
    yield ""
    yield f"{many(number, 'task')} that {'has' if number == 1 else 'have'} not ended" + (
        ":" if tasks else ""
    )
    if tasks:
        columns = tuple(each for each in TASKS.columns if each.title != omitted)
        yield from lines_of(Table(columns, ""), tasks, width)
    if number > len(tasks):
        yield f"{more} lists all"


def event_section(events: Sequence[View], width: int | None) -> Iterator[str]:
    """Yield recent events under a title; nothing if there are none."""
    if events:
        yield ""
        yield "recent events:"
        for event in events:
            yield from (f"  {line}" for line in event_lines(event, width and width - 2))


def event_lines(event: View, width: int | None) -> list[str]:
    """Return the lines of an event, wrapped between words at `width` columns; None: not wrapped."""
    is_wide = width is None or width >= WIDE
    time = time_text(event["time_ms"])
    head = f"{(time if is_wide else time[11:19]) or '?'} "
    if is_wide:
        head += f"{printable(event['kind']):{KIND_WIDTH}} "
    text = printable(event["text"])
    if width is None:
        return [head + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * (len(head) if is_wide else 2),
        break_long_words=False,
        break_on_hyphens=False,
    )

"""What the commands say of a framework: its state, and what its teardown means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from croupier.ctl.agent_text import many
from croupier.ctl.views import View
from croupier.model.durations import duration_text


def framework_state_words(framework: View) -> str:
    """The framework's state in a few words: `disconnected, removed in 9 min 20 s`."""
    words = [framework["state"]]
    if framework["suppressed"]:
        words.append("suppressed")
    if framework["removed_in_s"] is not None:
        words.append(f"removed in {duration_text(framework['removed_in_s'])}")
    return ", ".join(words)


def teardown_lines(
    framework: View, tasks: Sequence[View], hostnames: Mapping[str, str]
) -> Iterator[str]:
    """The consequences of a teardown; `tasks` are those that have not ended."""
    name, framework_id = framework["name"], framework["framework_id"]
    state = framework_state_words(framework)
    yield f"framework {framework_id} ({name}) is {state}; if it is torn down:"
    yield "  no program can subscribe under its id ever again"
    if not tasks:
        yield "  it has no task that has not ended"
        return
    holds = framework["used"]["text"] or "nothing"
    are = "is" if len(tasks) == 1 else "are"
    yield f"  {many(len(tasks), 'task')} {are} killed; it holds {holds}:"
    counts = Counter(task["agent_id"] for task in tasks)
    for agent_id, number in sorted(counts.items()):
        host = hostnames.get(agent_id, "")
        yield f"    {many(number, 'task')} on agent {agent_id}" + (f" ({host})" if host else "")

"""States of tasks, as people write them."""

from __future__ import annotations

from collections.abc import Iterable

from croupier.cli.amounts import View
from croupier.model.errors import InvalidRequest
from croupier.model.suggestions import unknown_word
from croupier.model.task import TERMINAL, TaskState

_ENDED = frozenset(state.name for state in TERMINAL)


def is_live(task: View) -> bool:
    """Return whether a task has not ended."""
    return task["state"] not in _ENDED


def state_numbers(words: Iterable[str]) -> list[int]:
    """Return the states of these names; case and the prefix `TASK_` do not matter.

    Raises:
        InvalidRequest: if there is no such state; it names the nearest one.
    """
    known = {state.name: state.value for state in TaskState}
    numbers = []
    for word in words:
        name = word.upper().removeprefix("TASK_")
        if name not in known:
            raise InvalidRequest(f"--state: {unknown_word('state', word, known)}")
        numbers.append(known[name])
    return numbers

"""Filters of the lists that operators request.

Rule: text is compared without regard to case. A filter without a condition lets all pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from croupier.master.core.agents import STATE_NAMES, Agent
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.services.views import WallTime
from croupier.master.services.visibility import Visibility
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, short_id
from croupier.model.suggestions import unknown_word
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb

# Words for what may be said of an agent beside its state.
AGENT_WORDS: Final = (*STATE_NAMES, "draining", "drained", "deactivated", "unhealthy")
MAX_TEXT: Final = 500
# Fields of requests that leave the list as it is.
_NO_FILTER: Final = ("page_size", "page_token", "with_commands")

TaskTest = Callable[[Task | TaskSnapshot], bool]


def filter_key(request: Any) -> str:
    """Return a short text that identifies the filter of a request; empty if all items pass."""
    parts = [
        f"{field.name}={sorted(value) if field.is_repeated else value}"
        for field, value in request.ListFields()
        if field.name not in _NO_FILTER
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else ""


def text_filter(text: str) -> Callable[..., bool]:
    """Return a test of whether a text contains `text`; raises InvalidRequest if it is too long."""
    if len(text) > MAX_TEXT:
        raise InvalidRequest(f"a text to search for has at most {MAX_TEXT} characters")
    wanted = text.lower()

    def passes(*texts: str) -> bool:
        return not wanted or any(wanted in each.lower() for each in texts)

    return passes


def agent_filter(request: pb.ListAgentsRequest) -> Callable[[Agent], bool]:
    """Return the test of a request; raises InvalidRequest. O(its tasks) if drains are asked for."""
    words, has_text = {word.lower() for word in request.states}, text_filter(request.text)
    for word in sorted(words.difference(AGENT_WORDS)):
        raise InvalidRequest(unknown_word("state", word, AGENT_WORDS))

    def passes(agent: Agent) -> bool:
        if words and not any(word in words for word in agent_words(agent)):
            return False
        return has_text(agent.agent_id, agent.hostname)

    return passes


def agent_words(agent: Agent) -> Iterator[str]:
    """Yield what may be said of an agent: why it is withheld, and its state at the end."""
    if agent.drain is not None:
        yield "drained" if agent.is_empty else "draining"
    if agent.deactivated:
        yield "deactivated"
    if agent.problems:
        yield "unhealthy"
    yield agent.state_name


class TaskFilter:
    """The conditions of a request for tasks, beside ids; ages are those at the time it is made."""

    def __init__(self, request: pb.ListTasksRequest, wall: WallTime) -> None:
        """Read a request; raises InvalidRequest for an unknown state, or too long a text."""
        self._wall, self._now_ms = wall, wall.now_ms
        self._role, self._agent = request.role, request.agent
        self._states, self._has_text = _states(request.states), text_filter(request.text)
        self._min_ms = request.min_age_ms if request.HasField("min_age_ms") else None
        self._max_ms = request.max_age_ms if request.HasField("max_age_ms") else None

    def test(self, state: State, visible: Visibility) -> TaskTest:
        """Return the test of tasks. O(agents) for a hostname."""
        agents = self._agents(state, visible)

        def passes(task: Task | TaskSnapshot) -> bool:
            if self._states and task.status.state not in self._states:
                return False
            if agents is not None and task.status.agent_id not in agents:
                return False
            if self._role and not _is_within(task.role, self._role):
                return False
            texts = (task.info.task_id, task.info.name, task.info.unit_id)
            return self._is_of_age(task) and self._has_text(*texts)

        return passes

    def _is_of_age(self, task: Task | TaskSnapshot) -> bool:
        if self._min_ms is None and self._max_ms is None:
            return True
        age_ms = self._now_ms - self._wall.since_ms(task)
        is_young = self._min_ms is not None and age_ms < self._min_ms
        return not is_young and (self._max_ms is None or age_ms <= self._max_ms)

    def _agents(self, state: State, visible: Visibility) -> frozenset[AgentId] | None:
        """Return the agents that the request names; None: any."""
        if not self._agent:
            return None
        named = AgentId(self._agent)
        if named in state.agents:
            return frozenset((named,))
        found = [
            each.agent_id
            for each in state.agents.values()
            if self._agent in (each.hostname, short_id(each.agent_id))
        ]
        # The id of a forgotten agent may still be that of ended tasks.
        return frozenset((named, *filter(visible.has_agent, found)))


def _is_within(role: str, above: str) -> bool:
    return role == above or role.startswith(f"{above}/")


def _states(numbers: Sequence[int]) -> frozenset[TaskState]:
    try:
        return frozenset(map(TaskState, numbers))
    except ValueError as error:
        raise InvalidRequest(f"unknown state of a task: {error}") from None

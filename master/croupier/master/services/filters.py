"""Filters of the lists that operators request.

Rule: text is compared without regard to case. A filter without a condition lets all pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from croupier.master.core.agents import STATE_NAMES, Agent
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.services.views import WallTime
from croupier.master.services.visibility import Visibility
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, TaskId, short_id
from croupier.model.suggestions import unknown_word
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb

# Words for what may be said of an agent beside its state.
AGENT_WORDS: Final = (*STATE_NAMES, "draining", "drained", "deactivated", "unhealthy")
MAX_TEXT: Final = 500

ANY_FRAMEWORK: Final = FrameworkId("")

TaskTest = Callable[[Task | TaskSnapshot], bool]


@dataclass(frozen=True, slots=True)
class TextFilter:
    """Objects with a text that contains `text`, such as an id or a name."""

    text: str = ""

    @classmethod
    def of(cls, text: str) -> TextFilter:
        """Read the text of a request.

        Raises:
            InvalidRequest: if it is too long.
        """
        if len(text) > MAX_TEXT:
            raise InvalidRequest(f"a text to search for has at most {MAX_TEXT} characters")
        return cls(text.lower())

    def passes(self, *texts: str) -> bool:
        """Return whether one of `texts` contains the text."""
        return not self.text or any(self.text in each.lower() for each in texts)

    @property
    def key(self) -> str:
        """Identifies the filter; short."""
        return digest(self.text) if self.text else ""


ANY_TEXT: Final = TextFilter()


@dataclass(frozen=True, slots=True)
class AgentFilter:
    """Agents of one of some `words` (all if there is none), with a text in a name."""

    words: frozenset[str] = frozenset()
    text: TextFilter = ANY_TEXT

    @classmethod
    def of(cls, request: pb.ListAgentsRequest) -> AgentFilter:
        """Read a request.

        Raises:
            InvalidRequest: if it names an unknown state.
        """
        words = frozenset(word.lower() for word in request.states)
        for word in sorted(words.difference(AGENT_WORDS)):
            raise InvalidRequest(unknown_word("state", word, AGENT_WORDS))
        return cls(words, TextFilter.of(request.text))

    def passes(self, agent: Agent) -> bool:
        """Return whether the agent is in the list. O(its tasks) if drains are asked for."""
        if self.words and not any(word in self.words for word in agent_words(agent)):
            return False
        return self.text.passes(agent.agent_id, agent.hostname)

    @property
    def key(self) -> str:
        """Identifies the filter; short; empty if all agents pass."""
        return digest(*sorted(self.words), "", self.text.text) if self != AgentFilter() else ""


ANY_AGENT: Final = AgentFilter()


def agent_words(agent: Agent) -> Iterator[str]:
    """Yield what may be said of an agent: why it is withheld, and its state at the end."""
    if agent.drain is not None:
        yield "drained" if agent.is_empty else "draining"
    if agent.deactivated:
        yield "deactivated"
    if agent.problems:
        yield "unhealthy"
    yield agent.state.name


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks that meet all conditions.

    Attributes:
        framework_id: empty: any.
        named: only tasks of this id.
        states: the numbers of the states that a task may have; empty: any.
        role: the role or one above it; empty: any.
        agent: the id, short id or hostname of its agent; empty: any.
        text: is in the id or the name.
        min_age_s, max_age_s: since the master got it or found it.
    """

    framework_id: FrameworkId = ANY_FRAMEWORK
    named: TaskId | None = None
    states: frozenset[TaskState] = frozenset()
    role: str = ""
    agent: str = ""
    text: TextFilter = ANY_TEXT
    min_age_s: float | None = None
    max_age_s: float | None = None

    @classmethod
    def of(cls, request: pb.ListTasksRequest) -> TaskFilter:
        """Read a request.

        Raises:
            InvalidRequest: if it names an unknown state, or too long a text.
        """
        ages = [
            getattr(request, field) / 1000 if request.HasField(field) else None
            for field in ("min_age_ms", "max_age_ms")
        ]
        return cls(
            FrameworkId(request.framework_id),
            TaskId(request.task_id) if request.task_id else None,
            _states(request.states),
            request.role,
            request.agent,
            TextFilter.of(request.text),
            *ages,
        )

    @property
    def has_conditions(self) -> bool:
        """Whether it has more conditions than ids."""
        return self != TaskFilter(self.framework_id, self.named)

    @property
    def key(self) -> str:
        """Identifies the filter; short."""
        own = f"{self.framework_id}/{self.named or ''}"
        if not self.has_conditions:
            return own
        states = ",".join(sorted(state.name for state in self.states))
        ages = f"{self.min_age_s} {self.max_age_s}"
        return f"{own}/{digest(states, self.role, self.agent, self.text.text, ages)}"

    def test(self, state: State, visible: Visibility, wall: WallTime, now_ms: int) -> TaskTest:
        """Return the test at `now_ms`, milliseconds since the epoch. O(agents) for a hostname."""
        if not self.has_conditions:
            return lambda _: True
        agents = self._agents(state, visible)

        def passes(task: Task | TaskSnapshot) -> bool:
            if self.states and task.status.state not in self.states:
                return False
            if agents is not None and task.status.agent_id not in agents:
                return False
            if self.role and not _is_within(task.role, self.role):
                return False
            if not self._is_of_age(task, wall, now_ms):
                return False
            return self.text.passes(task.info.task_id, task.info.name)

        return passes

    def _is_of_age(self, task: Task | TaskSnapshot, wall: WallTime, now_ms: int) -> bool:
        if self.min_age_s is None and self.max_age_s is None:
            return True
        age_s = (now_ms - wall.since_ms(task)) / 1000
        is_young = self.min_age_s is not None and age_s < self.min_age_s
        return not is_young and (self.max_age_s is None or age_s <= self.max_age_s)

    def _agents(self, state: State, visible: Visibility) -> frozenset[AgentId] | None:
        """Return the agents that `agent` names; None: any."""
        if not self.agent:
            return None
        named = AgentId(self.agent)
        if named in state.agents:
            return frozenset((named,))
        found = [
            each.agent_id
            for each in state.agents.values()
            if self.agent in (each.hostname, short_id(each.agent_id))
        ]
        # The id of a forgotten agent may still be that of ended tasks.
        return frozenset((named, *filter(visible.has_agent, found)))


def digest(*parts: str) -> str:
    """Return a short text that identifies `parts`."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _is_within(role: str, above: str) -> bool:
    return role == above or role.startswith(f"{above}/")


def _states(numbers: Sequence[int]) -> frozenset[TaskState]:
    try:
        return frozenset(map(TaskState, numbers))
    except ValueError as error:
        raise InvalidRequest(f"unknown state of a task: {error}") from None

"""Operator commands: each is a frozen dataclass that executes itself.

A new command is one class in the module of its noun, such as `agent_commands`, listed in the union
at the end of that module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from croupier.master.core.effects import Answer, Effect
from croupier.master.core.events import Question
from croupier.master.core.state import State
from croupier.model.errors import CroupierError, shortened

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OperatorCommand(Question[Answer_co], ABC):
    """A command with an immutable answer.

    Attributes:
        request: the number under which the shell waits for the answer.
    """

    request: int

    @abstractmethod
    def execute(self, state: State, now: float) -> Generator[Effect, None, Answer_co]:
        """Yield the effects and return the answer.

        Raises:
            CroupierError: to refuse the command, before anything is changed.
        """


def on_operator_command(
    state: State, command: OperatorCommand[object], now: float
) -> Iterator[Effect]:
    """Execute a command and answer it with its result or its refusal."""
    result: object
    try:
        result = yield from command.execute(state, now)
    except CroupierError as refusal:
        result = shortened(refusal)
    yield Answer(command.request, result)

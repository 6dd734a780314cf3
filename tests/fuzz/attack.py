"""Attacks: endless sources of cases, each with its own seed."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from typing import Final

from tests.fuzz.cases import Case
from tests.fuzz.messages import Messages
from tests.fuzz.values import Values, Words

# Cases that are saved with a finding.
KEPT_CASES: Final = 8


class Problem(Exception):
    """A daemon's answer that no input may cause."""


class Attack(ABC):
    """A peer that breaks rules.

    Attributes:
        name: names the attack in reports, and with the seed decides all cases.
        sent: the number of messages.
        answers: the number of answers by their kind.
        recent: the latest cases; a finding is among them.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name, self._seed = name, seed
        self._number = 0
        self.sent = 0
        self.answers: Counter[str] = Counter()
        self.recent: deque[Case] = deque(maxlen=KEPT_CASES)
        self.words = Words()
        self._draw()

    @abstractmethod
    async def run(self, case: Case) -> None:
        """Send new messages, and note them in `case`.

        Raises:
            Problem: if the daemon answers as it never may.
        """

    @abstractmethod
    async def replay(self, case: Case) -> None:
        """Send the messages of a case of the corpus.

        Raises:
            Problem: if the daemon answers as it never may.
        """

    @abstractmethod
    def accepts(self, target: str) -> bool:
        """Return whether it can replay cases for `target`."""

    @property
    @abstractmethod
    def target(self) -> str:
        """The target of the next case."""

    async def close(self) -> None:  # noqa: B027 - few attacks hold anything
        """Release what the attack holds."""

    async def next(self) -> None:
        """Run the next case.

        Raises:
            Problem: if the daemon answers as it never may.
        """
        self._draw()
        case = Case(self.target, f"SEED={self._seed} {self.name} {self._number}")
        self.recent.append(case)
        await self.run(case)

    def _draw(self) -> None:
        self._number += 1
        self.rng = random.Random(f"{self._seed}/{self.name}/{self._number}")
        self.values = Values(self.rng, self.words)
        self.messages = Messages(self.rng, self.values)

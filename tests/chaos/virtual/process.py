"""A process: while it is up and not paused, it handles arrived messages in turns.

Rule: an action that an earlier life of the process scheduled has no effect in a later life.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.network import End, Network

# The time from the arrival of a message to the turn that handles it.
TURN_S = 0.0005


class Process:
    """The common part of masters, agents and frameworks.

    Attributes:
        life: the number of the run of the program, from 1; 0 before the first.
        paused: stopped by SIGSTOP.
        is_retired: the process must not be started again.
    """

    def __init__(self, name: str, clock: TracedClock, network: Network, seed: str) -> None:
        """Create a process that does not run; `seed` seeds its random choices."""
        self.name, self.clock, self.network = name, clock, network
        self.random = Random(f"{seed} {name}")
        self.life = 0
        self.is_retired = False
        self.paused = False
        self._up = False
        self._inbox: list[tuple[End | None, object]] = []
        self._next_turn: float | None = None
        network.add(name, self)

    @property
    def is_up(self) -> bool:
        """Whether the program runs, paused or not."""
        return self._up

    def start(self) -> None:
        """Run the program, unless it runs or is retired."""
        if self._up or self.is_retired:
            return
        self.life += 1
        self._up, self.paused = True, False
        self.clock.trace(f"{self.name} starts, life {self.life}")
        self.on_start()

    def crash(self, loses: bool) -> None:
        """End the program at once; if it `loses`, messages in flight are dropped."""
        if not self._up:
            return
        self.clock.trace(f"{self.name} is killed")
        self._up = self.paused = False
        self._inbox.clear()
        self._next_turn = None
        self.network.crash(self.name, loses)
        self.on_crash()

    def pause(self) -> None:
        """Stop the process as by SIGSTOP."""
        self.paused = True
        self.clock.trace(f"{self.name} is paused")

    def resume(self) -> None:
        """Continue the process as by SIGCONT."""
        if self.paused:
            self.paused = False
            self.clock.trace(f"{self.name} goes on")
            if self._up:
                self._next_turn = None
                self.wake(self.clock.now())

    def on_arrival(self, end: End, message: object) -> None:
        """Queue a message for the next turn."""
        self._inbox.append((end, message))
        self.wake(self.clock.now() + TURN_S)

    def put(self, message: object) -> None:
        """Queue an event of the process itself."""
        self._inbox.append((None, message))
        self.wake(self.clock.now() + TURN_S)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action of this life of the process; it waits while the process is paused."""
        life = self.life

        def act() -> None:
            if self._up and self.life == life:
                if self.paused:
                    self.clock.after(0.1, act)
                else:
                    action()

        self.clock.after(seconds, act)

    def wake(self, at: float | None) -> None:
        """Schedule a turn at this time, unless one is due earlier."""
        if at is None or not self._up or (self._next_turn is not None and self._next_turn <= at):
            return
        at = max(at, self.clock.now())
        self._next_turn = at
        life = self.life

        def turn() -> None:
            if self.life == life and self._next_turn == at and self._up and not self.paused:
                self._next_turn = None
                self.turn()

        self.clock.at(at, turn)

    def taken(self) -> list[tuple[End | None, object]]:
        """Return everything that has arrived since the last turn."""
        taken, self._inbox = self._inbox, []
        return taken

    def on_start(self) -> None:
        """Begin the program."""

    def on_crash(self) -> None:
        """Forget everything that was not durable."""

    def turn(self) -> None:
        """Handle the messages that have arrived."""
        raise NotImplementedError

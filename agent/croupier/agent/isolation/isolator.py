"""An isolator: one way to keep a task within its bounds.

Rule: an isolator makes everything of a run before its shim starts, finds it again by the run's
name alone, and removes all of it in `forget`. So the next agent on the work dir can measure, limit
and remove what an earlier one has made.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from croupier.agent.core.ending import Ending
from croupier.agent.isolation.launch import Launch
from croupier.model.isolation import Features, Usage


class Isolator(Protocol):
    """Keeps tasks within some of their bounds. All calls but `kill` take well under 1 ms."""

    @property
    def name(self) -> str:
        """The word for it in `--isolation`."""

    @property
    def features(self) -> Features:
        """What it enforces or measures on this machine."""

    def prepare(self, launch: Launch) -> Launch:
        """Make what the run needs; return the launch with further options or another command.

        Raises:
            InvalidRequest: if the task asks for what this machine does not allow.
            OSError: if the machine refuses. What was made is removed by `forget`.
        """

    def join(self, launch: Launch) -> Launch:
        """Return the launch of a command beside a live run, isolated as the run is.

        It uses what `prepare` has made and makes nothing, so there is nothing to forget.

        Raises:
            Unavailable: if no command can be started beside such a run here, with the reason.
            OSError: if the machine refuses.
        """

    def usage(self, run: str) -> Usage | None:
        """Return what a run has used until now; None if this isolator does not measure it."""

    def is_empty(self, run: str) -> bool:
        """Return whether no process of the run is left, as far as this isolator can tell."""

    def kill(self, run: str) -> None:
        """Kill what is left of a run, and wait for its end, 10 s at most. Not on the loop."""

    def end(self, run: str) -> Ending:
        """Return what is known of a run that has ended. Repeatable until `forget`."""

    def forget(self, run: str) -> None:
        """Remove everything of a run that has ended, or was never started. Repeatable.

        Raises:
            OSError: if something is left; `clean` of the next agent removes it.
        """

    def clean(self, known: Collection[str]) -> None:
        """Remove what runs of earlier agents have left, except for `known` ones. Not on the loop.

        Raises:
            OSError: if something cannot be removed.
        """

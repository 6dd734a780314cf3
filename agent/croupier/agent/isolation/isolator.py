"""An isolator: one way to keep a task within its bounds; the launch that it changes; the limits.

Rule: an isolator makes everything of a run before its shim starts, finds it again by the run's
name alone, and removes all of it in `forget`. So the next agent on the work dir can measure, limit
and remove what an earlier one has made.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from croupier.agent.core.events import NO_ENDING, Ending
from croupier.agent.core.tasks import Key
from croupier.agent.unix_user import UnixUser
from croupier.model.isolation import NO_FEATURES, Features, Limits, Usage
from croupier.model.task import TaskInfo


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of one task.

    Attributes:
        run: the name of the run, unique over all lives of the agent.
        sandbox: the path of its directory.
        argv: the program and its arguments; isolators may put a tool before them.
        environment: the task's variables.
        user: the user that it runs as; None: the agent's own.
        options: for the shim; see `shim.c`.
        program: the task's own program, for error messages.
        joins: whether a command enters the namespaces of its task; only `join` sets it.
    """

    run: str
    key: Key
    info: TaskInfo
    sandbox: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    user: UnixUser | None = None
    options: tuple[str, ...] = ()
    program: str = ""
    joins: bool = False

    @property
    def search_path(self) -> str:
        """Where the program is looked for: the task's PATH, or the shim's default."""
        return self.environment.get("PATH", "/bin:/usr/bin")

    def with_options(self, options: tuple[str, ...]) -> Launch:
        """Return the launch with other options."""
        return replace(self, options=options)


# The kernel cannot start a program in less.
LEAST_MEM: Final = 4_000


def limits_of(info: TaskInfo, defaults: Limits, *, has_quota: bool = False) -> Limits:
    """Return the limits to enforce on a task; 0 for what is not limited.

    Args:
        info: the task. Its own limits come first, then its resources of mem and disk.
        defaults: of the agent, for what the task names in neither.
        has_quota: whether the task is held to the cpus of its resources.
    """
    own, has = info.limits, info.resources
    mem = own.mem or has["mem"] or defaults.mem
    return Limits(
        cpus=own.cpus or (has["cpus"] if has_quota else 0) or defaults.cpus,
        mem=max(mem, LEAST_MEM) if mem else 0,
        disk=own.disk or has["disk"] or defaults.disk,
        pids=own.pids or defaults.pids,
        files=own.files or defaults.files,
    )


class Isolator:
    """Keeps tasks within some of their bounds; by default it does, and knows, nothing.

    All calls but `kill` take well under 1 ms. They raise OSError if the machine refuses.

    Attributes:
        name: the word for it in `--isolation`.
        features: what it enforces or measures on this machine.
    """

    name: str
    features: Features = NO_FEATURES

    def prepare(self, launch: Launch) -> Launch:
        """Make what the run needs; return the launch with further options or another command.

        Raises:
            InvalidRequest: if the task asks for what this machine does not allow.
            OSError: what was made is removed by `forget`.
        """
        return launch

    def join(self, launch: Launch) -> Launch:
        """Return the launch of a command beside a live run, isolated as the run is.

        It uses what `prepare` has made and makes nothing, so there is nothing to forget.

        Raises:
            Unavailable: if no command can be started beside such a run here, with the reason.
        """
        return launch

    def usage(self, run: str) -> Usage | None:  # noqa: ARG002 - for subclasses
        """Return what a run has used until now; None if this isolator does not measure it."""
        return None

    def is_empty(self, run: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether no process of the run is left, as far as this isolator can tell."""
        return True

    def kill(self, run: str) -> None:
        """Kill what is left of a run, and wait for its end, 10 s at most. Not on the loop."""

    def end(self, run: str) -> Ending:  # noqa: ARG002 - for subclasses
        """Return what is known of a run that has ended. Repeatable until `forget`."""
        return NO_ENDING

    def forget(self, run: str) -> None:
        """Remove everything of a run that has ended, or was never started. Repeatable.

        Raises:
            OSError: if something is left; `clean` of the next agent removes it.
        """

    def clean(self, known: Collection[str]) -> None:
        """Remove what runs of earlier agents have left, except for `known` ones. Not on the loop.
        """

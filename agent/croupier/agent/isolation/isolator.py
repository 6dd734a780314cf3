"""Isolators, each one way to keep a task within its bounds, and all of an agent as one.

Rule: an isolator makes everything of a run before its shim starts, finds it again by the run's
name alone, and removes all of it in `forget`. So the next agent on the work dir can measure, limit
and remove what an earlier one has made. Functions raise OSError if the system refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.agent.core.events import NO_ENDING, Ending
from croupier.agent.core.tasks import Key
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import (
    NO_FEATURES,
    WITHOUT_ISOLATOR,
    Feature,
    Features,
    Limits,
    Usage,
    cannot_enforce,
)
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.isolation.flags import IsolationFlags

# The words of `--isolation`.
AUTO: Final = "auto"
NONE: Final = "none"
PROCESS: Final = "process"
# In the order in which they prepare a launch.
LEVELS: Final = (PROCESS, "cgroup", "namespaces", "container")
# The kernel cannot start a program in less.
LEAST_MEM: Final = 4_000
_PIDS_OF_ACCOUNT: Final = (
    "the agent has no control group for pids: it can bound the processes of a task only if the"
    " task names no user, and so gets a uid of its own"
)
_numbers = attrgetter(*(each.name for each in fields(Usage)))


def parse_levels(text: str) -> tuple[str, ...]:
    """Read `auto`, `none`, or levels separated by commas; raises InvalidRequest for others."""
    words = tuple(word.strip() for word in text.split(","))
    if words in ((AUTO,), (NONE,)):
        return words
    unknown = [word for word in words if word not in LEVELS]
    if unknown:
        raise InvalidRequest(
            f"isolation {unknown[0]!r}: give {AUTO}, {NONE}, or some of {','.join(LEVELS)}"
        )
    if len(set(words)) < len(words):
        raise InvalidRequest(f"isolation {text!r} has a word twice")
    return words


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings with which isolators are built.

    Attributes:
        work_dir: absolute; different for each agent of a machine.
        has_own_uids: whether a task without a user has a uid that no other live task has.
        secrets: files of the agent's credentials, for no task to see.
    """

    flags: IsolationFlags
    total: Resources
    work_dir: Path
    shim: Shim
    has_own_uids: bool = False
    secrets: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of one task.

    Attributes:
        run: the name of the run, unique over all lives of the agent.
        sandbox: the path of its directory.
        argv: the program and its arguments; isolators may put a tool before them.
        user: the user that it runs as; None: the agent's own.
        options: for the shim; see `shim.c`.
        program: the task's own program, for error messages.
        joins: whether a command enters the namespaces of its task; only `join` sets it.
        read_only: further directories that it sees, such as that of its secrets.
        shared: further directories that it may write to: of its group and its volumes.
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
    read_only: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def search_path(self) -> str:
        """The directories to search for the program: the task's PATH, or the shim's default."""
        return self.environment.get("PATH", "/bin:/usr/bin")


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
    """Keeps tasks within some of their bounds; the methods here do, and report, nothing.

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

        It uses what `prepare` has made and makes nothing, so there is nothing to forget. Raises
        Unavailable if no command can be started beside such a run here, with the reason.
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

        Raises OSError if something is left; `clean` of the next agent removes it.
        """

    def clean(self, known: Collection[str]) -> None:
        """Remove what runs of earlier agents have left, except `known` ones. Not on the loop."""

    def close(self) -> None:
        """Release what it holds for the agent; what it made for tasks stays."""


class Layers:
    """The isolators of an agent, in the order in which they prepare a launch."""

    def __init__(self, isolators: Sequence[Isolator] = ()) -> None:
        """Use `isolators`, possibly none."""
        self.isolators = tuple(isolators)
        self.names = tuple(each.name for each in isolators)
        self.features: Features = NO_FEATURES.union(*(each.features for each in isolators))
        bounding = {each.name for each in isolators if Feature.PIDS in each.features}
        # The kernel counts the processes of a uid, which tasks with the same account share.
        self._are_pids_by_uid = bounding == {PROCESS}

    def extended(self, isolator: Isolator) -> Layers:
        """Return these isolators and another one, which prepares launches last."""
        return Layers((*self.isolators, isolator))

    def prepare(self, launch: Launch) -> Launch:
        """Make what the run needs; if that fails, remove what was made.

        Raises InvalidRequest if the task asks for what this agent cannot enforce, or what this
        machine does not allow.
        """
        if lacks := launch.info.needs() - self.features - WITHOUT_ISOLATOR:
            # The core refuses such orders. This one is of an earlier life, with other flags.
            raise InvalidRequest(cannot_enforce(lacks))
        has_own_uid = launch.user is not None and launch.user.is_own
        if self._are_pids_by_uid and launch.info.limits.pids and not has_own_uid:
            raise InvalidRequest(_PIDS_OF_ACCOUNT)
        try:
            for isolator in self.isolators:
                launch = isolator.prepare(launch)
        except BaseException:
            # An isolator forgets what it has not made.
            self.forget(launch.run)
            raise
        return launch

    def join(self, launch: Launch) -> Launch:
        """Return the launch of a command beside a live run, isolated as the run is.

        Raises Unavailable if no command can be started beside such a run here, with the reason.
        """
        for isolator in self.isolators:
            launch = isolator.join(launch)
        return launch

    def usage(self, run: str) -> Usage | None:
        """Return what a run has used until now; None if that is unknown."""
        return joined(*(each.usage(run) for each in self.isolators))

    def is_empty(self, run: str) -> bool:
        """Return whether no process of the run is left, as far as isolators can tell."""
        return all(each.is_empty(run) for each in self.isolators)

    def kill(self, run: str) -> None:
        """Kill what is left of a run, and wait for its end. Takes seconds in the worst case."""
        for isolator in self.isolators:
            isolator.kill(run)

    def end(self, run: str) -> Ending:
        """Return what is known of a run that has ended."""
        return joined_endings(*(isolator.end(run) for isolator in self.isolators))

    def forget(self, run: str) -> None:
        """Remove everything of a run, the last made first."""
        failed: OSError | None = None
        for isolator in reversed(self.isolators):
            try:
                isolator.forget(run)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def clean(self, known: Collection[str]) -> None:
        """Remove what runs of earlier agents have left, except for `known` ones."""
        for isolator in self.isolators:
            isolator.clean(known)

    def close(self) -> None:
        """Release what isolators hold for the agent; what they made for tasks stays."""
        with ExitStack() as stack:
            # Each is closed, whatever closing another one raises.
            for isolator in self.isolators:
                stack.callback(isolator.close)


def joined(*found: Usage | None) -> Usage | None:
    """Return the largest number of each kind: a partial measurement is below a full one."""
    known = [usage for usage in found if usage is not None]
    if len(known) < 2:
        return known[0] if known else None
    return Usage(*map(max, *map(_numbers, known)))


def completed(usage: Usage | None, less_known: Usage | None) -> Usage | None:
    """Return `usage`, with numbers that it lacks from a measurement of less processes."""
    if usage is None or less_known is None:
        return usage or less_known
    return Usage(
        *(one or other for one, other in zip(_numbers(usage), _numbers(less_known), strict=True))
    )


def joined_endings(*endings: Ending) -> Ending:
    """Return all that is known of a run; the first limit that was exceeded counts."""
    known = [each for each in endings if each is not NO_ENDING]
    if len(known) < 2:
        return known[0] if known else NO_ENDING
    exceeded = next((each.exceeded for each in known if each.exceeded), None)
    notes = tuple(note for each in known for note in each.notes)
    return Ending(joined(*(each.usage for each in known)), exceeded, notes)


NO_ISOLATION = Layers()

"""Starts commands beside live tasks, and ends them with their tasks and with the agent.

Rule: the end of a task is reported once its commands have ended, since they are in its control
group and have its user. They are killed for that, so it takes milliseconds.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Adopting, InExecutor, Key, Starting
from croupier.agent.exec.inside import Inside, find_inside, lowered, sealed_copy
from croupier.agent.exec.streams import Streams, check_command
from croupier.agent.exec.task_exec import TaskExec
from croupier.agent.isolation.container import PREFIX as CONTAINER_PREFIX
from croupier.agent.isolation.isolator import Launch, Layers
from croupier.agent.isolation.task_users import TaskUsers
from croupier.agent.machine import environment_of
from croupier.agent.sandbox import Sandboxes
from croupier.agent.secret_files import SecretFiles
from croupier.agent.shim.build import Shim
from croupier.agent.shim.orphans import (
    EXEC_VARIABLE,
    OPTION,
    PREFIX,
    VARIABLE,
    end_orphans,
    read_own_words,
)
from croupier.agent.shim.shim_process import ShimProcess
from croupier.agent.shim.start import cannot_run, move_up, start_shim
from croupier.agent.supervisor import Supervisor
from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.secrets import DIRECTORY_VARIABLE
from croupier.v1.exec_pb2 import ExecCommand

# Of variables of the task itself, of bubblewrap, and of a container runtime.
_PREFIXES: Final = ("", PREFIX, CONTAINER_PREFIX)
MOST: Final = 64
MOST_OF_TASK: Final = 16
# The end of a task waits so long for its commands; what is left then is killed with the task.
END_S: Final = 2.0
_TASK_ENDED: Final = "its task has ended"


@dataclass(frozen=True, slots=True)
class Entries:
    """Makes launches that resemble those of the tasks, without making anything for them."""

    state: AgentState
    sandboxes: Sandboxes
    users: TaskUsers
    secret_files: SecretFiles

    def launch(self, key: Key, command: ExecCommand, pid: int) -> Launch:
        """Return the launch of a command before isolators have changed it.

        `pid` is that of a process of the task, which has its secrets as variables.

        Raises:
            NotFound: if no such task lives here.
            Unavailable: if it has not started yet, or its user is unknown.
            InvalidRequest: if it runs in an executor, or its account may no longer run tasks.
        """
        task = self.state.tasks.get(key)
        if task is None or not task.is_live:
            raise NotFound(f"task {key[1]} does not run on this agent")
        if isinstance(task.phase, InExecutor):
            raise InvalidRequest(
                f"task {key[1]} has no process of its own; run the command beside its executor,"
                f" {task.info.executor_id}"
            )
        if isinstance(task.phase, Starting | Adopting):
            raise Unavailable(f"task {key[1]} has not started yet; try again")
        info, run = task.info, task.run
        user = self.users.of(run, info.command.user)
        sandbox = self.sandboxes.path_of(key)
        environment = environment_of(
            self.state.agent_id, key, info, sandbox, user, self.state.inventory
        )
        if info.command.secrets and info.command.secret_files:
            environment[DIRECTORY_VARIABLE] = str(self.secret_files.root / run)
        elif info.command.secrets:
            environment |= _variables(pid, info.command.secrets.keys())
        if command.HasField("terminal") and command.terminal_type:
            environment["TERM"] = command.terminal_type
        argv = tuple(command.argv)
        return Launch(run, key, info, sandbox, argv, environment, user, program=argv[0])


def _variables(pid: int, names: Collection[str]) -> dict[str, str]:
    """Return variables of a process; those that it has overwritten or hidden are missing."""
    try:
        content = b"\0" + read_own_words(f"/proc/{pid}/environ")
    except OSError:
        return {}
    found: dict[str, str] = {}
    # Without a list of all: the process may tell millions.
    for prefix, name in product(_PREFIXES, names):
        _, is_there, rest = content.partition(f"\0{prefix}{name}=".encode())
        if is_there:
            value = rest.partition(b"\0")[0].decode(errors="surrogateescape")
            found.setdefault(name, value)
    return found


class TaskExecs:
    """The commands that run beside the tasks of one agent."""

    def __init__(
        self,
        directory: Path,
        shim: Shim,
        supervisor: Supervisor,
        isolation: Layers,
        launch: Callable[[Key, ExecCommand, int], Launch],
    ) -> None:
        """Keep run files in `directory`; `launch` is as that of `Entries`."""
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory, self._shim = directory.absolute(), shim
        self._supervisor, self._isolation, self._launch = supervisor, isolation, launch
        self._running: set[TaskExec] = set()
        # Waits for the commands of tasks that end.
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._sealed = -1
        self._null = move_up(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        supervisor.ends.end_companions = self.end_with

    def __len__(self) -> int:
        return len(self._running)

    async def start(self, key: Key, command: ExecCommand) -> TaskExec:
        """Start a command beside a task; returns once its program runs.

        If the program cannot be executed, that is the end of the command.

        Raises:
            InvalidRequest: if no agent can run the command.
            NotFound: if no such task lives here.
            Unavailable: if there are too many commands, or this machine cannot start it.
        """
        check_command(command)
        self._check_bounds(key)
        try:
            started = self._start(key, command)
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise InvalidRequest(cannot_run(command.argv[0], errno.E2BIG)) from error
            why = error.strerror or str(error)
            raise Unavailable(f"cannot start the command: {why}") from error
        except ValueError as error:
            raise InvalidRequest(f"cannot run {command.argv[0]!r}: {error}") from error
        try:
            await started.started()
        except BaseException:
            await started.close()
            raise
        return started

    def end_with(self, key: Key, then: Callable[[], None]) -> bool:
        """Kill the commands of a task that ends; call `then` once they have ended, or after 2 s.

        Return False, and call nothing, if there are none.
        """
        commands = [each for each in self._running if each.key == key]
        if not commands:
            return False

        async def wait() -> None:
            await asyncio.wait([each.ended for each in commands], timeout=END_S)
            then()

        for each in commands:
            each.kill(_TASK_ENDED)
        waiting = asyncio.create_task(wait())
        self._ending.add(waiting)
        waiting.add_done_callback(self._ending.discard)
        return True

    async def close(self) -> None:
        """End all commands."""
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in list(self._running)))
        os.close(self._null)
        if self._sealed >= 0:
            os.close(self._sealed)

    def _check_bounds(self, key: Key) -> None:
        if self._is_closed:
            raise Unavailable("the agent stops")
        if len(self._running) >= MOST:
            raise Unavailable(f"{MOST} commands run on this agent, the most that it allows")
        if sum(each.key == key for each in self._running) >= MOST_OF_TASK:
            raise Unavailable(
                f"{MOST_OF_TASK} commands run beside task {key[1]}, the most that the agent allows"
            )

    def _start(self, key: Key, command: ExecCommand) -> TaskExec:
        running = self._supervisor.running(key)
        if running is None or not running.pid:
            # The entries tell why.
            self._launch(key, command, 0)
            raise NotFound(f"task {key[1]} has ended")
        launch = self._isolation.join(self._launch(key, command, running.pid))
        with ExitStack() as opened:
            inside = None
            if launch.joins:
                if self._sealed < 0:
                    self._sealed = move_up(sealed_copy(Path(self._shim.argv[0])))
                inside = find_inside(running)
                opened.callback(inside.close)
            if not running.is_child:
                launch = lowered(launch, running.pid, inside)
            streams = Streams(command, self._null, launch.user)
            opened.callback(streams.release)
            try:
                one = self._spawn(launch, streams, inside)
            except BaseException:
                streams.close()
                raise
        self._running.add(one)
        return one

    def _spawn(self, launch: Launch, streams: Streams, inside: Inside | None) -> TaskExec:
        path = self._directory / secrets.token_hex(8)
        user = () if launch.user is None else (f"user={launch.user}",)
        terminal = ("terminal",) if streams.has_terminal else ()
        joined = () if inside is None else inside.options
        options = (*launch.options, *user, *joined, "attached", *terminal)
        words = [launch.sandbox, f"{OPTION}{path}", *options, "--", *launch.argv]
        shim = self._shim if inside is None else Shim((f"/proc/self/fd/{self._sealed}",))
        # It ends with the task, even if no agent is left to see to that.
        mark = {VARIABLE: str(self._supervisor.path_of(launch.run))}
        reading, writing = os.pipe()
        try:
            pipe = move_up(writing)
        except OSError:
            os.close(reading)
            raise
        try:
            further = () if inside is None else inside.descriptors
            channels = (*streams.given, pipe, *further)
            environment = {**launch.environment, **mark}
            pid, pidfd = start_shim(shim, path, words, environment, channels, EXEC_VARIABLE)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(pipe)
        running = ShimProcess(path.name, pid, pidfd, launch.program)
        return TaskExec(launch, path, running, reading, streams, self._running.discard)


def end_commands(directory: Path) -> None:
    """End the commands of an agent that was killed. Blocks, 20 s at most."""
    with suppress(FileNotFoundError):
        end_orphans(directory, ())

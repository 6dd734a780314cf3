"""Commands beside the tasks of a `TaskRunner`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from croupier.agent.core.tasks import Key
from croupier.agent.exec.streams import Stream
from croupier.agent.exec.task_exec import TaskExec
from croupier.agent.exec.task_execs import TaskExecs
from croupier.agent.isolation.isolator import Launch
from croupier.model.errors import NotFound
from croupier.v1.exec_pb2 import ExecCommand, ExecEnd, WindowSize
from tests.harness.supervisor_fixture import TaskRunner, key

DEADLINE_S = 30.0


@dataclass
class Launches:
    """Launches of commands, from those of the tasks before isolators have changed them."""

    of: dict[Key, Launch] = field(default_factory=dict)

    def launch(self, key: Key, command: ExecCommand, pid: int) -> Launch:
        del pid
        if key not in self.of:
            raise NotFound(f"task {key[1]} does not run on this agent")
        return replace(self.of[key], argv=tuple(command.argv), program=command.argv[0])


class Execs:
    """Starts tasks, and commands beside them."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner, self.launches = runner, Launches()
        self.execs = TaskExecs(
            runner.work / "execs",
            runner.shim,
            runner.supervisor,
            runner.isolation,
            self.launches.launch,
        )

    def task(self, launch: Launch) -> None:
        """Start a task, isolated as the runner isolates."""
        sandboxes, supervisor = self.runner.sandboxes, self.runner.supervisor
        with sandboxes.create(launch.key, launch.user, again=True) as sandbox:
            launch = replace(launch, sandbox=sandbox.path)
            self.launches.of[launch.key] = launch
            supervisor.spawn(self.runner.isolation.prepare(launch), sandbox)

    async def start(
        self, name: str, *argv: str, has_input: bool = False, window: WindowSize | None = None
    ) -> TaskExec:
        """Start a command beside a task."""
        command = ExecCommand(argv=argv, has_input=has_input, terminal=window)
        return await self.execs.start(key(name), command)

    async def run(
        self, name: str, *argv: str, data: bytes | None = None, window: WindowSize | None = None
    ) -> tuple[ExecEnd, str, str]:
        """Run a command beside a task; return its end, output and errors."""
        one = await self.start(name, *argv, has_input=data is not None, window=window)
        try:
            async with asyncio.timeout(DEADLINE_S):
                if data is not None:
                    await one.streams.write(data)
                    one.streams.end_input()
                printed = await collect(one)
                return await one.wait(), *printed
        finally:
            await one.close()

    async def shell(self, name: str, line: str) -> str:
        """Run a shell line beside a task; return what it has printed."""
        end, output, errors = await self.run(name, "/bin/sh", "-c", line)
        assert (end.exit_code, end.message) == (0, ""), (end, output, errors)
        return output

    async def close(self) -> None:
        """End all commands and all tasks, and check that nothing is left of them."""
        await self.execs.close()
        left = await self.runner.supervisor.end(10)
        self.runner.supervisor.close()
        assert left == 0
        assert not list((self.runner.work / "execs").iterdir())


async def collect(one: TaskExec) -> tuple[str, str]:
    """Read all output of a command."""
    found = {Stream.OUTPUT: b"", Stream.ERRORS: b""}
    async for stream, data in one.output():
        found[stream] += data
    return found[Stream.OUTPUT].decode(), found[Stream.ERRORS].decode()

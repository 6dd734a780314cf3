"""The examples, and the log of programs, as processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.sdk import Resources, TaskState
from croupier.sdk.testing import FakeMaster

EXAMPLES = Path(__file__).parents[3] / "framework_sdk" / "examples"


@asynccontextmanager
async def example(name: str, *arguments: str) -> AsyncIterator[Process]:
    """Run an example, and end it with the test."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def finished(process: Process) -> tuple[int | None, str, str]:
    """Wait for the example's end; return its exit code and output."""
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def run_task(master: FakeMaster, argv: tuple[str, ...], task_id: str) -> None:
    """Run a task as an agent does."""
    process = await asyncio.create_subprocess_exec(*argv)
    code = await process.wait()
    await master.update(task_id, TaskState.RUNNING)
    await master.update(task_id, TaskState.FAILED if code else TaskState.FINISHED, exit_code=code)


async def test_hello_runs_its_tasks_and_stops() -> None:
    async with (
        FakeMaster(auto_run=True) as master,
        example("hello.py", "--master", master.address) as process,
    ):
        subscribed = await master.subscribed()
        assert subscribed.demand is not None
        assert subscribed.demand.count == 5
        master.offer("cpus:0.3;mem:1GB")
        await master.next_call("accept")
        master.offer("cpus:1;mem:1GB")
        code, out, err = await finished(process)
        assert (code, err) == (0, "")
        assert sorted(out.split("\n")[:-1]) == sorted(
            f"hello-{n}: {state}" for n in range(5) for state in ("STARTING", "RUNNING", "FINISHED")
        )
        await master.next_call("teardown")


async def test_the_first_framework_of_the_readme_runs(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    program = tmp_path / "readme.py"
    program.write_text(text.partition("```python\n")[2].partition("```")[0])
    async with FakeMaster(auto_run=True) as master:
        environment = {**os.environ, "CROUPIER_MASTER": master.address}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), stdout=PIPE, stderr=PIPE, env=environment
        )
        try:
            await master.subscribed()
            master.offer("cpus:4;mem:1GB")
            code, out, err = await finished(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (code, err) == (0, "")
        assert out.count("FINISHED") == 5


async def test_word_count_is_correct_although_a_task_fails(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("The cat sat.\n" * 400 + "no newline at the end of the CAT")
    (texts / "b.txt").write_text("Schöne Grüße\n\n\nthe end\n" * 70)
    (texts / "empty.txt").write_text("")
    output = tmp_path / "out"
    arguments = ["--dir", str(texts), "--maps", "3", "--output", str(output)]
    async with (
        FakeMaster() as master,
        example("word_count.py", "--master", master.address, *arguments) as process,
    ):
        assert str((await master.subscribed()).demand).startswith("3 <")
        master.offer("cpus:4;mem:4GB")
        call = await master.next_call("accept")
        assert [task.name for task in call.tasks] == ["map-0", "map-1", "map-2"]
        await master.update(call.tasks[0].task_id, TaskState.FAILED, message="bad luck")
        for task in call.tasks[1:]:
            await run_task(master, task.command.argv, task.task_id)
        for name in ("map-0", "reduce"):
            assert str((await master.next_call("update_demand")).demand).startswith("1 <")
            master.offer("cpus:0.5;mem:64MB")
            [task] = (await master.next_call("accept")).tasks
            assert task.name == name
            await run_task(master, task.command.argv, task.task_id)
        code, out, err = await finished(process)
        assert (code, err) == (0, "")
        assert "map-0: FAILED bad luck" in out
        assert "equal to the count of one process" in out
        counts = json.loads((output / "reduce.json").read_text())
        assert counts["the"] == 400 + 2 + 70
        assert counts["grüße"] == 70


async def test_word_count_reports_counts_that_differ(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("one two\n")
    async with (
        FakeMaster() as master,
        example(
            "word_count.py", "--master", master.address, "--maps", "1",
            "--output", str(tmp_path / "out"), str(text),
        ) as process,
    ):  # fmt: skip
        await master.subscribed()
        for _ in range(2):
            master.offer("cpus:0.5;mem:64MB")
            [task] = (await master.next_call("accept")).tasks
            output = Path(task.command.argv[3])
            output.write_text('{"one": 2}')
            await master.update(task.task_id, TaskState.FINISHED)
        code, _, err = await finished(process)
        assert code == 1
        assert "differ" in err


async def test_drf_pair_fills_its_offers_until_a_signal() -> None:
    arguments = ["--name", "A", "--role", "ads", "--unit", "cpus:1;ports:2", "--task-seconds", "3"]
    async with (
        FakeMaster() as master,
        example("drf_pair.py", "--master", master.address, *arguments) as process,
    ):
        subscribed = await master.subscribed()
        assert (subscribed.name, subscribed.role) == ("A", "ads")
        assert subscribed.demand is not None
        assert subscribed.demand.count is None
        master.offer("cpus:2;mem:1GB;ports:[10-20]")
        call = await master.next_call("accept")
        assert [task.resources for task in call.tasks] == [
            Resources.parse("cpus:1;ports:[10-11]"),
            Resources.parse("cpus:1;ports:[12-13]"),
        ]
        assert call.tasks[0].command.argv == ("sleep", "3")
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"A: 2 running, 0 ended\n"
        process.send_signal(signal.SIGINT)
        assert await finished(process) == (0, "", "")
        await master.next_call("teardown")


PROGRAM = """
import asyncio, logging, sys
from croupier.sdk import Framework

class Faulty(Framework):
    async def on_offers(self, offers):
        print("mine")
        raise ValueError("a bug")

    async def on_failure(self, failure):
        await self.stop()

if sys.argv[2]:
    logging.basicConfig(level=sys.argv[2], format="%(name)s|%(levelname)s|%(message)s")
framework = Faulty(name="faulty", master=sys.argv[1])
framework.run_forever() if sys.argv[3] == "run_forever" else asyncio.run(framework.run())
"""


async def outputs(level: str, method: str) -> tuple[str, str]:
    """Return stdout and stderr of a framework with a faulty handler, which logs at `level`."""
    async with FakeMaster() as master:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, master.address, level, method, stdout=PIPE, stderr=PIPE
        )
        try:
            await master.subscribed()
            master.offer("cpus:1;mem:64MB")
            await master.next_call("decline")
            master.fail_agent("a1")
            async with asyncio.timeout(20):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return out.decode(), err.decode()


@pytest.mark.parametrize("method", ["run_forever", "run"])
async def test_stdout_has_only_the_output_of_the_framework(method: str) -> None:
    out, err = await outputs("", method)
    assert out == "mine\n"
    assert "handler_failed handler=on_offers" in err, "a bug is shown without any configuration"
    assert "ValueError: a bug" in err
    assert "subscribed" not in err, "nothing below a warning is shown"


async def test_a_program_configures_the_log_with_the_logging_module() -> None:
    out, err = await outputs("INFO", "run_forever")
    assert out == "mine\n"
    assert "croupier.sdk|INFO|subscribed framework_id=fake-1-F1 master_id=" in err
    assert "croupier.sdk|ERROR|handler_failed handler=on_offers" in err

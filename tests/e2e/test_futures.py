"""`ClusterExecutor` on a real cluster."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from croupier.futures import (
    ClusterBroken,
    ClusterExecutor,
    Progress,
    RemoteError,
    TooLarge,
    WorkerDied,
)
from tests.harness.executors import executor_on
from tests.harness.real_local import Local, running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

REPO = Path(__file__).resolve().parents[2]
WAIT_S = 40

status = "new"
counts: dict[str, int] = {}


def set_status(value: str) -> None:
    global status
    status = value
    counts["set"] = counts.get("set", 0) + 1


def shown_status() -> tuple[str, dict[str, int]]:
    return status, counts


def complain(text: str) -> None:
    print(text, file=sys.stderr)
    os._exit(7)


def fail(text: str) -> None:
    print("about to fail", file=sys.stderr, flush=True)
    raise ValueError(text)


class Stubborn(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def step(self) -> int:
        self.count += 1
        return self.count


def be_stubborn() -> None:
    raise Stubborn(1, 2)


cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("futures"), "--agents", "2") as running:
        yield running


@pytest.fixture
def executor(local: Local) -> Iterator[ClusterExecutor]:
    with executor_on(local.master) as running:
        yield running


def test_the_example_of_the_documentation(local: Local) -> None:
    text = (REPO / "docs" / "futures.md").read_text()
    program = local.work_dir / "example.py"
    program.write_text(text.partition("```python\n")[2].partition("```")[0])
    done = local.run(sys.executable, "-W", "error", str(program))
    assert (done.returncode, done.stderr) == (0, "")
    primes, results, error, progress = done.stdout.splitlines()
    assert (primes, results) == ("168 primes", "[42.0, 1024]")
    assert error == "division by zero - told by the worker: True"
    assert progress.startswith("Progress(waiting=0, running=0, done=22, failed=1, retried=0")


def test_many_calls_share_the_processes_of_a_few_workers(executor: ClusterExecutor) -> None:
    pids = [executor.submit(os.getpid) for _ in range(500)]
    assert 1 <= len({future.result(WAIT_S) for future in pids}) <= 2
    assert os.getpid() not in {future.result() for future in pids}
    assert executor.progress().done == 500


def test_map_keeps_the_order_and_takes_items_as_they_are_needed(executor: ClusterExecutor) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = executor.map(str, items(), buffersize=4, chunksize=3, timeout=WAIT_S)
    assert next(results) == "0"
    assert len(taken) <= 18
    assert [next(results) for _ in range(3)] == ["1", "2", "3"]
    assert list(results) == [str(number) for number in range(4, 100)]
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(str, [1], chunksize=0)


def test_an_initializer_sets_globals_that_calls_see(local: Local) -> None:
    options: Any = {"initializer": set_status, "initargs": ("ready",), "max_workers": 1}
    with executor_on(local.master, **options) as executor:
        assert executor.submit(shown_status).result(WAIT_S) == ("ready", {"set": 1})
        executor.submit(set_status, "changed").result()
        assert executor.submit(shown_status).result() == ("changed", {"set": 2})


def test_a_call_gets_its_object_as_it_was_submitted(executor: ClusterExecutor) -> None:
    counter = Counter()
    assert [executor.submit(counter.step).result(WAIT_S) for _ in range(3)] == [1, 1, 1]


def test_errors_of_calls_arrive_with_their_tracebacks(executor: ClusterExecutor) -> None:
    with pytest.raises(ValueError, match="broken") as raised:
        executor.submit(fail, "broken").result(WAIT_S)
    # Line numbers only: cloudpickle 3.1.3 and newer send no file names, which the text needs.
    line = fail.__code__.co_firstlineno + 2
    assert re.search(rf"line {line}, in fail\b", str(raised.value.__cause__))
    line = be_stubborn.__code__.co_firstlineno + 1
    with pytest.raises(RemoteError, match=rf"line {line}, in be_stubborn\b"):
        executor.submit(be_stubborn).result()
    with pytest.raises(SystemExit):
        executor.submit(sys.exit, 3).result()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        executor.submit(__import__, "no_such_module").result()


def test_what_cannot_be_pickled_or_is_too_large_is_an_error_on_the_future(local: Local) -> None:
    with executor_on(local.master, max_bytes=1 << 20) as executor:
        lock = threading.Lock()
        assert isinstance(executor.submit(id, lock).exception(WAIT_S), TypeError)
        assert isinstance(executor.submit(lambda: lock).exception(WAIT_S), TypeError)
        assert isinstance(executor.submit(threading.Lock).exception(WAIT_S), TypeError)
        for too_large in (executor.submit(len, bytes(1 << 21)), executor.submit(bytes, 1 << 21)):
            with pytest.raises(TooLarge, match="max_bytes of the executor is 1048576"):
                too_large.result(WAIT_S)
        assert executor.submit(len, bytes(1_000_000)).result(WAIT_S) == 1_000_000


def test_a_hundred_megabytes_go_in_and_come_out(local: Local) -> None:
    size = 100 * 2**20 - 1000
    with executor_on(local.master, mem="1GB") as executor:
        assert executor.submit(len, bytes(size)).result(WAIT_S) == size
        assert len(executor.submit(bytes, size).result(WAIT_S)) == size


def test_a_worker_that_dies_in_a_call_is_told_with_its_output(executor: ClusterExecutor) -> None:
    bad = executor.submit(complain, "no licence")
    others = [executor.submit(abs, -number) for number in range(50)]
    with pytest.raises(WorkerDied, match=r"exit code 7; its output:\nno licence"):
        bad.result(WAIT_S)
    assert [future.result(WAIT_S) for future in others] == list(range(50))


def test_a_call_is_retried_as_often_as_asked_for(executor: ClusterExecutor, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def third_time_lucky(kind: str) -> int:
        attempt = len(list(marks.iterdir())) + 1
        (marks / str(attempt)).touch()
        if attempt < 3 and kind == "dies":
            os._exit(1)
        if attempt < 3:
            raise ConnectionError(attempt)
        for mark in marks.iterdir():
            mark.unlink()
        return attempt

    assert executor.options(retries=2).submit(third_time_lucky, "dies").result(WAIT_S) == 3
    again = executor.options(retries=2, retry_on=OSError)
    assert again.submit(third_time_lucky, "raises").result(WAIT_S) == 3
    with pytest.raises(WorkerDied, match="attempt 2 of 2"):
        executor.options(retries=1).submit(os._exit, 1).result(WAIT_S)
    assert executor.progress().retried == 5


def test_cancel_ends_waiting_calls_and_running_ones_that_may_be_stopped(local: Local) -> None:
    with executor_on(local.master, max_workers=1) as executor:
        stoppable = executor.options(cancel_running=True).submit(time.sleep, 600)
        fixed = executor.submit(time.sleep, 0.2)
        waiting = [executor.submit(time.sleep, 600) for _ in range(3)]
        deadline = time.monotonic() + WAIT_S
        while not stoppable.running():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert all(future.cancel() for future in waiting)
        assert wait(waiting, WAIT_S).not_done == set()
        assert stoppable.cancel()
        with pytest.raises(CancelledError):
            stoppable.result()
        assert fixed.result(WAIT_S) is None
        assert not fixed.cancel()


def test_calls_that_need_more_get_workers_of_their_own(local: Local) -> None:
    with executor_on(local.master, max_workers=1) as executor:
        small = executor.submit(os.getpid).result(WAIT_S)
        large = executor.options(cpus=0.2).submit(os.getpid).result(WAIT_S)
        assert small != large
        listed = local.croupier("tasks").stdout
    assert ("cpus:0.1;mem:128MB" in listed, "cpus:0.2;mem:512MB" in listed) == (True, True)


def test_idle_workers_end_and_later_calls_get_new_ones(local: Local) -> None:
    seen: list[Progress] = []
    with executor_on(local.master, idle_s=0.2, on_progress=seen.append) as executor:
        first = executor.submit(os.getpid).result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while executor.progress().workers:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert executor.submit(os.getpid).result(WAIT_S) != first
    assert (1, 0) in {(each.done, each.workers) for each in seen}
    assert seen[-1].done == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"python": "/no/such/python"}, "Name a Python that agents have"),
        ({"address": "127.0.0.1", "listen": "127.0.0.2"}, "could not connect to 127.0.0.1"),
        ({"initializer": fail, "initargs": ("no data",)}, "ValueError: no data(.|\n)*to fail"),
        ({"initializer": complain, "initargs": ("no licence",)}, "exit code 7(.|\n)*no licence"),
        ({"initializer": __import__, "initargs": ("no_such",)}, "No module named 'no_such'"),
    ],
)
def test_workers_that_do_not_start_break_the_executor(
    local: Local, options: dict[str, Any], reason: str
) -> None:
    with executor_on(local.master, **options) as executor:
        calls = [executor.submit(abs, 1) for _ in range(3)]
        for call in calls:
            with pytest.raises(ClusterBroken, match=reason):
                call.result(WAIT_S)
        with pytest.raises(ClusterBroken, match=reason):
            executor.submit(abs, 1)


def test_another_minor_version_is_refused_before_anything_is_unpickled(
    local: Local, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import platform, sys\n"
        "sys.version_info = (3, 7, 1)\n"
        "platform.python_version = lambda: '3.7.1'\n"
        "exec(sys.argv[-1])\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    with executor_on(local.master, python=str(python)) as executor:
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        with pytest.raises(
            ClusterBroken, match=rf"runs cpython 3\.7\.1, this program cpython {here}"
        ):
            executor.submit(abs, 1).result(WAIT_S)


def test_the_key_of_workers_is_in_no_list(local: Local, executor: ClusterExecutor) -> None:
    assert executor.submit(os.environ.get, "CROUPIER_FUTURES").result(WAIT_S) is None
    listed = local.croupier("tasks", "--json", "--commands").stdout
    assert "CROUPIER_FUTURES" in listed
    assert "BEGIN CERTIFICATE" not in listed


async def test_it_serves_asyncio(local: Local) -> None:
    async with ClusterExecutor(2, master=local.master, cpus=0.1, mem="128MB") as executor:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(executor, abs, -3) == 3
        results = await asyncio.gather(
            *(asyncio.wrap_future(executor.submit(pow, 2, n)) for n in range(10))
        )
    assert results == [2**n for n in range(10)]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_ctrl_c_ends_the_calls(local: Local) -> None:
    began = time.monotonic()
    calls: list[Future[None]] = []

    def interrupted() -> None:
        with ClusterExecutor(1, master=local.master, cpus=0.1, mem="128MB") as executor:
            calls.append(executor.submit(time.sleep, 600))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert calls[0].done()
    assert time.monotonic() - began < WAIT_S

"""CPython's own `test_concurrent_futures`, run with `ClusterExecutor`.

The tests are those of the installed Python or of Debian's package of them. What does not apply is
in `NOT_APPLICABLE` with the reason, and has a test of our own here or in test_futures.py where
there is such behaviour.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import shutil
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from croupier.futures import ClusterExecutor
from tests.harness.debian import KEPT, NoProgram, unavailable, unpack
from tests.harness.executors import SMALL
from tests.harness.real_local import Local, running_local

NAME = "test.test_concurrent_futures"
# From Python 3.12 on the tests are a package with these modules.
PARTS = ("executor", "test_as_completed", "test_init", "test_shutdown", "test_wait")


def cpython_modules() -> list[ModuleType]:
    """Return the modules with the tests; skip the test, or fail it in CI, without them."""
    try:
        modules = _installed() or [_downloaded()]
    except NoProgram as reason:
        unavailable(reason)
    for module in modules:
        # Workers need not have them.
        cloudpickle.register_pickle_by_value(module)
    return modules


def _installed() -> list[ModuleType]:
    try:
        whole = importlib.import_module(NAME)
    except ModuleNotFoundError:
        return []
    if not hasattr(whole, "__path__"):
        return [whole]
    return [importlib.import_module(f"{NAME}.{part}") for part in PARTS]


def _downloaded() -> ModuleType:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    file = KEPT / "cpython" / version / "test_concurrent_futures.py"
    if not file.is_file():
        _download(f"libpython{version}-testsuite", version, file)
    spec = importlib.util.spec_from_file_location(NAME, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module


def _download(package: str, version: str, file: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NoProgram(f"this Python has no {NAME}, and there is no apt-get to fetch it with")
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT, prefix=f"{package}.") as half:
        tree = Path(half) / "tree"
        tree.mkdir()
        unpack(NAME, package, tree)
        found = tree / f"usr/lib/python{version}/test/test_concurrent_futures.py"
        if not found.is_file():
            raise NoProgram(f"{package} does not hold {NAME}")
        file.parent.mkdir(parents=True, exist_ok=True)
        found.rename(file)


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    # asyncio cannot name the connection of a worker that is in its TLS handshake when an executor
    # ends; the process closes it when it collects garbage, or ends.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

WAIT_S = 40
BY_NAME = "starts a program that imports the executor from concurrent.futures by its name"
# Classes of tests that every executor shares. The others test threads and processes of a pool by
# its private attributes (`_threads`, `_processes`, `_call_queue`) and arguments (`mp_context`,
# `max_tasks_per_child`).
GROUPS = (
    "ExecutorTest",
    "WaitTests",
    "AsCompletedTests",
    "ExecutorShutdownTest",
    "InitializerMixin",
)
NOT_APPLICABLE = {
    "test_interpreter_shutdown": BY_NAME,
    "test_submit_after_interpreter_shutdown": BY_NAME,
    "test_hang_gh83386": BY_NAME,
    "test_hang_gh94440": BY_NAME,
    "test_cancel_futures": "expects that a worker takes its first call at once",
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("cpython"), "--agents", "2") as running:
        yield running


def found(modules: list[Any], name: str) -> Any:
    """Return the class of that name, or the mixin that makes executors."""
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def cases(local: Local, modules: list[Any], group: str) -> Iterator[unittest.TestCase]:
    """Yield the applicable tests of a group."""

    class Executor(ClusterExecutor):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**SMALL, **options, "master": local.master})
            # The tests are about calls, some with deadlines, and not about the start of workers.
            self.submit(abs, 1).result(WAIT_S)

    bases = [found(modules, group), unittest.TestCase]
    if not issubclass(bases[0], found(modules, "ExecutorMixin")):
        bases.insert(1, found(modules, "ExecutorMixin"))
    case = type(group, tuple(bases), {"executor_type": Executor})
    for name in unittest.defaultTestLoader.getTestCaseNames(case):
        if name not in NOT_APPLICABLE:
            yield case(name)


def test_cpython(local: Local) -> None:
    modules = cpython_modules()
    found = {group: list(cases(local, modules, group)) for group in GROUPS}
    assert all(found.values())

    def failures_of(case: unittest.TestCase) -> list[str]:
        result = unittest.TestResult()
        case.run(result)
        assert result.testsRun == 1
        return [f"{test}: {text}" for test, text in result.failures + result.errors]

    # They mostly sleep.
    with ThreadPoolExecutor(5) as pool:
        every = [case for group in found.values() for case in group]
        assert [text for texts in pool.map(failures_of, every) for text in texts] == []


def run_program(local: Local, text: str) -> tuple[int, str, str]:
    program = local.work_dir / "program.py"
    program.write_text(
        "from croupier.futures import ClusterExecutor\n"
        "import atexit, time\n"
        "def slow(value):\n"
        "    time.sleep(0.5)\n"
        "    return value\n"
        'executor = ClusterExecutor(2, cpus=0.1, mem="128MB")\n' + text
    )
    done = local.run(sys.executable, "-W", "error", str(program), timeout_s=60)
    return done.returncode, done.stdout, done.stderr


def test_calls_are_finished_before_the_interpreter_ends(local: Local) -> None:
    text = "executor.submit(slow, 'apple').add_done_callback(lambda done: print(done.result()))\n"
    assert run_program(local, text) == (0, "apple\n", "")


def test_shutdown_without_waiting_finishes_calls(local: Local) -> None:
    text = (
        "executor.submit(slow, 'pear').add_done_callback(lambda done: print(done.result()))\n"
        "executor.shutdown(wait=False)\n"
        "print('first')\n"
    )
    assert run_program(local, text) == (0, "first\npear\n", "")


def test_nothing_can_be_submitted_while_the_interpreter_ends(local: Local) -> None:
    text = (
        "assert executor.submit(slow, 1).result() == 1\n"
        "@atexit.register\n"
        "def late():\n"
        "    try:\n"
        "        executor.submit(slow, 1)\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
    )
    assert run_program(local, text) == (0, "cannot schedule new futures after shutdown\n", "")


def test_an_executor_that_is_dropped_finishes_its_calls_and_ends(local: Local) -> None:
    before = set(threading.enumerate())
    executor = ClusterExecutor(2, master=local.master, **SMALL)
    results = executor.map(abs, range(-5, 5))
    (thread,) = set(threading.enumerate()) - before
    del executor
    gc.collect()
    assert list(results) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_shutdown_cancels_calls_that_have_not_begun(local: Local) -> None:
    with ClusterExecutor(1, master=local.master, **SMALL) as executor:
        assert executor.submit(abs, -1).result(WAIT_S) == 1
        calls = [executor.submit(time.sleep, 1.0) for _ in range(20)]
        calls[0].result(WAIT_S)
        executor.shutdown(cancel_futures=True)
    assert all(call.done() for call in calls)
    assert 1 <= sum(not call.cancelled() for call in calls) <= 3
    assert all(call.cancelled() or call.exception() is None for call in calls)

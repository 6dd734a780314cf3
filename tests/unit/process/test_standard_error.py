"""No state of its stderr ends or delays a daemon."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from croupier.process import queue_writer
from croupier.process.daemon import log_grpc_errors
from croupier.process.queue_writer import BATCH, MAX_WAITING, LineWriter
from tests.harness.broken_descriptors import BROKEN
from tests.harness.eventually import eventually

# Logs 300 KB by all ways to stderr, waits so many seconds for lost lines, and tells whether its
# loop was fast and lines were lost.
PROGRAM = """
import asyncio, os, sys, time, warnings
from croupier.process.daemon import run_daemon
from croupier.process.logging import configure_logging, get_logger, lines_lost

async def main(stop):
    log, longest = get_logger("croupier.test"), 0.0
    for number in range(300):
        began = time.monotonic()
        log.info("line", number=number, filler="x" * 1000)
        longest = max(longest, time.monotonic() - began)
    print("printed", file=sys.stderr, flush=True)
    warnings.warn("warned", stacklevel=1)
    asyncio.get_running_loop().call_exception_handler({"message": "unhandled"})
    until = time.monotonic() + float((sys.argv[1:] or ["0.3"])[0])
    while not lines_lost() and time.monotonic() < until:
        await asyncio.sleep(0.02)
    print(longest < 5.0, lines_lost() > 0, flush=True)
    await stop.wait()

configure_logging("json")
code = run_daemon("tester", main)
sys.exit(code)
"""


@pytest.mark.parametrize("broken", BROKEN)
def test_a_daemon_outlives_its_stderr(broken: str) -> None:
    # Lines that wait for the reader of a pipe are not lost before the end.
    loses = broken not in ("no reader reads", "EAGAIN")
    words = [sys.executable, "-c", PROGRAM, "20" if loses else "0.3"]
    with (
        BROKEN[broken]() as stderr,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        was_fast, has_lost = process.stdout.readline().split()
        assert was_fast == "True"
        assert has_lost == str(loses)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_closed_stderr_is_held_open() -> None:
    """A store must not get its number."""
    program = PROGRAM.replace("await stop.wait()", "print(os.readlink('/proc/self/fd/2'))")
    words = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program]
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert run.stdout.split() == ["True", "False", "/dev/null"]


def test_lines_in_the_journal_begin_with_their_priority() -> None:
    program = PROGRAM.replace("await stop.wait()", "1 / 0")
    with tempfile.TemporaryFile() as journal:
        about = os.fstat(journal.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}
        program = program.replace('"json"', '"auto"')
        run = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE, stderr=journal, env=environment, timeout=60, check=False,
        )  # fmt: skip
        journal.seek(0)
        lines = journal.read().decode().splitlines()
    assert run.returncode == 1
    assert [line[:3] for line in lines[:300]] == ["<6>"] * 300
    assert json.loads(lines[0][3:])["number"] == 0
    assert lines[300] == "<3>printed"
    assert {line[:3] for line in lines[301:]} == {"<3>"}
    assert lines[-1] == "<3>ZeroDivisionError: division by zero"


class Sink:
    """A file that fails as long as `error` is set."""

    def __init__(self, error: OSError | None) -> None:
        self.error, self.text = error, b""
        self.failed: list[Exception] = []
        self.recovered: list[int] = []

    def write(self, data: bytes) -> None:
        if self.error is not None:
            self.text += data[:3]
            raise self.error
        self.text += data


def _writer(sink: Sink) -> LineWriter:
    return LineWriter("test", sink.write, sink.failed.append, sink.recovered.append)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EPIPE, errno.EAGAIN])
async def test_lost_lines_are_counted_and_reported_once(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_writer, "RETRY_S", 0.01)
    sink = Sink(OSError(number, os.strerror(number)))
    writer = _writer(sink)
    for lost in (1, 2):
        writer.put(b"lost\n")
        await eventually(lambda lost=lost: writer.lost == lost)  # type: ignore[misc]
    assert (sink.failed, sink.recovered) == ([sink.error], [])
    sink.error = None
    writer.put(b"four\n")
    await eventually(lambda: sink.recovered == [2])
    writer.put(b"five\n")
    assert writer.close(10)
    assert (writer.lost, writer.written, sink.recovered) == (2, 2, [2])
    # Parts of the lost lines end where the next line begins.
    assert sink.text.endswith(b"\nfour\nfive\n")


def test_a_write_that_hangs_delays_neither_lines_nor_the_end() -> None:
    is_writing, may_write = threading.Event(), threading.Event()
    written: list[int] = []

    def write(data: bytes) -> None:
        is_writing.set()
        may_write.wait(20)
        written.append(data.count(b"\n"))

    writer = LineWriter("test", write)
    writer.put(b"first\n")
    assert is_writing.wait(10)
    for _ in range(MAX_WAITING + 5):
        writer.put(b"line\n")
    assert writer.lost == 5
    assert not writer.close(0.01)
    writer.put(b"too late\n")
    assert writer.lost == 6
    may_write.set()
    assert writer.close(10)
    assert sum(written) == writer.written == MAX_WAITING + 1
    assert max(written) <= BATCH


def test_a_line_may_be_logged_while_one_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer may run anywhere in `put`."""
    sink = Sink(None)
    writer = _writer(sink)
    notify: Callable[[], None] = writer._change.notify

    def and_again() -> None:
        notify()
        monkeypatch.undo()
        writer.put(b"inner\n")

    monkeypatch.setattr(writer._change, "notify", and_again)
    writer.put(b"outer\n")
    assert writer.close(10)
    assert sink.text == b"outer\ninner\n"


# Errors that gRPC logs are few lines, without what a peer has sent.


def test_a_repeated_error_is_one_line_without_its_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("grpc")
    before = logger.handlers[:], logger.propagate
    log_grpc_errors()
    log_grpc_errors()
    try:
        with capture_logs() as said:
            for _ in range(50):
                try:
                    raise ValueError("what the peer sent")
                except ValueError:
                    logging.getLogger("grpc._common").exception("Exception deserializing message!")
    finally:
        logger.handlers[:], logger.propagate = before
    assert said == [
        {
            "event": "grpc_error",
            "log_level": "warning",
            "message": "Exception deserializing message!",
            "kind": "ValueError",
            "not_logged": 0,
        }
    ]
    assert capfd.readouterr() == ("", "")

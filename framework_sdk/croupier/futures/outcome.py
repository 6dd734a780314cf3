"""The answers of workers, as results and exceptions."""

from __future__ import annotations

import json
import pickle
import signal
import struct
from concurrent.futures import BrokenExecutor, InvalidStateError
from contextlib import suppress
from typing import Any

from croupier.futures.call import CallFuture
from croupier.futures.remote.protocol import ERROR_HEAD, RAISED, TOO_LARGE


class ClusterBroken(BrokenExecutor):
    """The executor cannot run calls: its workers do not start, or its session ended.

    All calls that are not over get this error, and `submit` raises it.
    """


class WorkerDied(RuntimeError):
    """The worker ended during the call, and no more retries were asked for.

    The call may have had a part of its effects.
    """


class TooLarge(ValueError):
    """The arguments or the result of a call are larger than `max_bytes`."""


class RemoteError(RuntimeError):
    """An exception of a call that could not be pickled, or not be unpickled here.

    Its text has the traceback of the worker.
    """


class RemoteTraceback(Exception):
    """The traceback of a call's exception in the worker; the cause of that exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def death_of(body: bytes) -> tuple[str, str, str]:
    """Read a frame DIED; return the phase (`setup`, `idle` or `call`), how it ended, and stderr."""
    said = json.loads(body)
    status = int(said["status"])
    number = status & 0x7F
    if number:
        ending = f"was ended by signal {number}{_name_of(number)}"
    else:
        ending = f"ended with exit code {status >> 8}"
    output = f"; its output:\n{said['output']}" if said["output"] else ""
    return str(said["phase"]), ending, output


def result_of(body: bytes) -> object:
    """Return the result of a call."""
    return pickle.loads(body)  # noqa: S301 - from a worker that has proved itself


def error_of(body: bytes, max_bytes: int, host: str) -> BaseException:
    """Return the exception that a call raised, with its traceback as the cause."""
    kind, size = ERROR_HEAD.unpack_from(body)
    text = body[ERROR_HEAD.size : ERROR_HEAD.size + size].decode(errors="replace")
    rest = body[ERROR_HEAD.size + size :]
    if kind == TOO_LARGE:
        (had,) = struct.unpack("!Q", rest)
        return TooLarge(
            f"the result has {had} bytes pickled, and max_bytes of the executor is {max_bytes}"
        )
    if kind == RAISED:
        try:
            error = result_of(rest)
        except Exception as problem:
            text += f"\nIt could not be unpickled here: {problem!r}"
        else:
            if isinstance(error, BaseException):
                error.__cause__ = RemoteTraceback(text)
                return error
    return RemoteError(f"a call failed on {host}, with an exception that cannot be sent:\n{text}")


def give_result(future: CallFuture[Any], body: bytes) -> None:
    """End a call with its result, or the error of reading it; a cancelled one stays."""
    with suppress(InvalidStateError):
        try:
            result = result_of(body)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


def _name_of(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""

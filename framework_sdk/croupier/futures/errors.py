"""What can become of a call, besides its result and the exceptions of its own."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor


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

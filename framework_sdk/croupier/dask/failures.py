"""Workers that end before they have connected, and what that means."""

from __future__ import annotations

from typing import Final

from croupier.dask.boot import NO_DASK, OTHER_PYTHON
from croupier.futures.private_python import private_python_hint
from croupier.sdk import CroupierError, Reason, TaskState, TaskStatus

# So many, one after the other, and the cluster gives up.
MAX_FAILURES: Final = 3
PAUSE_S: Final = 1.0
_ENDS: Final = frozenset({TaskState.FAILED, TaskState.FINISHED, TaskState.ERROR})


class WorkersFailed(CroupierError):
    """Workers end before they have connected to the scheduler."""


class StartFailures:
    """Counts such workers."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def pause_s(self) -> float:
        """Return the time before the next worker is started."""
        return PAUSE_S if self._count else 0.0

    def on_success(self) -> None:
        """Record that a worker has connected."""
        self._count = 0

    def on_failure(self, status: TaskStatus, where: str) -> WorkersFailed | None:
        """Record that one has not; return an error if the cluster should give up.

        `where` names its agent.
        """
        if status.state not in _ENDS or status.reason.is_blameless:
            return None
        self._count += 1
        if self._count < MAX_FAILURES:
            return None
        return WorkersFailed(
            f"{self._count} workers ended before they had connected; the last one on"
            f" {where or 'no agent'}: {explain(status)}"
        )


def explain(status: TaskStatus) -> str:
    """Return why a worker ended, and what to do."""
    if status.exit_code == OTHER_PYTHON:
        return (
            "its Python is of another minor version than the client's; name one with python=PATH,"
            " or an image"
        )
    if status.exit_code == NO_DASK:
        return "its Python has no Dask: install distributed there, or name another with python=PATH"
    if status.reason is Reason.CONTAINER_LAUNCH_FAILED:
        hint = private_python_hint()
        return f"{status.message}; name a Python that agents have with python=PATH{hint}"
    if status.exit_code is not None:
        return (
            f"exit code {status.exit_code}; its stderr is in the sandbox of task {status.task_id}."
            " If it found no scheduler, give an address of this machine that agents reach"
            " (address=HOST)"
        )
    return f"{status.state.name} {status.reason.name} {status.message}".rstrip()

"""Checks of tasks, their commands and executors' updates, as programs write them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.executor import MAX_TASK_DATA, MAX_UPDATE_DATA, MAX_UPDATE_ID
from croupier.model.ids import check_id
from croupier.model.isolation import MAX_COMPLETION_MS, NO_ISOLATION, NO_LIMITS
from croupier.model.output_bound import NO_OUTPUT_BOUND
from croupier.model.preemption import NO_PREEMPTION
from croupier.model.scalar import format_scalar
from croupier.model.secrets import MAX_SEALED, check_secret_names
from croupier.model.task import Command, TaskInfo
from croupier.model.volume import check_mounts

# Characters of a name.
MAX_NAME = 4096
MAX_ENVIRONMENT_BYTES = 128 * 1024
MAX_COMMAND_BYTES = 128 * 1024
# Words of a command, and variables of its environment.
MAX_WORDS = 10_000
MAX_GRACE_MS = 24 * 3600 * 1000
MAX_LABELS = 64
MAX_LABEL = 1024
# Command, limits, isolation, output and volumes of a task that an executor runs.
_IN_EXECUTOR: Final = (Command(), NO_LIMITS, NO_ISOLATION, NO_OUTPUT_BOUND, ())


def check_task(task: TaskInfo) -> None:
    """Raise InvalidRequest if the task is invalid, apart from the offers that it is on."""
    check_id("task", task.task_id)
    if len(task.name) > MAX_NAME:
        raise InvalidRequest(f"the task's name is longer than {MAX_NAME} characters")
    if not task.resources:
        raise InvalidRequest("the task asks for no resources")
    if task.devices is not None or "gpus" in task.resources.scalars:
        _check_devices(task)
    check_grace(task.grace_ms)
    if len(task.labels) > MAX_LABELS or any(
        len(key) > MAX_LABEL or len(value) > MAX_LABEL for key, value in task.labels
    ):
        raise InvalidRequest(f"at most {MAX_LABELS} labels of {MAX_LABEL} characters")
    if not 0 <= task.max_completion_ms <= MAX_COMPLETION_MS:
        raise InvalidRequest("the time to complete must be between 0 and 366 days")
    task.limits.check()
    task.output.check()
    _check_limits(task)
    task.isolation.check()
    if task.volumes:
        is_boxed = task.isolation.namespaces or bool(task.isolation.image)
        check_mounts(task.volumes, is_boxed=is_boxed)
    if task.group is not None:
        task.group.check()
        if task.isolation.no_network:
            raise InvalidRequest(
                "a task of a group cannot be without network: no agent can give the tasks of"
                " one group a network of their own"
            )
    if task.gang is not None:
        _check_member(task)
    if task.preemption is not NO_PREEMPTION:
        _check_preemption(task)
    _check_executor(task)
    if not task.executor_id:
        check_command(task.command)


def _check_preemption(task: TaskInfo) -> None:
    task.preemption.check()
    is_alone = not task.unit_id and task.executor is None and not task.executor_id
    if task.preemption.needs_agent and not is_alone:
        raise InvalidRequest(
            "a task with a checkpoint signal, or that is to be requeued, is alone: in no group,"
            " gang or executor, and no executor"
        )


def _check_member(task: TaskInfo) -> None:
    assert task.gang is not None
    task.gang.check()
    if task.group is not None:
        raise InvalidRequest("a task cannot be in a group and in a gang")
    if task.executor is not None or task.executor_id:
        raise InvalidRequest("a task of a gang cannot be an executor, nor run in one")
    if task.volumes:
        raise InvalidRequest("a task of a gang cannot use volumes")
    if task.isolation.no_network:
        raise InvalidRequest("a task of a gang needs the network: its gang is on several agents")


def _check_devices(task: TaskInfo) -> None:
    request = task.devices
    if request is not None:
        request.check(task.resources)
    if task.resources["gpus"] % 1000 and (request is None or request.kind != "gpus"):
        raise InvalidRequest("gpus must be whole; a part of one is asked for by a device request")


def _check_executor(task: TaskInfo) -> None:
    if len(task.data) > MAX_TASK_DATA:
        raise InvalidRequest(f"the task's data are larger than {MAX_TASK_DATA} bytes")
    if task.executor is not None:
        task.executor.check()
        if task.executor_id:
            raise InvalidRequest("an executor cannot run in another executor")
    elif task.executor_id:
        check_id("executor", task.executor_id)
        if task.group is not None:
            raise InvalidRequest("a task in an executor cannot be in a group")
        own = (task.command, task.limits, task.isolation, task.output, task.volumes)
        if own != _IN_EXECUTOR:
            raise InvalidRequest(
                "a task in an executor has no command, limits, isolation, output or volumes of its"
                " own"
            )
    elif task.data:
        raise InvalidRequest("data are for executors and for tasks in them")


def _check_limits(task: TaskInfo) -> None:
    """Check that no limit is below what the task is charged for."""
    for name in ("cpus", "mem", "disk"):
        limit: int = getattr(task.limits, name)
        if limit and limit < task.resources[name]:
            raise InvalidRequest(
                f"the limit of {name} ({format_scalar(name, limit)}) is below the task's {name}"
                f" ({format_scalar(name, task.resources[name])}): lower that too"
            )


def check_command(command: Command) -> None:
    """Check the command; raises InvalidRequest if no agent can run it."""
    if bool(command.argv) == bool(command.shell):
        raise InvalidRequest("a command is either a list of words or a shell line")
    words = (*command.argv, command.shell, command.user)
    if command.argv and not command.argv[0]:
        raise InvalidRequest("the command's program is empty")
    if any("\0" in word for word in words):
        raise InvalidRequest("the command holds a NUL character")
    if sum(len(word.encode(errors="replace")) for word in words) > MAX_COMMAND_BYTES:
        raise InvalidRequest(f"the command is longer than {MAX_COMMAND_BYTES} bytes")
    size = 0
    for name, value in command.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"{name[:80]!r} cannot be an environment variable")
        size += len((name + value).encode(errors="replace"))
    if size > MAX_ENVIRONMENT_BYTES:
        raise InvalidRequest(f"the environment is larger than {MAX_ENVIRONMENT_BYTES} bytes")
    _check_secrets(command)


def _check_secrets(command: Command) -> None:
    check_secret_names(command.secrets)
    for name in sorted(command.secrets.keys() & command.environment.keys()):
        raise InvalidRequest(f"{name} is both a secret and a variable of the environment")
    if sum(value.size for value in command.secrets.values()) > MAX_SEALED:
        raise InvalidRequest("the secrets are too large")


def check_grace(grace_ms: int) -> int:
    """Return `grace_ms` if it is a legal time to end after SIGTERM; else raise InvalidRequest."""
    if not 0 <= grace_ms <= MAX_GRACE_MS:
        raise InvalidRequest("the kill grace must be between 0 and 24 hours")
    return grace_ms


def check_news(data: bytes, labels: Collection[tuple[str, str]], update_id: bytes = b"") -> None:
    """Raise InvalidRequest if what an executor says of its task is too large."""
    if len(data) > MAX_UPDATE_DATA:
        raise InvalidRequest(f"the data of an update are larger than {MAX_UPDATE_DATA} bytes")
    if len(update_id) > MAX_UPDATE_ID:
        raise InvalidRequest(f"the name of an update is longer than {MAX_UPDATE_ID} bytes")
    if len(labels) > MAX_LABELS or any(max(map(len, label)) > MAX_LABEL for label in labels):
        raise InvalidRequest(f"an update has at most {MAX_LABELS} labels of {MAX_LABEL} characters")

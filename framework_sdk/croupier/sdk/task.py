"""The task class of frameworks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from croupier.model.errors import InvalidRequest
from croupier.model.ids import TaskId
from croupier.model.resources import Resources
from croupier.model.secrets import SecretValues
from croupier.model.task import Command, TaskInfo
from croupier.sdk.duration import to_milliseconds


class Task:
    """A command to run on an agent. Immutable.

        Task(command=["sleep", "5"], resources=Resources.parse("cpus:1;mem:128MB"))
        Task(shell="wc -w < /etc/passwd", resources=Resources.parse("cpus:0.5;mem:64MB"))

    Attributes:
        info: the task in the form that master and agents use; it has the names of secrets only.
        secrets: the values of its secrets, which no text of the task shows.
    """

    __slots__ = ("info", "secrets")

    info: TaskInfo
    secrets: SecretValues

    def __init__(
        self,
        command: Sequence[str] = (),
        *,
        resources: Resources,
        shell: str = "",
        task_id: str | None = None,
        name: str = "",
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        secret_files: bool = False,
        user: str = "",
        grace_s: float = 3.0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a task.

        Args:
            command: program and arguments; exactly one of this and `shell` is given.
            resources: the part of its offer that it takes.
            shell: one line for `sh -c`.
            task_id: an id that this framework never used; None makes one.
            name: shown to people.
            env: variables to add to the agent's environment.
            secrets: further variables, which masters encrypt and agents do not store.
            secret_files: deliver the secrets as files, named like them, in the directory
                CROUPIER_SECRETS_DIR of the task, and not as variables.
            user: account to run as; needs an agent that runs as root. Empty: the agent's.
            grace_s: seconds between SIGTERM and SIGKILL when the task is killed.
            labels: for people and tools.

        Raises:
            InvalidRequest: if no agent can ever run the task.
        """
        if isinstance(command, str):
            raise InvalidRequest("a command is a list of words; for a shell line use shell=...")
        self.secrets = SecretValues(secrets)
        self.secrets.check()
        names = self.secrets.withheld()
        self.info = TaskInfo(
            task_id=TaskId(uuid.uuid4().hex if task_id is None else task_id),
            command=Command(tuple(command), shell, dict(env or {}), user, names, secret_files),
            resources=resources,
            name=name,
            grace_ms=to_milliseconds("the kill grace", grace_s),
            labels=tuple((labels or {}).items()),
        )
        self.info.check()

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self.info.task_id

    @property
    def name(self) -> str:
        """Name shown to people."""
        return self.info.name

    @property
    def resources(self) -> Resources:
        """Resources that the task takes from its offer."""
        return self.info.resources

    @property
    def command(self) -> Command:
        """Program or shell line, environment and user."""
        return self.info.command

    @property
    def labels(self) -> dict[str, str]:
        """Labels for people and tools."""
        return dict(self.info.labels)

    def __repr__(self) -> str:
        return f"Task(task_id={self.task_id!r}, resources={self.resources!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Task):
            return False
        return self.info == other.info and self.secrets == other.secrets

    def __hash__(self) -> int:
        return hash(self.task_id)

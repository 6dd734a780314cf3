"""The task class of frameworks."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from croupier.model.devices import DeviceRequest
from croupier.model.durations import to_milliseconds
from croupier.model.errors import InvalidRequest
from croupier.model.executor import ExecutorSpec
from croupier.model.gang import GangMember
from croupier.model.ids import TaskId
from croupier.model.isolation import Isolation, Limits, feature_names, parse_limits
from croupier.model.output_bound import NO_OUTPUT_BOUND, OutputBound, parse_output_size
from croupier.model.preemption import TaskPreemption, parse_checkpoint_signal
from croupier.model.resources import Resources
from croupier.model.secrets import SecretValues, looks_secret
from croupier.model.task import Command, TaskInfo
from croupier.model.task_checks import check_task
from croupier.model.task_group import GroupPart, TaskGroup, parse_part
from croupier.model.volume import VolumeMount
from croupier.sdk.log import log_event


class Task:
    """A command to run on an agent. Immutable.

        Task(command=["sleep", "5"], resources=Resources.parse("cpus:1;mem:128MB"))
        Task(executor_id="pool-1", data=b"job 7", resources=Resources.parse("cpus:1;mem:128MB"))
        Task(shell="wc -w < /etc/passwd", resources=Resources.parse("cpus:0.5;mem:64MB"))

    Attributes:
        info: the task in the form that master and agents use; it has the names of secrets only.
        secrets: the values of its secrets, which no text of the task shows.
        part: its part in the group that it is launched or submitted in, if it is.
    """

    __slots__ = ("info", "part", "secrets")

    info: TaskInfo
    secrets: SecretValues
    part: GroupPart

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
        limits: str | Mapping[str, str | float] = "",
        max_completion_s: float | None = None,
        image: str = "",
        namespaces: bool = False,
        network: bool = True,
        output_size: int | str = 0,
        output_files: int = 0,
        part: str = "member",
        executor: ExecutorSpec | None = None,
        executor_id: str = "",
        data: bytes = b"",
        volumes: Sequence[VolumeMount] = (),
        min_run_s: float = 0.0,
        requeue: bool = False,
        checkpoint_signal: str = "",
        devices: DeviceRequest | None = None,
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
            user: account to run as; needs an agent that runs as root. Empty: the one that the
                agent gives, a uid of the task's own or the agent's account.
            grace_s: seconds between SIGTERM and SIGKILL when the task is killed.
            labels: for people and tools.
            limits: some of cpus, mem, disk, pids and files, as text (`mem:1GB;pids:100`) or as a
                mapping; none is below the task's resources. By default mem and disk are limited
                to the resources, pids and files by the agent, and idle cpus may be used.
            max_completion_s: seconds after which a task that still runs is ended, as FAILED with
                TIMED_OUT; None: never.
            image: the root file system: `docker://NAME`, `oci:PATH:TAG` or `dir:PATH` on the
                agent. Empty: the agent's.
            namespaces: give it a view of the machine of its own: processes, /tmp and a read-only
                system.
            network: False leaves it no network but a loopback interface of its own.
            output_size: bytes of one output file, as a number or as text (`64MB`), at least 64KB.
                Once the task has written `output_files` times as much to stdout or stderr, the
                agent removes the oldest file. 0: the agent's default, 128MB.
            output_files: the files that are kept, at least 2. 0: the agent's default, 8.
            part: its part in a group: `member` (if it does not end as FINISHED, all others are
                ended), `sidecar` (its end ends no other, and it is ended with the last member) or
                `leader` (its end ends all others).
            volumes: those that it uses; it is launched only on their agent. See `Hold.volume`.
            devices: the type and the connection of its GPUs or other devices, whose number is in
                `resources`; needed for a part of one (`gpus:0.5`). The task then runs only on
                agents with named devices.
            executor: makes the task an executor, whose program runs a
                `croupier.sdk.executor.Executor`.
            executor_id: the task id of the executor that runs the task, on the same agent, in
                place of a command. It has been launched, or stands before this task.
            min_run_s: seconds for which it runs before it may be preempted, at most a day. The
                larger one of this and the setting of its role counts.
            requeue: put it back to the front of its queue when it is preempted; only for `submit`.
                Its next run has the same id and a new sandbox. Exit code 0 in the grace means that
                its work is done.
            checkpoint_signal: the signal that it gets when it is preempted, such as SIGUSR1, to
                save its state; SIGTERM follows at the end of the grace of preemption. Empty: none.
            data: for that executor, or of the executor itself; at most 128 KiB.

        Raises:
            InvalidRequest: if no agent can ever run the task.
        """
        if isinstance(command, str):
            raise InvalidRequest("a command is a list of words; for a shell line use shell=...")
        if not isinstance(limits, str):
            limits = ";".join(f"{name}:{amount}" for name, amount in limits.items())
        self.secrets = SecretValues(secrets)
        self.secrets.check()
        self.part = parse_part(part)
        names = self.secrets.withheld()
        self.info = TaskInfo(
            task_id=TaskId(uuid.uuid4().hex if task_id is None else task_id),
            command=Command(tuple(command), shell, dict(env or {}), user, names, secret_files),
            resources=resources,
            name=name,
            grace_ms=to_milliseconds("the kill grace", grace_s),
            labels=tuple((labels or {}).items()),
            limits=parse_limits(limits),
            isolation=Isolation(namespaces, not network, image),
            max_completion_ms=_completion_ms(max_completion_s),
            output=_output_bound(output_size, output_files),
            executor=executor,
            executor_id=TaskId(executor_id),
            data=data,
            volumes=tuple(volumes),
            preemption=TaskPreemption(
                to_milliseconds("the minimum run time", min_run_s),
                requeue,
                parse_checkpoint_signal(checkpoint_signal),
            ),
            devices=devices,
        )
        check_task(self.info)
        for variable, value in self.info.command.environment.items():
            if looks_secret(variable, value):
                _warn_of_plain(variable)

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

    @property
    def limits(self) -> Limits:
        """Hard limits of the task; 0 where it has the default."""
        return self.info.limits

    @property
    def isolation(self) -> Isolation:
        """Isolation that the task asks for."""
        return self.info.isolation

    def in_group(self, group_id: str) -> Task:
        """Return the task as one of a group.

        Raises:
            InvalidRequest: if the id is illegal, or the task cannot be in a group.
        """
        made = Task.__new__(Task)
        made.secrets, made.part = self.secrets, self.part
        made.info = replace(self.info, group=TaskGroup(group_id, self.part))
        check_task(made.info)
        return made

    def in_gang(self, member: GangMember) -> Task:
        """Return the task as a member of a gang; `Gang.members` does so for all.

        Raises:
            InvalidRequest: if the task cannot be in a gang.
        """
        made = Task.__new__(Task)
        made.secrets, made.part = self.secrets, self.part
        made.info = replace(self.info, gang=member)
        check_task(made.info)
        return made

    @property
    def group_id(self) -> str:
        """Id of its group; empty if it is in none."""
        return self.info.group_id

    @property
    def gang_id(self) -> str:
        """Id of its gang; empty if it is in none."""
        return self.info.gang_id

    @property
    def needs(self) -> frozenset[str]:
        """Features that its agent must have, as in `Offer.isolation` and `enforces`."""
        return frozenset(feature_names(self.info.needs()))

    def __repr__(self) -> str:
        return f"Task(task_id={self.task_id!r}, resources={self.resources!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Task):
            return False
        mine = (self.info, self.secrets, self.part)
        return mine == (other.info, other.secrets, other.part)

    def __hash__(self) -> int:
        return hash(self.task_id)


@lru_cache(maxsize=1024)
def _warn_of_plain(variable: str) -> None:
    """Warn once of a variable that seems to hold a secret."""
    advice = "masters and agents store it in plain text; give it by --secret, or by secrets="
    log_event(logging.WARNING, "plain_secret", variable=variable, advice=advice)


def _completion_ms(seconds: float | None) -> int:
    if seconds is None:
        return 0
    milliseconds = to_milliseconds("the time to complete", seconds)
    if not milliseconds:
        raise InvalidRequest("the time to complete must be more than 0")
    return milliseconds


def _output_bound(size: int | str, files: int) -> OutputBound:
    given = parse_output_size(size) if isinstance(size, str) else size
    if not given and not files:
        return NO_OUTPUT_BOUND
    if given < 0 or files < 0:
        raise InvalidRequest("the size and the number of output files cannot be negative")
    return OutputBound(given, files)

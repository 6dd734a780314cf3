"""A job, which is a command, the number of its tasks and the resources of each, and its secrets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from croupier.apps.job_file.gang_spec import GangSpec
from croupier.model.errors import InvalidRequest
from croupier.model.gang import MAX_GANG_TASKS
from croupier.model.ids import check_role
from croupier.model.resources import NOTHING, Resources
from croupier.model.scalar import MILLI, check_unit, check_units, parse_scalar
from croupier.model.secrets import MAX_SECRET_BYTES, NO_SECRETS, SecretValues
from croupier.sdk import DeviceRequest, Task

MAX_COUNT: Final = 100_000
MAX_NAME: Final = 80
# Characters of a task id that come from the job's name.
MAX_STEM: Final = 20
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True)
class Job:
    """`count` equal tasks.

    Attributes:
        gang: as which they start together, if they do.
        words: program and arguments; with `is_shell`, a shell line once joined by spaces.
        unit: the resources of one task.
        secrets: variables that are kept secret.
        is_insecure: whether secrets may be sent unencrypted to another machine.
        options: further arguments of each `Task`.
    """

    words: tuple[str, ...]
    unit: Resources
    is_shell: bool = False
    count: int = 1
    gang: GangSpec | None = None
    role: str = "*"
    name: str = ""
    secrets: SecretValues = NO_SECRETS
    is_insecure: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.words:
            raise InvalidRequest("no command is given (example: croupier run -- echo hello)")
        if not 1 <= self.count <= MAX_COUNT:
            raise InvalidRequest(f"--count must be between 1 and {MAX_COUNT}")
        if self.is_gang and self.count > MAX_GANG_TASKS:
            raise InvalidRequest(f"--nodes must be between 1 and {MAX_GANG_TASKS}")
        check_role(self.role)
        check_units(self.options.get("limits", ""))
        self.tasks([f"check-{rank}" for rank in range(self.count if self.is_gang else 1)])

    @property
    def is_gang(self) -> bool:
        """Whether the tasks start together."""
        return self.gang is not None

    @property
    def title(self) -> str:
        """The job's name; the beginning of its command if it has none."""
        return self.name or " ".join(self.words)[:MAX_NAME]

    def stem(self, framework_id: str) -> str:
        """Return the beginning of its task ids, such as `sleep-3f9a`.

        It is the job's name or program, and digits that differ between frameworks.
        """
        program = (self.words[0].split() or [""])[0] if self.is_shell else self.words[0]
        title = self.name or program.rstrip("/").rpartition("/")[2]
        plain = _NOT_PLAIN.sub("-", title)[:MAX_STEM].strip("-.") or "run"
        return f"{plain}-{hashlib.sha256(framework_id.encode()).hexdigest()[:4]}"

    def tasks(self, task_ids: Sequence[str]) -> list[Task]:
        """Return tasks with these ids: all of a gang, or any others."""
        if self.gang is None:
            return [self.task(task_id) for task_id in task_ids]
        return self.gang.tasks(lambda rank, more: self.task(task_ids[rank], more))

    def task(self, task_id: str, more: Resources = NOTHING) -> Task:
        """Return one of the tasks, with `more` resources than the others.

        Raises InvalidRequest if the task is malformed.
        """
        return Task(
            () if self.is_shell else self.words,
            shell=" ".join(self.words) if self.is_shell else "",
            resources=self.unit + more,
            task_id=task_id,
            name=self.title,
            secrets=self.secrets.reveal(),
            **self.options,
        )


def parse_environment(pairs: Iterable[str]) -> dict[str, str]:
    """Read `NAME=VALUE`, the last of each name; raises InvalidRequest if one is malformed."""
    environment: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidRequest(f"--env {pair!r} is not NAME=VALUE")
        environment[name] = value
    return environment


def make_unit(cpus: str, mem: str, disk: str, gpus: str) -> Resources:
    """Parse the resources of one task; raises InvalidRequest if one is malformed, or all are 0."""
    amounts = {"cpus": cpus, "mem": mem, "disk": disk, "gpus": gpus}
    unit = Resources({n: parse_scalar(n, check_unit(n, text)) for n, text in amounts.items()})
    if not unit:
        raise InvalidRequest("a task needs resources: give it --cpus or --mem")
    return unit


def device_options(unit: Resources, gpu_type: str, gpu_group: str) -> dict[str, DeviceRequest]:
    """Return the request of certain GPUs, or of a part of one, as an argument of `Task`."""
    if not (gpu_type or gpu_group or unit["gpus"] % MILLI):
        return {}
    return {"devices": DeviceRequest("gpus", gpu_type, gpu_group)}


def read_secrets(flags: Iterable[str], environment: Mapping[str, str]) -> SecretValues:
    """Read `NAME=@FILE`, `NAME` and `NAME=VALUE`. The last value of a name counts.

    Errors quote no values. Raises InvalidRequest if a flag is malformed, or a value cannot be read.
    """
    values: dict[str, str] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals and name not in environment:
            raise InvalidRequest(
                "--secret NAME takes the value of a variable, but there is none of that name; give"
                " --secret NAME=@FILE to read a file"
            )
        if not equals:
            value = environment[name]
        elif value.startswith("@"):
            value = _content(Path(value[1:]))
        values[name] = value
    secrets = SecretValues(values)
    secrets.check()
    return secrets


def _content(path: Path) -> str:
    """Return the text of a file without one line end."""
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 2)
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidRequest(f"--secret: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"--secret: {path} is not text in UTF-8") from None

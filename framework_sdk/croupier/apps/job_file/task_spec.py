"""What a task runs, needs and may do, as job files describe it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from croupier.apps.job_file.section import Section
from croupier.model.attributes import parse_constraint
from croupier.model.isolation import parse_limits
from croupier.model.preemption import MAX_MIN_RUN_MS
from croupier.model.scalar import check_units, parse_pairs
from croupier.model.task_checks import MAX_GRACE_MS
from croupier.sdk import Constraint, DeviceRequest, Limits, Resources, Task, enforces

MAX_RETRIES: Final = 1_000
_BESIDE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}\Z", re.ASCII)
DEFAULT_RESOURCES: Final = Resources.parse("cpus:1;mem:128MB")
# The keys of a task; `read_task` reads them all.
TASK_KEYS: Final = (
    *("command", "shell", "resources", "limits", "env", "user", "image"),
    *("namespaces", "network", "timeout", "grace", "constraints", "retries", "backoff", "beside"),
    *("min_run", "requeue", "checkpoint_signal", "devices"),
)
# Those of a task that runs beside another one, whose agent, time and retries count.
_BESIDE_KEYS: Final = (
    *("command", "shell", "resources", "limits", "env", "user", "image", "namespaces"),
    *("grace", "part", "devices"),
)
_PARTS: Final = ("sidecar", "member")
# Between the id of a task and the name of one beside it.
BESIDE: Final = "+"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause before each retry: it grows by `factor`, up to `most_s`.

    Attributes:
        initial_s: before the first retry, in seconds.
        jitter: the part of the pause that is random; 0.2 gives 80 to 120 % of it.
    """

    initial_s: float = 1.0
    factor: float = 2.0
    most_s: float = 300.0
    jitter: float = 0.2

    def pause_s(self, retry: int, chance: float = 0.5) -> float:
        """Return the pause before the retry of this number, from 1, in seconds.

        `chance`, from 0 to 1, picks the pause within the jitter.
        """
        # The exponent is bounded, as a float's range is.
        pause = min(self.most_s, self.initial_s * self.factor ** min(retry - 1, 64))
        return pause * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task of a job file, before it has an id.

    Attributes:
        command: program and arguments; empty if there is a `shell` line.
        limits: hard limits, as text.
        timeout_s: seconds after which a task that still runs is ended; None: never.
        grace_s: seconds between SIGTERM and SIGKILL.
        retries: how many more times a failed task is run.
        min_run_s: seconds for which it runs before it may be preempted.
        requeue: whether a preempted task is queued again, which costs no retry.
        checkpoint_signal: the signal with which preemption begins; empty: none.
        devices: what it asks of its named devices.
        part: of a task beside another one.
        beside: the tasks that run beside this one as its group, by name.
    """

    command: tuple[str, ...] = ()
    shell: str = ""
    resources: Resources = DEFAULT_RESOURCES
    limits: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    image: str = ""
    namespaces: bool = False
    network: bool = True
    timeout_s: float | None = None
    grace_s: float = 3.0
    constraints: tuple[Constraint, ...] = ()
    retries: int = 0
    backoff: Backoff = Backoff()
    devices: DeviceRequest | None = None
    part: str = "member"
    beside: Mapping[str, TaskSpec] = field(default_factory=dict)
    min_run_s: float = 0.0
    requeue: bool = False
    checkpoint_signal: str = ""

    @property
    def total(self) -> Resources:
        """The resources of the task with all that run beside it."""
        return sum((each.resources for each in self.beside.values()), self.resources)

    def task(
        self,
        task_id: str,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Task:
        """Return the task alone, with `env` added.

        Raises InvalidRequest if no agent can ever run it.
        """
        return Task(
            self.command,
            shell=self.shell,
            resources=self.resources,
            task_id=task_id,
            name=name,
            env={**self.env, **(env or {})},
            user=self.user,
            grace_s=self.grace_s,
            labels=labels,
            limits=self.limits,
            max_completion_s=self.timeout_s,
            image=self.image,
            namespaces=self.namespaces,
            network=self.network,
            min_run_s=self.min_run_s,
            requeue=self.requeue,
            checkpoint_signal=self.checkpoint_signal,
            devices=self.devices,
            part="leader" if self.beside else self.part,
        )

    def tasks(
        self,
        task_id: str,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Task]:
        """Return the task, and those beside it as its group; arguments and errors as of `task`."""
        main = self.task(task_id, name, labels, env)
        if not self.beside:
            return [main]
        others = (
            spec.task(f"{task_id}{BESIDE}{beside}", f"{name} {beside}".strip(), labels, env)
            for beside, spec in self.beside.items()
        )
        return [task.in_group(task_id) for task in (main, *others)]

    def conditions(self) -> tuple[Constraint, ...]:
        """Return all conditions on agents: the constraints, and what the tasks need enforced."""
        needs = self.needs
        return (*self.constraints, *((enforces(*needs),) if needs else ()))

    @property
    def needs(self) -> frozenset[str]:
        """What an agent must be able to enforce for the task and all that run beside it."""
        return frozenset[str]().union(*(task.needs for task in self.tasks("check")))

    def with_text(self, change: Callable[[str], str]) -> TaskSpec:
        """Return the task with `change` applied to its command and environment."""
        return replace(
            self,
            command=tuple(map(change, self.command)),
            shell=change(self.shell),
            env={name: change(value) for name, value in self.env.items()},
            beside={name: spec.with_text(change) for name, spec in self.beside.items()},
        )


DEFAULT_TASK: Final = TaskSpec()


def read_task(
    section: Section,
    defaults: TaskSpec = DEFAULT_TASK,
    *,
    keys_checked: bool = False,
    needs_command: bool = True,
) -> TaskSpec:
    """Read a task; `defaults` has what the section does not name.

    `env` and `resources` are merged with the defaults by name; the rest replaces them.

    Args:
        section: the task's table.
        defaults: such as the `defaults` table of the file.
        keys_checked: the section may have more keys than TASK_KEYS.
        needs_command: False for a table of defaults.

    Raises:
        InvalidRequest: if a value is invalid, or no agent can ever run such a task.
    """
    if not keys_checked:
        section.check_keys(TASK_KEYS)
    command, shell = _command(section, defaults)
    spec = TaskSpec(
        command=command,
        shell=shell,
        resources=_resources(section, defaults.resources),
        limits=_limits(section, defaults.limits),
        env={**defaults.env, **(section.pairs("env") or {})},
        user=section.text("user", defaults.user),
        image=section.text("image", defaults.image),
        namespaces=section.flag("namespaces", defaults.namespaces),
        network=section.flag("network", defaults.network),
        timeout_s=section.duration("timeout", defaults.timeout_s, least=0.001),
        grace_s=section.duration("grace", defaults.grace_s, most=MAX_GRACE_MS / 1000),
        constraints=_constraints(section, defaults.constraints),
        retries=section.whole("retries", defaults.retries, most=MAX_RETRIES),
        backoff=_backoff(section, defaults.backoff),
        devices=_devices(section, defaults.devices),
        beside=defaults.beside,
        min_run_s=section.duration("min_run", defaults.min_run_s, most=MAX_MIN_RUN_MS / 1000),
        requeue=section.flag("requeue", defaults.requeue),
        checkpoint_signal=section.text("checkpoint_signal", defaults.checkpoint_signal),
    )
    if "beside" in section:
        others = _beside(section.required("beside"), spec, defaults if needs_command else spec)
        spec = replace(spec, beside=others)
    if not (spec.command or spec.shell):
        if needs_command:
            raise section.error("a task needs a `command` list or a `shell` line")
        section.checked(lambda: replace(spec, command=("check",)).tasks("check"))
    else:
        section.checked(lambda: spec.tasks("check"))
    return spec


def _beside(section: Section, main: TaskSpec, defaults: TaskSpec) -> dict[str, TaskSpec]:
    """Read the tasks beside another one, whose environment and user they have too."""
    shared = replace(defaults, env=main.env, user=main.user)
    alone, found = replace(shared, timeout_s=None, network=True, beside={}), {}
    for each in section.sections():
        if not _BESIDE_NAME.match(each.name):
            raise each.error("a task beside another one has 1 to 32 letters, digits, '-' or '_'")
        each.check_keys(_BESIDE_KEYS)
        part = each.text("part", _PARTS[0], choices=_PARTS)
        found[each.name] = replace(read_task(each, alone, keys_checked=True), part=part)
    if not found:
        raise section.error("names no task")
    return found


def _command(section: Section, defaults: TaskSpec) -> tuple[tuple[str, ...], str]:
    if "command" in section and "shell" in section:
        raise section.error("give a `command` list or a `shell` line, not both")
    if "command" in section:
        if isinstance(section.raw("command"), str):
            raise section.error("a list of words is expected; a text goes to `shell`", "command")
        return section.words("command"), ""
    if "shell" in section:
        return (), section.text("shell", "")
    return defaults.command, defaults.shell


def _resources(section: Section, default: Resources) -> Resources:
    text = _amounts(section, "resources", "")
    if not text:
        return default

    def merged() -> Resources:
        named = parse_pairs(text, "NAME:AMOUNT (example: cpus:4;mem:8GB)")
        check_units(text)
        kept = parse_pairs(str(default), "NAME:AMOUNT")
        return Resources.parse(";".join(f"{n}:{v}" for n, v in {**kept, **named}.items()))

    return section.checked(merged, "resources")


def _limits(section: Section, default: str) -> str:
    if isinstance(section.raw("limits"), Mapping):
        section.required("limits").check_keys(Limits.__slots__)
    text = _amounts(section, "limits", default)
    section.checked(lambda: check_units(text), "limits")
    section.checked(lambda: parse_limits(text), "limits")
    return text


def _amounts(section: Section, key: str, default: str) -> str:
    """Return `NAME:AMOUNT;...` from such a text, or from a table."""
    value = section.raw(key)
    if value is None or isinstance(value, str):
        return section.text(key, default)
    if not isinstance(value, Mapping):
        raise section.unexpected(key, "a table, or a text such as 'cpus:1;mem:512MB',")
    amounts = section.pairs(key) or {}
    return ";".join(f"{name}:{amount}" for name, amount in amounts.items())


def _constraints(section: Section, default: Iterable[Constraint]) -> tuple[Constraint, ...]:
    if "constraints" not in section:
        return tuple(default)
    texts = section.words("constraints")
    return tuple(
        section.checked(lambda text=text: parse_constraint(text), f"constraints[{index}]")  # type: ignore[misc]
        for index, text in enumerate(texts)
    )


def _devices(section: Section, default: DeviceRequest | None) -> DeviceRequest | None:
    if "devices" not in section:
        return default
    inner = section.required("devices")
    inner.check_keys(("kind", "type", "same"))
    kind, what = inner.text("kind", "gpus"), inner.text("type", "")
    return DeviceRequest(kind, what, inner.text("same", ""))


def _backoff(section: Section, default: Backoff) -> Backoff:
    if not isinstance(section.raw("backoff"), Mapping):
        initial = section.duration("backoff", default.initial_s)
        return replace(default, initial_s=initial, most_s=max(initial, default.most_s))
    inner = section.required("backoff")
    inner.check_keys(("initial", "factor", "max", "jitter"))
    backoff = Backoff(
        inner.duration("initial", default.initial_s),
        inner.number("factor", default.factor, least=1, most=100),
        inner.duration("max", default.most_s),
        inner.number("jitter", default.jitter, most=1),
    )
    if backoff.most_s < backoff.initial_s:
        raise inner.error("is below `initial`", "max")
    return backoff

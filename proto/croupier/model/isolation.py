"""Isolation of tasks: what a task asks for, what an agent can enforce, and what a task has used.

Rule: a task is launched only on an agent that can enforce all that the task asks for. What was
accounted for it, such as its memory, is enforced wherever the agent can, without being asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar, parse_pairs

MAX_IMAGE = 1024
_IMAGE: Final = re.compile(r"docker://[^/].*|oci:/.*[^:]|dir:/.*")
# Bounds of what a task may ask for.
MAX_AMOUNT: Final = 2**53
MAX_PIDS: Final = 4_194_304
MAX_FILES: Final = 1_048_576
_MOST: Final = {"pids": MAX_PIDS, "files": MAX_FILES}
MAX_COMPLETION_MS: Final = 366 * 24 * 3600 * 1000


class Feature(Enum):
    """Something that an agent can enforce or measure; the values are those of the wire.

    Attributes:
        USERS: run a task as another user than the agent's.
        CPU_WEIGHT: share the cpus among tasks by their `cpus`.
        CPU_QUOTA: hold a task to a number of cpus even if others are idle.
        MEMORY: end a task that takes more memory than its limit.
        PIDS: bound the processes and threads of a task.
        FILES: bound the open files of each process.
        DISK: end a task that takes more disk than its limit.
        DISK_QUOTA: refuse what a task writes to its sandbox beyond its limit of disk.
        PORTS: refuse to listen on TCP ports that were not dealt to the task.
        NAMESPACES: a view of the machine of its own: processes, /tmp, a read-only system.
        NO_NETWORK: a task without network.
        IMAGES: run a task in a container image or root directory.
        USAGE: measure all processes of a task, not only those that it waited for.
        GROUPS: start and end the tasks of a group together.
        VOLUMES: keep directories for tasks that come later.
        EXECUTORS: run executors, and tasks in them.
        MESOS_EXECUTORS: run executors of Mesos.
        GANGS: tell the tasks of a gang of each other.
        REQUEUE: run a task again that went back to its queue; tell it to save its state before.
        DEVICES: give a task certain named devices, by variables.
    """

    USERS = "users"
    CPU_WEIGHT = "cpu-weight"
    CPU_QUOTA = "cpu-quota"
    MEMORY = "memory"
    PIDS = "pids"
    FILES = "files"
    DISK = "disk"
    PORTS = "ports"
    NAMESPACES = "namespaces"
    NO_NETWORK = "no-network"
    IMAGES = "images"
    USAGE = "usage"
    DISK_QUOTA = "disk-quota"
    GROUPS = "groups"
    VOLUMES = "volumes"
    EXECUTORS = "executors"
    MESOS_EXECUTORS = "mesos-executors"
    GANGS = "gangs"
    REQUEUE = "requeue"
    DEVICES = "devices"


Features = frozenset[Feature]
NO_FEATURES: Final[Features] = frozenset()
OF_EVERY_AGENT: Final[Features] = frozenset(
    {Feature.GROUPS, Feature.EXECUTORS, Feature.VOLUMES, Feature.GANGS, Feature.REQUEUE}
)
# No isolator is needed for these.
WITHOUT_ISOLATOR: Final = OF_EVERY_AGENT | {Feature.MESOS_EXECUTORS, Feature.DEVICES}
_BY_NAME: Final = {feature.value: feature for feature in Feature}


def known_features(names: Iterable[str]) -> Features:
    """Return the features of these names; those of newer releases are left out."""
    return frozenset(_BY_NAME[name] for name in names if name in _BY_NAME)


def feature_names(features: Iterable[Feature]) -> list[str]:
    """Return the names of features, sorted."""
    return sorted(feature.value for feature in features)


def cannot_enforce(lacks: Features) -> str:
    """Return the message on an agent that lacks these features, for people."""
    return f"the agent cannot enforce what it asks for: {', '.join(feature_names(lacks))}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of a task; 0 leaves the default.

    The task's resources are what it is charged for and what it gets under contention. A limit
    above them lets it use what is idle.

    Attributes:
        cpus: thousandths of a cpu. Default: no limit, unless the agent sets quotas.
        mem: thousandths of a MiB. Default: `mem` of the task's resources.
        disk: of the sandbox, thousandths of a MiB. Default: `disk` of the task's resources.
        pids: processes and threads. Default: set by the agent.
        files: open files of each process. Default: set by the agent.
    """

    cpus: int = 0
    mem: int = 0
    disk: int = 0
    pids: int = 0
    files: int = 0

    def check(self) -> None:
        """Raise InvalidRequest if a limit is out of range."""
        for name in Limits.__slots__:
            if not 0 <= getattr(self, name) <= _MOST.get(name, MAX_AMOUNT):
                raise InvalidRequest(f"the limit of {name} is out of range")

    def needs(self) -> Features:
        """Return what an agent must be able to enforce for these limits."""
        wanted = {
            Feature.CPU_QUOTA: self.cpus,
            Feature.MEMORY: self.mem,
            Feature.DISK: self.disk,
            Feature.PIDS: self.pids,
            Feature.FILES: self.files,
        }
        return frozenset(feature for feature, value in wanted.items() if value)


NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation that a task asks for, beyond what its agent gives to all tasks.

    Attributes:
        namespaces: a view of the machine of its own.
        no_network: no network but a loopback interface of its own.
        image: the root file system: `docker://NAME`, `oci:PATH:TAG` or `dir:PATH` on the agent;
            empty: the agent's.
    """

    namespaces: bool = False
    no_network: bool = False
    image: str = ""

    def check(self) -> None:
        """Raise InvalidRequest if the image's name is too long or of an unknown kind."""
        if not self.image:
            return
        if len(self.image) > MAX_IMAGE or not self.image.isprintable() or " " in self.image:
            raise InvalidRequest(f"an image is named by at most {MAX_IMAGE} printable characters")
        if not _IMAGE.fullmatch(self.image):
            raise InvalidRequest(
                f"image {self.image[:80]!r}: give docker://NAME, oci:PATH:TAG or dir:PATH, where"
                " PATH begins with /"
            )

    def needs(self) -> Features:
        """Return what an agent must be able to enforce for this isolation."""
        wanted = {
            Feature.NAMESPACES: self.namespaces,
            Feature.NO_NETWORK: self.no_network,
            Feature.IMAGES: bool(self.image),
        }
        return frozenset(feature for feature, value in wanted.items() if value)


NO_ISOLATION: Final = Isolation()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a task has used, since its start.

    Attributes:
        cpu_ms: time of all cpus together, in milliseconds.
        memory_peak: bytes. Without a control group: of its largest process.
        pids_peak: most processes and threads at once; 0 if unknown.
        read_bytes: read from disks; 0 if unknown.
        written_bytes: written to disks; 0 if unknown.
        disk_bytes: size of the sandbox; 0 if unknown.
        run_ms: how long it has run, with its end; 0 if unknown.
    """

    cpu_ms: int = 0
    memory_peak: int = 0
    pids_peak: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    disk_bytes: int = 0
    run_ms: int = 0


_COUNTED: Final = ("pids", "files")


def parse_limits(text: str) -> Limits:
    """Read limits such as `pids:4096;mem:1GB`; an empty text sets none.

    Raises InvalidRequest if a name is unknown, or an amount is not a number in its range.
    """
    given = Resources.parse(text)
    for name, amount in parse_pairs(text, "NAME:AMOUNT").items() if text else ():
        if name not in given.scalars and name in Limits.__slots__:
            raise InvalidRequest(f"the limit of {name} must be above 0, not {amount}")
    names = Limits.__slots__
    unknown = [*given.ranges, *given.sets, *(name for name in given.scalars if name not in names)]
    if unknown:
        raise InvalidRequest(f"there is no limit of {unknown[0]}; give some of {', '.join(names)}")
    parts = [name for name in _COUNTED if given[name] % 1000]
    if parts:
        raise InvalidRequest(f"the limit of {parts[0]} is a whole number")
    counted = {name: given[name] // 1000 for name in _COUNTED}
    limits = Limits(**{name: given[name] for name in given.scalars} | counted)
    limits.check()
    return limits


def format_limits(limits: Limits) -> str:
    """Return the text that `parse_limits` reads."""
    scale = dict.fromkeys(_COUNTED, 1000)
    amounts = {name: getattr(limits, name) for name in Limits.__slots__}
    return ";".join(
        f"{name}:{format_scalar(name, amount * scale.get(name, 1))}"
        for name, amount in amounts.items()
        if amount
    )

"""The workload's tasks, whose ends are known before they start. Pure.

Rule: a task follows from its id and the seed alone, so a later check knows how it must have ended.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

# The task appends a line to the ledger when it starts and before it ends.
SCRIPT = 'echo "start $1 $$" >>"$2"; sleep "$3"; echo "end $1" >>"$2"; exit "$4"'

# Appends its id to a file of its volume, and copies the ids in it to the ledger.
USES = (
    'echo "start $1 $$" >>"$2"; echo "$1" >>data/users;'
    ' echo "saw $1 $(tr "\\n" , <data/users)" >>"$2";'
    ' sleep "$3"; echo "end $1" >>"$2"; exit "$4"'
)

# Takes three times its disk limit in files that it has removed; each file has the limit of all.
EVADES = (
    'echo "start $1 $$" >>"$2"; trap "" XFSZ; exec 3>a 4>b 5>c; rm a b c;'
    " while :; do for n in 3 4 5; do head -c 1m /dev/zero >&$n; done; sleep 0.2; done 2>/dev/null"
)
LIMIT = "disk:1MB"

# Notes the times of its run, and what its agent tells it of its gang and of its devices. Two runs
# of it at one time would have one lock; of gangs, two on one agent, since a gang starts again while
# an agent is unreachable. The children of a run may have the lock for a moment after its end.
# SIGUSR1 asks it to save its state.
MINUTES = (
    # A signal to all of its processes ends `date`, too.
    'I="$1" L="$2"; note() { T=; until [ "$T" ]; do T="$(date +%s.%N)"; done;'
    ' echo "$1 $I $T" >>"$L"; };'
    ' trap "note saved" USR1; trap "note stopped; kill -9 \\$!; exit 75" TERM;'
    ' exec 9>>"$L.$I${CROUPIER_RANK:+.$CROUPIER_AGENT_ID}"; flock -w 0.3 9 || note twice;'
    ' echo "start $I $$" >>"$L";'
    ' echo "told $I ${CROUPIER_RANK:--} ${CROUPIER_SIZE:--} ${CROUPIER_GANG_HOSTS:--}'
    ' ${CROUPIER_DEVICES:--} ${CROUPIER_DEVICE_PARTS:--}" >>"$L"; note began;'
    ' (trap "" TERM USR1; exec sleep "$3" 9>&-) &'
    ' while kill -0 $! 2>/dev/null; do wait $!; done; note done; echo "end $I" >>"$L"; exit "$4"'
)

# For tasks that will be killed: longer than any round.
ENDLESS_S = 86_400.0

# Ends the stem of the ids of brief tasks. They are alike and submitted, so they get lined up.
BRIEF = "-brief"
# End the stems of the ids of the two tasks of a group, whose numbers follow each other. The first
# one ends by itself; the rest is a sidecar, which runs until its group has ended.
FIRST, REST = "-first", "-rest"
# Ends the stem of the ids of executors; begins the end of that of the tasks in one, before its
# number. Such a task is a call: `w1-call7-9` runs in `w1-executor-7`.
EXECUTOR, CALL = "-executor", "-call"
# End the stems of the ids of holds and volumes. USE begins the end of that of the tasks that use a
# volume, before its number: `w1-use3-9` uses `w1-volume-3`, or tries to use `w2-volume-3`.
HOLD, VOLUME, USE = "-hold", "-volume", "-use"
# Begins the end of the stem of the ids of a gang's members, before their number and the number of
# the first one: `w1-gang3x7-9` has rank 2 of 3.
GANG = "-gang"
# End the stems of the ids of tasks that run again when they are preempted, and of those that have
# devices.
AGAIN, DEVICE = "-again", "-device"
# The framework whose volumes another one tries to use.
OTHERS = {"w1": "w2"}
# The resources of a usual task, of brief ones, of which four fill an agent, of calls, of which four
# take as much as another task, and of members of gangs and those that run again.
UNIT = "cpus:1;mem:64MB;disk:1MB"
BRIEF_UNIT = "cpus:1;mem:500MB"
SMALL_UNIT = "cpus:0.25;mem:16MB"
# The code of a program that ends itself by SIGKILL.
KILLS_ITSELF = -9


@dataclass(frozen=True, slots=True)
class Work:
    """One task of the workload.

    Attributes:
        seconds: how long it sleeps.
        code: its exit code; of a call, what it says in its last update.
        kill_after_s: when its framework kills it, counted from RUNNING, or from the answer if it
            is brief; None for never.
        evades: whether it takes more disk than it may, and is ended for that.
        is_withdrawn: whether it is withdrawn instead of killed.
        group: the id of its group; empty if it is in none.
        executor: the id of the executor that it runs in; empty if it is no call.
        volume: the id of the volume that it uses, or tries to use; empty for none.
        gang: the id of its gang; empty if it is in none.
        rank, size: its place in its gang, and the number of members.
        leads: whether its end ends the others of its gang, whatever its code.
        restarts: how often its gang starts again after it has failed.
        gpus: the part of a device, or the number of devices, that it has.
    """

    task_id: str
    seconds: float
    code: int
    kill_after_s: float | None = None
    evades: bool = False
    is_withdrawn: bool = False
    group: str = ""
    executor: str = ""
    volume: str = ""
    gang: str = ""
    rank: int = 0
    size: int = 0
    leads: bool = False
    restarts: int = 0
    gpus: float = 0.0

    @property
    def resources(self) -> str:
        """Return its resources."""
        if self.is_brief:
            return BRIEF_UNIT
        if self.gpus:
            return f"{SMALL_UNIT};gpus:{self.gpus}"
        return SMALL_UNIT if self.executor or self.gang or self.is_requeued else UNIT

    @property
    def is_requeued(self) -> bool:
        """Return whether it runs again when it is preempted."""
        return AGAIN in self.task_id

    @property
    def may_run_again(self) -> bool:
        """Return whether it may have further runs."""
        return self.is_requeued or self.restarts > 0

    @property
    def ends_gang(self) -> bool:
        """Return whether its end ends the others of its gang."""
        return self.leads or self.code != 0

    @property
    def is_executor(self) -> bool:
        """Return whether it runs calls."""
        return EXECUTOR in self.task_id

    @property
    def is_brief(self) -> bool:
        """Return whether it is one of many brief tasks, which end by themselves."""
        return BRIEF in self.task_id

    @property
    def is_rest(self) -> bool:
        """Return whether it ends with the first task of its group."""
        return bool(self.group) and self.group != self.task_id

    @property
    def part(self) -> str:
        """Return its part in its group; the first one is a member or the leader."""
        if self.is_rest:
            return "sidecar"
        if not self.group:
            return "leader" if self.leads else "member"
        return "leader" if self.code % 2 else "member"

    def command(self, ledger: str) -> list[str]:
        """Return the command."""
        if self.is_executor:
            # Tasks do not have the path of the tests.
            program = str(Path(__file__).with_name("executor.py"))
            return [
                sys.executable,
                "-P",
                program,
                self.task_id,
                ledger,
                f"{self.seconds:g}",
                str(self.code),
            ]
        script = EVADES if self.evades else USES if self.volume else SCRIPT
        if self.gang or self.is_requeued or self.gpus:
            script = MINUTES
        return ["sh", "-c", script, "task", self.task_id, ledger, f"{self.seconds:g}",
                str(self.code)]  # fmt: skip

    @property
    def data(self) -> bytes:
        """Return what a call tells its executor."""
        return f"{self.seconds:g} {self.code}".encode()


@dataclass(frozen=True, slots=True)
class HoldWork:
    """A hold of the workload.

    Attributes:
        units: how many tasks have room in it; none in a volume.
        ttl_s: its time to live; None if it has no end.
        kept_s: when its framework releases it; None: when it is told to.
    """

    hold_id: str
    units: int
    ttl_s: float | None
    kept_s: float | None

    @property
    def is_volume(self) -> bool:
        """Return whether it is a volume."""
        return VOLUME in self.hold_id


def hold_named(seed: int, hold_id: str) -> HoldWork:
    """Return the hold of that id."""
    rng = random.Random(f"{seed}/{hold_id}")
    if VOLUME in hold_id:
        kept_s = round(rng.uniform(0.5, 4.0), 3) if rng.random() < 0.4 else None
        return HoldWork(hold_id, 0, None, kept_s)
    ttl_s = round(rng.uniform(0.3, 3.0), 3) if rng.random() < 0.5 else None
    kept_s = round(rng.uniform(0.0, 3.0), 3) if rng.random() < 0.5 else None
    return HoldWork(hold_id, rng.randint(1, 2), ttl_s, kept_s)


def work_of(seed: int, framework: str, number: int) -> Work:
    """Return the task of that number."""
    rng = random.Random(f"{seed}/{framework}/{number}")
    task_id = f"{framework}-{number}"
    if framework.endswith(BRIEF):
        kill_after_s = round(rng.uniform(0.0, 0.5), 3) if rng.random() < 0.2 else None
        seconds, code = round(rng.uniform(0.01, 0.06), 3), rng.choice((0, 0, 0, 3))
        return Work(task_id, seconds, code, kill_after_s, is_withdrawn=rng.random() < 0.5)
    if framework.endswith(EXECUTOR):
        return _executor(rng, task_id)
    if CALL in framework:
        return _call(rng, task_id)
    if USE in framework:
        return _use(rng, task_id)
    if GANG in framework:
        return _member(seed, framework, number)
    if framework.endswith(AGAIN):
        return Work(task_id, round(rng.uniform(0.5, 4.0), 3), rng.choice((0, 0, 5)))
    if framework.endswith(DEVICE):
        gpus = rng.choice((0.25, 0.25, 0.5, 0.75, 1, 2))
        return Work(task_id, round(rng.uniform(0.1, 1.5), 3), rng.choice((0, 0, 5)), gpus=gpus)
    if framework.endswith(REST):
        first = f"{framework.removesuffix(REST)}{FIRST}-{number - 1}"
        return Work(task_id, ENDLESS_S, 0, group=first)
    if framework.endswith(FIRST):
        seconds, code = (
            round(rng.choice((0.0, 0.5, 2.0)) * rng.random(), 3),
            rng.choice((0, 0, 3, 4)),
        )
        return Work(task_id, seconds, code, group=task_id)
    if rng.random() < 0.1:
        if rng.random() < 0.3:
            return Work(task_id, ENDLESS_S, 0, evades=True)
        return Work(task_id, ENDLESS_S, 0, round(rng.uniform(0.1, 3.0), 3))
    code = 0 if rng.random() < 0.6 else rng.randint(1, 120)
    return Work(task_id, round(rng.choice((0.0, 0.3, 1.0, 3.0)) * rng.random(), 3), code)


def _executor(rng: random.Random, task_id: str) -> Work:
    """Return an executor: it is killed, exits by itself or kills itself."""
    seconds = round(rng.uniform(0.5, 4.0), 3)
    match rng.randrange(4):
        case 0:
            return Work(task_id, seconds, rng.choice((0, 7)))
        case 1:
            return Work(task_id, seconds, KILLS_ITSELF)
        case _:
            return Work(task_id, ENDLESS_S, 0, seconds)


def _call(rng: random.Random, task_id: str) -> Work:
    framework, _, numbers = task_id.rpartition(CALL)
    executor = f"{framework}{EXECUTOR}-{numbers.partition('-')[0]}"
    if rng.random() < 0.2:
        return Work(task_id, ENDLESS_S, 0, round(rng.uniform(0.0, 2.0), 3), executor=executor)
    seconds = round(rng.choice((0.0, 0.1, 1.0)) * rng.random(), 3)
    return Work(task_id, seconds, rng.choice((0, 0, 5)), executor=executor)


def _use(rng: random.Random, task_id: str) -> Work:
    framework, _, numbers = task_id.rpartition(USE)
    owner = OTHERS.get(framework, "w1") if rng.random() < 0.1 else framework
    volume = f"{owner}{VOLUME}-{numbers.partition('-')[0]}"
    if rng.random() < 0.2:
        return Work(task_id, ENDLESS_S, 0, round(rng.uniform(0.0, 2.0), 3), volume=volume)
    return Work(task_id, round(rng.uniform(0.0, 1.0), 3), rng.choice((0, 0, 5)), volume=volume)


def _member(seed: int, stem: str, number: int) -> Work:
    """Return a member of a gang, in which one ends all others, or all end by themselves."""
    size, first = map(int, stem.rpartition(GANG)[2].split("x"))
    rng = random.Random(f"{seed}/{stem}")
    how, ending = rng.choice(("leader", "failure", "kill", "finish")), rng.randrange(size)
    seconds, restarts = round(rng.uniform(0.2, 3.0), 3), rng.choice((0, 0, 1, 2))
    member = Work(
        f"{stem}-{number}", ENDLESS_S, 0, gang=f"{stem}-{first}", rank=number - first, size=size,
        restarts=restarts,
    )  # fmt: skip
    if how == "finish":
        return replace(member, seconds=round(seconds * (member.rank + 1) / size, 3))
    if member.rank != ending:
        return member
    match how:
        case "leader":
            return replace(member, seconds=seconds, leads=True)
        case "failure":
            return replace(member, seconds=seconds, code=6)
        case _:
            return replace(member, kill_after_s=seconds)


def work_named(seed: int, task_id: str) -> Work:
    """Return the task of that id."""
    framework, _, number = task_id.rpartition("-")
    return work_of(seed, framework, int(number))

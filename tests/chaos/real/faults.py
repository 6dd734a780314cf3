"""Faults: each begins, lasts, and is undone.

Rule: a fault names the daemons it touches, and no two faults of a round touch the same daemon.
`end` undoes a fault, however far `begin` came.
"""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.chaos.real.certificates import ClusterCertificates
from tests.chaos.real.checker import Excuse
from tests.chaos.real.cluster import Cluster
from tests.chaos.real.daemon import Daemon
from tests.chaos.real.ledger import read_ledger
from tests.chaos.real.machine_faults import Setting
from tests.chaos.real.work import EXECUTOR
from tests.harness.processes import parent_of
from tests.harness.proxy import Proxy

HOUR_S = 3600
# What a write to stderr does: fail, or hang as that to a full pipe that nothing reads.
BROKEN_LOGS = (errno.ENOSPC, errno.EIO, errno.EPIPE, errno.EAGAIN, -1)
LATE_S = (0.05, 0.2, 0.5)
# Log events of agents, frameworks and masters whose stream or term ended.
LOST = ("master_lost", "master_unreachable", "term_ended", "certificate_not_renewed",
        "etcd_credentials_not_renewed")  # fmt: skip


class Fault:
    """One fault on the daemons it `touches`.

    Attributes:
        excuses: tasks that may end differently because of it.
        full: agents that may have refused launches because of it.
    """

    kind = ""

    def __init__(self, cluster: Cluster, rng: random.Random, touches: Sequence[str]) -> None:
        self.cluster, self.rng, self.touches = cluster, rng, tuple(touches)
        self.excuses: dict[str, Excuse] = {}
        self.full: set[str] = set()

    def __str__(self) -> str:
        return f"{self.kind} {'+'.join(self.touches)}"

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def daemons(self) -> list[Daemon]:
        known = self.cluster.daemons()
        return [known[name] for name in self.touches]


class Kill(Fault):
    """Kill with SIGKILL, and start again."""

    kind = "kill"

    def begin(self) -> None:
        for daemon in self.daemons():
            daemon.kill()

    def end(self) -> None:
        for daemon in self.daemons():
            daemon.start()


class Stop(Fault):
    """Stop with SIGSTOP, and continue."""

    kind = "stop"

    def begin(self) -> None:
        for daemon in self.daemons():
            daemon.stop()

    def end(self) -> None:
        for daemon in self.daemons():
            daemon.resume()


class Network(Fault):
    """A fault of the connections between clients and servers, as (server, client)."""

    def __init__(
        self, cluster: Cluster, rng: random.Random, touches: Sequence[str], kind: str
    ) -> None:
        super().__init__(cluster, rng, touches)
        self.kind = kind

    def begin(self) -> None:
        delay_s = self.rng.choice(LATE_S)
        for proxy, client in self._ways():
            match self.kind:
                case "cut":
                    proxy.cut(client)
                case "black-hole":
                    proxy.swallow(client)
                case "late":
                    proxy.slow_down(client, delay_s)
                case "reset":
                    proxy.reset(client)

    def end(self) -> None:
        for proxy, client in self._ways():
            proxy.heal(client)

    def _ways(self) -> Iterator[tuple[Proxy, str]]:
        """Return the connections from each touched daemon to all its servers."""
        for client in self.touches:
            servers = self.cluster.etcd if client in self.cluster.masters else self.cluster.masters
            for server in servers:
                yield self.cluster.proxies[server], client


class Isolate(Network):
    """Cut a master off from agents and frameworks."""

    def __str__(self) -> str:
        return f"isolate({self.kind}) {'+'.join(self.touches)}"

    def _ways(self) -> Iterator[tuple[Proxy, str]]:
        for server in self.touches:
            for client in (*self.cluster.agents, *self.cluster.frameworks):
                yield self.cluster.proxies[server], client


class LostOrders(Fault):
    """Cut the agents off, then kill the master: it has answered ACCEPTs whose launches reached
    no agent."""

    kind = "lost-orders"

    def begin(self) -> None:
        for agent in self.cluster.agents:
            for master in self.cluster.masters:
                self.cluster.proxies[master].swallow(agent)

    def end(self) -> None:
        masters = [daemon for daemon in self.daemons() if daemon.name in self.cluster.masters]
        for daemon in masters:
            daemon.kill()
        for agent in self.cluster.agents:
            for master in self.cluster.masters:
                self.cluster.proxies[master].heal(agent)
        for daemon in masters:
            daemon.start()


class LostAnswers(Fault):
    """Delay messages between a framework and the masters, then kill one of them: verdicts of
    ACCEPTs in flight are lost."""

    kind = "lost-answers"

    def begin(self) -> None:
        for master in self.cluster.masters:
            self.cluster.proxies[master].slow_down(self.touches[0], max(LATE_S))

    def end(self) -> None:
        victim = self.cluster.daemons()[self.rng.choice(self.touches)]
        victim.kill()
        for master in self.cluster.masters:
            self.cluster.proxies[master].heal(self.touches[0])
        victim.start()


class FullDisk(Fault):
    """Fill the disk of a daemon's records; sometimes kill and restart it meanwhile."""

    kind = "full-disk"

    def begin(self) -> None:
        again = self.rng.random() < 0.5
        for daemon in self.daemons():
            daemon.may_end = True
            self.cluster.disks[daemon.name].fill()
            if again:
                daemon.kill()
                daemon.start()
        self.full = {name for name in self.touches if name in self.cluster.agents}

    def end(self) -> None:
        for daemon in self.daemons():
            self.cluster.disks[daemon.name].free()
            # If it is about to exit, `Cluster.whole` starts it again.
            daemon.start()


class PreloadFault(Fault):
    """A setting of the library that is preloaded into the daemons; 0 undoes it."""

    setting = Setting.SYNC_MS
    values: Sequence[int] = ()

    def begin(self) -> None:
        self._set(self.values)

    def end(self) -> None:
        self._set((0,))

    def _set(self, values: Sequence[int]) -> None:
        assert self.cluster.preload is not None
        for name in self.touches:
            self.cluster.preload.tell(name, self.setting, self.rng.choice(values))


class SlowSync(PreloadFault):
    """Slow every fsync and fdatasync."""

    kind = "slow-fsync"
    values = (20, 100, 400)


class ClockJump(PreloadFault):
    """Shift the wall clock, and set it right later."""

    kind = "clock-jump"
    setting = Setting.CLOCK_S
    values = (-20_000 * 24 * HOUR_S, -HOUR_S, -60, 60, HOUR_S, 400 * 24 * HOUR_S)


class BrokenLog(PreloadFault):
    """Let writes to stderr fail or hang."""

    kind = "broken-log"
    setting = Setting.LOG

    def __init__(self, cluster: Cluster, rng: random.Random, touches: Sequence[str]) -> None:
        super().__init__(cluster, rng, touches)
        self.values = (rng.choice(BROKEN_LOGS),)

    def __str__(self) -> str:
        how = "hangs" if self.values[0] < 0 else errno.errorcode[self.values[0]]
        return f"{self.kind}({how}) {'+'.join(self.touches)}"


class Renewal(Fault):
    """New certificates for all daemons.

    Attributes:
        lost: daemons, each with a line of its log, whose stream ended meanwhile.
    """

    kind = "renew-certificates"

    def begin(self) -> None:
        self.lost: list[tuple[str, str]] = []
        self._began = {name: _size(each.log) for name, each in self.cluster.daemons().items()}
        assert self.cluster.certificates is not None
        self._renew(self.cluster.certificates)

    def end(self) -> None:
        for name, daemon in self.cluster.daemons().items():
            with daemon.log.open("rb") as log:
                log.seek(self._began[name])
                lines = log.read().decode(errors="replace").splitlines()
            self.lost += [(name, line) for line in lines if any(word in line for word in LOST)]

    def _renew(self, certificates: ClusterCertificates) -> None:
        certificates.renew()


class AuthorityStep(Renewal):
    """The next step of replacing the authority: trust both, sign by the new one, forget the old."""

    kind = "replace-authority"

    def _renew(self, certificates: ClusterCertificates) -> None:
        certificates.replace_authority()


class KillShim(Fault):
    """Kill a task's shim with SIGKILL."""

    kind = "kill-shim"

    def begin(self) -> None:
        for task_id, shim, task in some_shims(self.cluster, self.rng, 2):
            with suppress(ProcessLookupError):
                # A shim that is stopped cannot go on to another task.
                os.kill(shim, signal.SIGSTOP)
                if is_task(task, task_id) and parent_of(task) == shim:
                    self.excuses[task_id] = Excuse.SHIM_KILLED
                    os.kill(shim, signal.SIGKILL)
                else:
                    os.kill(shim, signal.SIGCONT)

    def end(self) -> None:
        return


class StopShim(Fault):
    """Stop a task's shim with SIGSTOP."""

    kind = "stop-shim"

    def begin(self) -> None:
        self._stopped = self._chosen()
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def end(self) -> None:
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _chosen(self) -> list[int]:
        return [shim for _, shim, _ in some_shims(self.cluster, self.rng, 2)]


class StopExecutor(StopShim):
    """Stop executors with SIGSTOP."""

    kind = "stop-executor"

    def _chosen(self) -> list[int]:
        running = read_ledger(self.cluster.folder / "ran").running()
        alive = [pid for task, pid in running.items() if EXECUTOR in task and is_task(pid, task)]
        return self.rng.sample(alive, min(len(alive), 2))


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def some_shims(cluster: Cluster, rng: random.Random, most: int) -> list[tuple[str, int, int]]:
    """Return running tasks, with the pids of each one's shim and process."""
    running = sorted(read_ledger(cluster.folder / "ran").running().items())
    rng.shuffle(running)
    daemons = {daemon.pid for daemon in cluster.daemons().values()}
    found: list[tuple[str, int, int]] = []
    for task_id, pid in running:
        if len(found) == most:
            break
        shim = parent_of(pid) if is_task(pid, task_id) else 0
        if shim > 1 and shim not in daemons:
            found.append((task_id, shim, pid))
    return found


def is_task(pid: int, task_id: str) -> bool:
    """Return whether the process is that task, and not another one with a reused pid."""
    try:
        return task_id.encode() in (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False

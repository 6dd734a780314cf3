"""Objects of a made-up cluster, in the shapes of the HTTP API."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

View = dict[str, Any]

NOW_MS = int(time.time() * 1000)
GIB = 1024 * 1000
# Nothing of it may have an effect in a page.
HOSTILE = (
    "<img src=x onerror=alert(1)><script>window.hacked=1</script>\u202egnp.exe\x1b[31m\x07&amp;\n"
)
_USERS = ("ads", "ads/prod", "ads/test", "search", "search/index", "ml", "ml/train", "ml/serve")


def amount(**milli: int) -> View:
    text = ";".join(
        f"{name}:{value // 1000}{'MB' if name in ('mem', 'disk') else ''}"
        for name, value in milli.items()
    )
    return {"text": text, "milli": milli, "ranges": {}, "sets": {}}


@dataclass
class Cluster:
    """A cluster of `size` agents.

    Attributes:
        suffix: of names, to make them hostile.
    """

    size: int
    suffix: str = ""
    epoch: int = 7
    agents: list[View] = field(default_factory=list)
    frameworks: list[View] = field(default_factory=list)
    roles: list[View] = field(default_factory=list)
    tasks: list[View] = field(default_factory=list)
    offers: list[View] = field(default_factory=list)
    holds: list[View] = field(default_factory=list)
    events: list[View] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.agents = [self._agent(number) for number in range(self.size)]
        self.roles = [self._role(number, role) for number, role in enumerate(_USERS)]
        self.frameworks = [self._framework(number) for number in range(min(40, self.size * 2))]
        self.tasks = [self._task(number) for number in range(min(2_000, self.size * 4))]
        self.offers = [self._offer(number) for number in range(min(30, self.size))]
        self.holds = [self._hold(number) for number in range(min(30, self.size))]
        self.reservations = [self._reservation(number) for number in range(3)]
        kinds = ("task-failed", "agent-registered", "preemption-begun", "framework-subscribed")
        for number in range(24):
            self.happen(kinds[number % 4], NOW_MS - 25_000 + number * 1000)

    def happen(self, kind: str, time_ms: int = NOW_MS, agent: int | None = None) -> View:
        number = len(self.events) + 1
        event = {
            "id": f"{self.epoch}-{number}",
            "time_ms": time_ms,
            "kind": kind,
            "text": f"{kind.replace('-', ' ')}: number {number}{self.suffix}",
            "agent_id": self.agents[number % self.size if agent is None else agent]["agent_id"],
            "framework_id": "",
            "task_id": "",
            "role": "",
        }
        self.events.append(event)
        return event

    def load(self, number: int) -> float:
        return max(0.0, min(1.0, 0.55 + 0.45 * math.sin(number * 0.37) * math.cos(number * 0.011)))

    def _agent(self, number: int) -> View:
        load = self.load(number)
        state = "disconnected" if number % 97 == 5 else "connected"
        used = amount(cpus=int(16_000 * load), mem=int(64 * GIB * load * 0.8), disk=100 * GIB)
        attributes = {f"attribute{index}": f"value{index}{self.suffix}" for index in range(64)}
        return {
            "agent_id": f"agent-{number:05d}{self.suffix}",
            "hostname": f"node{number}.example.org{self.suffix}",
            "state": state,
            "http_address": f"10.0.0.{number % 256}:5081",
            "attributes": attributes if number % 2 else {"rack": f"r{number % 9}"},
            "total": amount(cpus=16_000, mem=64 * GIB, disk=500 * GIB),
            "used": used,
            "offered": amount(cpus=1000, mem=2 * GIB),
            "tasks": int(load * 20),
            "deactivated": number == 2,
            "drain": self._drain() if number == 1 else None,
            "isolation": ["files", "memory", "pids"],
            "default_user": "(own)",
            "problems": [],
            "decided_in_s": 41.0 if state == "disconnected" else None,
            "devices": [self._device(0), self._device(1)] if number == 1 else [],
            "device_uses": [
                {
                    "device_id": f"GPU-0{self.suffix}",
                    "framework_id": "f-0",
                    "task_id": f"t-1{self.suffix}",
                    "milli": 250,
                }
            ],
        }

    def _device(self, number: int) -> View:
        return {
            "device_id": f"GPU-{number}{self.suffix}",
            "kind": "gpus",
            "type": f"a100{self.suffix}",
            "memory_mib": 81920,
            "groups": [{"topology": f"nvlink{self.suffix}", "name": f"0{self.suffix}"}],
            "slots": 4,
        }

    def _drain(self) -> View:
        why = "it ignores its kill; it is killed by force in 20 s"
        blocker = {"framework_id": "f-0", "task_id": "t-1", "reason": why + self.suffix}
        left = {"done": False, "grace_s": 30.0, "tasks_left": 2, "estimate_s": 20.0}
        return {**left, "blockers": [blocker]}

    def _shares(self, number: int) -> View:
        share, due = 0.04 + 0.03 * (number % 5), 0.12
        ppm = {"share_ppm": int(share * 1e6), "entitlement_ppm": int(due * 1e6)}
        return {"share": share, "entitlement": due, **ppm}

    def _role(self, number: int, role: str) -> View:
        cpus = self.size * 16_000
        none: View = {"text": "", "milli": {}}
        return {
            "role": role + self.suffix.replace("/", "|"),
            "weight": 1.0 + number % 3,
            "weight_milli": 1000 + 1000 * (number % 3),
            "resource_weights": {},
            "guarantee": amount(cpus=cpus // 10) if number == 3 else none,
            "limit": amount(cpus=cpus // 4) if number == 5 else none,
            "preemption": True if number == 5 else None,
            "half_life_s": 604800.0 if number == 1 else 0.0,
            "past_use": {"part": 0.61, "share": 0.4, "factor": 0.656} if number == 1 else None,
            **self._shares(number),
            "used": amount(cpus=cpus // 20, mem=self.size * GIB),
            "offered": amount(cpus=2000),
            "frameworks": number + 1,
            "tasks": 12 * number,
        }

    def _framework(self, number: int) -> View:
        return {
            "framework_id": f"f-{number}",
            "name": f"{('spark', 'web', 'trainer')[number % 3]}-{number}{self.suffix}",
            "roles": [self.roles[number % len(self.roles)]["role"]],
            "state": "disconnected" if number == 4 else "connected",
            "suppressed": number == 6,
            "hostname": "submit.example.org" + self.suffix,
            "webui_url": "javascript:window.hacked=1" if self.suffix else "http://submit:4040",
            "failover_timeout_s": 600.0,
            "labels": [{"key": "team", "value": "blue" + self.suffix}],
            "demands": [
                {
                    "unit": amount(cpus=2000, mem=4 * GIB),
                    "count": 12 if number % 2 else None,
                    "constraints": ["rack = r1" + self.suffix],
                    "min_per_offer": 1,
                    "max_per_offer": None,
                    "role": None,
                }
            ],
            "used": amount(cpus=8000, mem=16 * GIB),
            "offered": amount(),
            **self._shares(number),
            "suppressed_roles": [],
            "tasks": 4,
            "running": 3,
            "queued": 212,
            "done": 38,
            "failed": 5,
            "offers": number % 2,
            "removed_in_s": 540.0 if number == 4 else None,
        }

    def _task(self, number: int) -> View:
        state = ("RUNNING", "RUNNING", "FAILED", "QUEUED", "FINISHED")[number % 5]
        framework = self.frameworks[number % len(self.frameworks)]
        is_queued = state == "QUEUED"
        return {
            "task_id": f"t-{number}",
            "name": f"shard {number}{self.suffix}",
            "framework_id": framework["framework_id"],
            "framework_name": framework["name"],
            "agent_id": "" if is_queued else self.agents[number % self.size]["agent_id"],
            "hostname": "" if is_queued else self.agents[number % self.size]["hostname"],
            "role": framework["roles"][0],
            "state": state,
            "reason": "CONTAINER_LIMITATION_MEMORY" if state == "FAILED" else "NONE",
            "source": "AGENT",
            "message": "killed: memory limit 64 MB" + self.suffix if state == "FAILED" else "",
            "exit_code": 0 if state == "FINISHED" else None,
            "signal": 9 if state == "FAILED" else None,
            "pid": 0 if is_queued else 4000 + number,
            "time_ms": NOW_MS - number * 1000,
            "resources": amount(cpus=500, mem=GIB // 4),
            "limits": {
                "cpus": None,
                "mem": GIB // 2,
                "disk": None,
                "pids": 64,
                "files": None,
                "max_completion_s": 3600.0,
            },
            "usage": {
                "cpu_s": 61.5,
                "memory_peak_bytes": 52_000_000,
                "pids_peak": 3,
                "read_bytes": 123_456,
                "written_bytes": 2_345,
                "disk_bytes": None,
                "run_s": None,
            },
            "isolation": {"namespaces": True, "no_network": False, "image": None},
            "command": ["sh", "-c", "echo hi" + self.suffix],
            "shell": None,
            "secrets": None,
            "labels": [],
        }

    def _offer(self, number: int) -> View:
        return {
            "offer_id": f"o-{number}",
            "framework_id": f"f-{number % len(self.frameworks)}",
            "framework_name": self.frameworks[number % len(self.frameworks)]["name"],
            "agent_id": self.agents[number]["agent_id"],
            "hostname": self.agents[number]["hostname"],
            "role": self.roles[number % len(self.roles)]["role"],
            "resources": amount(cpus=1000, mem=2 * GIB),
            "lease_s": 10.0 - (number * 0.7) % 10,
            "age_s": (number * 0.7) % 10,
        }

    def _hold(self, number: int) -> View:
        is_for_role = number % 3 == 0
        framework = self.frameworks[number % len(self.frameworks)]
        return {
            "hold_id": f"h-{number}{self.suffix}",
            "agent_id": self.agents[number]["agent_id"],
            "hostname": self.agents[number]["hostname"],
            "role": self.roles[number % len(self.roles)]["role"],
            "framework_id": "" if is_for_role else framework["framework_id"],
            "framework_name": "" if is_for_role else framework["name"],
            "resources": amount(cpus=4000, mem=8 * GIB),
            "unused": amount(cpus=1000 * (number % 4), mem=2 * GIB),
            "tasks": number % 4,
            "ttl_left_s": None if number % 2 else 3600.0 - number,
            "made_by": "",
            "charged": True,
            "age_s": 60.0 * number,
        }

    def _reservation(self, number: int) -> View:
        agents = [
            {"agent_id": each["agent_id"], "hostname": each["hostname"]}
            for each in self.agents[: 3 * number]
        ]
        return {
            "reservation_id": f"r-{number}{self.suffix}",
            "role": self.roles[number % len(self.roles)]["role"],
            "state": ("waiting", "announced", "active")[number],
            "begin_time_ms": NOW_MS + 3_600_000 * (1 - number),
            "end_time_ms": NOW_MS + 3_600_000 * (3 - number),
            "every_s": 86_400.0 * number,
            "notice_s": 3600.0,
            "agents": agents,
            "wanted": len(agents) + 1,
            "missing": 1,
            "least": amount(cpus=1000),
            "constraints": [],
            "others": number,
            "preempts": number > 0,
            "made_by": "",
        }

    def overview(self) -> View:
        connected = sum(agent["state"] == "connected" for agent in self.agents)
        load = sum(map(self.load, range(self.size)))
        total = amount(
            cpus=self.size * 16_000, mem=self.size * 64 * GIB, disk=self.size * 500 * GIB
        )
        return {
            "total": total,
            "used": amount(
                cpus=int(load * 16_000), mem=int(load * 50 * GIB), disk=self.size * 100 * GIB
            ),
            "offered": amount(cpus=self.size * 1000, mem=self.size * 2 * GIB),
            "agents": {"connected": connected, "disconnected": self.size - connected},
            "frameworks": {"connected": len(self.frameworks) - 1, "disconnected": 1},
            "tasks": {"RUNNING": 812, "QUEUED": 40, "FAILED": 3},
            "offers": len(self.offers),
            "epoch": self.epoch,
            "agents_missing": 0,
            "masters": self.masters()["items"],
            "failed": len(self.failed),
            "failures": self.failed[:10],
        }

    @property
    def failed(self) -> list[View]:
        return [task for task in self.tasks if task["state"] == "FAILED"]

    def use(self, task: View) -> View:
        return {"usage": task["usage"], "limits": {**task["limits"], "pids": 4096}}

    def masters(self) -> View:
        pages = ("http://10.0.0.1:5080", "javascript:alert(1)", None)
        items = [
            {
                "master_id": f"c1-{self.epoch}" if number == 0 else None,
                "address": f"10.0.0.{number + 1}:5050",
                "leader": number == 0,
                "http_address": page,
                "version": None if page is None else "0.1.0" + self.suffix,
                "since_ms": None if page is None else NOW_MS - 9_000_000 * (number + 1),
                "epoch": (self.epoch, self.epoch - 1, None)[number],
                "term_since_ms": (NOW_MS - 4_000_000, NOW_MS - 8_000_000, None)[number],
            }
            for number, page in enumerate(pages)
        ]
        return {"items": items, "next": None}

    def heatmap(self) -> View:
        loads = [int(self.load(number) * 1000) for number in range(self.size)]
        states = ["connected", "disconnected", "draining", "deactivated"]
        words = [
            "draining"
            if agent["drain"]
            else "deactivated"
            if agent["deactivated"]
            else agent["state"]
            for agent in self.agents
        ]
        return {
            "prefix": "agent-",
            "agents": [agent["agent_id"].removeprefix("agent-") for agent in self.agents],
            "states": states,
            "state": [states.index(word) for word in words],
            "used": {"cpus": loads, "mem": [load * 8 // 10 for load in loads]},
        }

    def history(self) -> View:
        steps = range(360)
        wave = [int(400 + 300 * math.sin(step / 40)) for step in steps]
        return {
            "times_ms": [NOW_MS - 3_600_000 + step * 10_000 for step in steps],
            "shares": {
                role["role"]: [value // (number + 2) for value in wave]
                for number, role in enumerate(self.roles)
            },
            "others": [value // 12 for value in wave],
            "used": {"cpus": wave, "mem": [value * 8 // 10 for value in wave]},
        }

    def fit(self, units: int) -> View:
        agents, task = self.agents, self.tasks[0]
        names = ("framework_id", "framework_name", "task_id", "role", "resources")
        ending = {name: task[name] for name in names} | {"age_s": 90.0}
        return {
            "units": units,
            "fitting": units,
            "agents": [
                {"agent_id": each["agent_id"], "hostname": each["hostname"], "units": 1}
                for each in agents[:units]
            ],
            "other_agents": 3,
            "reasons": [{"cause": "in use", "agents": 2, "detail": f"it has not{self.suffix}"}],
            "limit": "",
            "move": {
                "agent_id": agents[0]["agent_id"],
                "hostname": agents[0]["hostname"],
                "offers": 1,
                "count": 2,
                "tasks": [ending],
            },
        }

    def usage(self, by: str) -> View:
        """The usage of 10 hours, of one name and of those without one."""
        name = f"ads/prod{self.suffix}"
        parts = {"share": 0.25, "share_s": 9000.0, "held": {"cpus": 3600.0}, "offered": {}}
        parts |= {"asked": {"cpus": 36_000.0}, "measured": {"cpus": 9000.0}}
        parts["wasted"] = {"cpus": 27_000.0}
        used = {"cpus": 45_000.0, "mem": 3600.0 * 1024, "licences": 3600.0}
        return {
            "usage": [
                {"name": name, "used": used, **parts},
                {"name": "" if by == "label" else "ads", "used": {"cpus": 3600.0}, **parts},
            ],
            "since_ms": NOW_MS - 36_000_000,
            "ended_ms": NOW_MS,
            "counted_s": 36_000.0,
            "capacity": {},
        }

    def why(self, framework: View) -> View:
        causes = ("limit", "does not fit", "outranked", "a new cause")
        reasons = [
            {
                "cause": cause,
                "role": framework["roles"][0],
                "agents": 5 + number,
                "about_agent_id": None,
                "about_role": self.roles[5]["role"] if cause == "limit" else None,
                "detail": "it holds cpus:40 of at most cpus:40" + self.suffix,
            }
            for number, cause in enumerate(causes)
        ]
        forecast = {
            "unit": amount(cpus=4000),
            "role": framework["roles"][0] + self.suffix,
            "median_s": 240.0,
            "late_s": 3_000.0,
            "problem": "",
        }
        unknown = {**forecast, "median_s": None, "late_s": None, "problem": "nobody knows"}
        return {
            "framework": framework,
            "roles": self.roles,
            "reasons": reasons,
            "policy": "drf",
            "forecasts": [forecast, unknown],
        }

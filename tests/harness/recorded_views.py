"""Objects of a small cluster as a master lists them, for golden screens. No clock, no cluster."""

from __future__ import annotations

from typing import Any

from croupier.api.objects import as_object
from croupier.cli.terminal import View
from croupier.ctl.lists import with_age
from croupier.ctl.top.snapshot import Page, Snapshot, failures_page
from croupier.model.attributes import parse_attributes
from croupier.model.demand import Demand
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.agent_pb2 import HealthProblem
from croupier.wire.resources import attributes_to_wire, resources_to_wire
from croupier.wire.roles import settings_to_wire
from croupier.wire.task import demand_to_wire

NOW_MS = 1_800_000_000_000
FRAMEWORK_ID = "0c1945b2d03f4f3a-F12"
AGENT_ID = "Af32e0bd186d89c86"
# Names that try to change the terminal, and that are wide.
EVIL = "train \x1b[2J<script>alert(1)</script>"
WIDE = "訓練-モデル-検証"


def amounts(text: str) -> resources_pb2.Resources:
    return resources_to_wire(Resources.parse(text))


AGENT = pb.AgentView(
    agent=framework_pb2.AgentDescription(
        agent_id=AGENT_ID,
        hostname="node-17.rack3.example",
        attributes=attributes_to_wire(parse_attributes("rack:r3;zone:a;disk:ssd")),
        http_address="https://node-17.rack3.example:5081",
        isolation=["files", "memory", "pids", "namespaces"],
    ),
    state="connected",
    total=amounts("cpus:64;mem:256GB;disk:1000GB;ports:[31000-32000]"),
    used=amounts("cpus:48;mem:200GB;ports:[31000-31002]"),
    offered=amounts("cpus:8;mem:16GB"),
    tasks=12,
    default_user="(own)",
    connected_since_ms=NOW_MS - 273_600_000,
    problems=[HealthProblem(part="disk", message="97 % full: /var/lib/croupier")],
    drain=pb.Drain(
        tasks_left=12,
        estimate_ms=30_000,
        blockers=[
            pb.DrainBlocker(
                framework_id=FRAMEWORK_ID, task_id="t-3", reason="it ignores SIGTERM for 12 s"
            )
        ],
    ),
)
LOST = pb.AgentView(
    agent=framework_pb2.AgentDescription(agent_id="A0b77c02d1e9a4f13", hostname="node-2"),
    state="unreachable",
    total=amounts("cpus:64;mem:256GB"),
)
FRAMEWORK = pb.FrameworkView(
    framework=framework_pb2.FrameworkInfo(
        framework_id=FRAMEWORK_ID,
        name=EVIL,
        roles=["research/vision"],
        failover_timeout_ms=600_000,
        hostname="sched-1.example",
        webui_url="https://sched-1.example/ui",
    ),
    state="connected",
    demands=[demand_to_wire(Demand(Resources.parse("cpus:4;mem:16GB;gpus:1"), 30))],
    used=amounts("cpus:48;mem:200GB;gpus:12"),
    offered=amounts("cpus:8;mem:16GB"),
    share_ppm=375_000,
    entitlement_ppm=500_000,
    tasks=12,
    offers=2,
    connected_since_ms=NOW_MS - 7_500_000,
)
OTHER = pb.FrameworkView(
    framework=framework_pb2.FrameworkInfo(
        framework_id="0c1945b2d03f4f3a-F7", name=WIDE, roles=["ads/prod"]
    ),
    state="disconnected",
    used=amounts("cpus:10;mem:20GB"),
    share_ppm=78_125,
    tasks=5,
    removed_in_ms=560_000,
)
ROLES = [
    pb.RoleView(
        role=role,
        settings=settings_to_wire(settings),
        used=amounts(used),
        share_ppm=share,
        entitlement_ppm=due,
        frameworks=frameworks,
        tasks=tasks,
    )
    for role, settings, used, share, due, frameworks, tasks in (
        ("ads", RoleSettings(1000), "cpus:10;mem:20GB", 78_125, 333_333, 1, 5),
        ("ads/prod", RoleSettings(1000), "cpus:10;mem:20GB", 78_125, 333_333, 1, 5),
        (
            "research",
            RoleSettings(2000, {"gpus": 500}, {"cpus": 32_000}, {"cpus": 96_000, "gpus": 16_000}),
            "cpus:48;mem:200GB;gpus:12",
            375_000,
            666_667,
            1,
            12,
        ),
        (
            "research/vision",
            RoleSettings(1000),
            "cpus:48;mem:200GB;gpus:12",
            375_000,
            666_667,
            1,
            12,
        ),
    )
]
MASTER = pb.GetMasterResponse(
    master_id="c1d0",
    version="0.9.0",
    leader=True,
    epoch=7,
    total=amounts("cpus:128;mem:512GB;disk:2000GB;gpus:32"),
    used=amounts("cpus:58;mem:220GB;gpus:12"),
    offered=amounts("cpus:8;mem:16GB"),
    held=amounts("cpus:6;mem:12GB"),
    agents_missing=1,
    decided_in_ms=42_000,
)
EXPLANATION = pb.ExplainResponse(
    forecasts=[
        pb.Forecast(
            role="research/vision",
            unit=amounts("cpus:4;mem:16GB;gpus:1"),
            median_ms=250_000,
            late_ms=3_600_000,
        )
    ],
    framework=FRAMEWORK,
    roles=ROLES[2:],
    policy="drf",
    reasons=[
        pb.PassedOver(
            cause="limit",
            agents=3,
            role="research/vision",
            about_role="research",
            detail="research holds gpus:12 and is offered gpus:4 of its limit gpus:16",
        ),
        pb.PassedOver(
            cause="does not fit",
            agents=9_871,
            role="research/vision",
            detail=f"agent {AGENT_ID} has <cpus:8;mem:40GB> free, and the unit is"
            " <cpus:4;mem:16GB;gpus:1>",
        ),
    ],
)


def task(number: int, state: task_pb2.TaskState.ValueType, **status: Any) -> pb.TaskView:
    """Return a task; some of its times are known."""
    begun = NOW_MS - 1_000_000 * number - 4_321
    return pb.TaskView(
        framework_id=FRAMEWORK_ID,
        framework_name="train",
        hostname="node-17.rack3.example",
        agent_id=AGENT_ID if state != task_pb2.TASK_QUEUED else "",
        role="research/vision",
        task=task_pb2.TaskInfo(
            task_id=f"t-{number}",
            name=EVIL if number == 1 else WIDE,
            resources=amounts("cpus:4;mem:16GB;gpus:1"),
            command=task_pb2.Command(shell="python train.py --epochs 90"),
        ),
        status=task_pb2.TaskStatus(state=state, **status),
        since_ms=begun,
        submitted_ms=begun,
        placed_ms=begun + 20 if state != task_pb2.TASK_QUEUED else None,
        started_ms=begun + 31 if state == task_pb2.TASK_RUNNING else None,
    )


TASKS = [
    task(1, task_pb2.TASK_RUNNING, pid=4711),
    task(2, task_pb2.TASK_RUNNING, pid=4712),
    task(3, task_pb2.TASK_QUEUED),
]
FAILED = [
    task(4, task_pb2.TASK_FAILED, exit_code=3, message="exited with code 3"),
    task(5, task_pb2.TASK_FAILED, signal=9, reason=task_pb2.REASON_MEMORY_LIMIT),
]
for _number, _task in enumerate(FAILED):
    _task.ended_ms = NOW_MS - 50_000 * (_number + 1)
EVENTS = [
    {
        "id": f"7-{number}",
        "time_ms": NOW_MS - 60_000 + number,
        "kind": kind,
        "text": text,
        "agent_id": AGENT_ID,
        "framework_id": FRAMEWORK_ID,
        "task_id": "",
        "role": "research/vision",
    }
    for number, (kind, text) in enumerate(
        (
            ("task-failed", f"Task t-0 of {FRAMEWORK_ID} failed on agent {AGENT_ID}: \x1b[31mx"),
            ("agent-draining", f"Agent {AGENT_ID} (node-17.rack3.example) is being drained"),
        )
    )
]


def aged(view: View) -> View:
    """Return an object with its age."""
    return with_age(view, NOW_MS)


def described() -> dict[str, View]:
    """Return what `croupier describe` fetches, by the kind of object."""
    tasks = [aged(as_object(each)) for each in TASKS]
    frameworks = [aged(as_object(each)) for each in (FRAMEWORK, OTHER)]
    return {
        "agent": {"agent": aged(as_object(AGENT)), "tasks": tasks, "events": EVENTS},
        "framework": {
            "framework": frameworks[0],
            "why": as_object(EXPLANATION),
            "tasks": tasks,
            "events": EVENTS,
        },
        "role": {
            "role": as_object(ROLES[2]),
            "frameworks": frameworks[:1],
            "tasks": tasks,
            "events": EVENTS[:1],
        },
    }


def snapshot() -> Snapshot:
    """Return what `croupier top` shows."""
    return Snapshot(
        as_object(MASTER),
        "m1.example:5050",
        NOW_MS,
        Page([as_object(each) for each in ROLES]),
        Page([aged(as_object(each)) for each in (OTHER, FRAMEWORK)], is_all=False),
        Page([aged(as_object(each)) for each in (AGENT, LOST)]),
        failures_page(pb.GetOverviewResponse(failed=3, failures=FAILED), NOW_MS),
    )

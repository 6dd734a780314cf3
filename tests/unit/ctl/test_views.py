"""JSON objects, and the tables that show them."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from croupier.api.objects import as_object
from croupier.cli.table import Table, lines_of, print_table
from croupier.cli.terminal import View, demand_text
from croupier.ctl.commands.role_settings import quota_change
from croupier.ctl.views.agent import AGENTS, device_lines
from croupier.ctl.views.framework import FRAMEWORKS
from croupier.ctl.views.role import QUOTAS, ROLES, WEIGHTS
from croupier.ctl.views.task import OFFERS, TASKS, task_table
from croupier.model.attributes import equals, parse_attributes
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import attributes_to_wire, resources_to_wire
from croupier.wire.roles import settings_to_wire
from croupier.wire.task import demand_to_wire


def wire(text: str) -> resources_pb2.Resources:
    return resources_to_wire(Resources.parse(text))


AGENT = pb.AgentView(
    agent=framework_pb2.AgentDescription(
        agent_id="a1",
        hostname="h1",
        attributes=attributes_to_wire(parse_attributes("rack:r1;cores:8")),
        http_address="h1:5081",
        isolation=["files", "memory", "pids"],
    ),
    state="connected",
    default_user="(agent)",
    total=wire("cpus:4;mem:8GB;ports:[1-2,5];zones:{a,b}"),
    used=wire("cpus:1.5"),
    tasks=3,
)
FRAMEWORK = pb.FrameworkView(
    framework=framework_pb2.FrameworkInfo(
        framework_id="f1", name="count", roles=["ads/prod"], failover_timeout_ms=600_000
    ),
    state="connected",
    suppressed=True,
    demands=[demand_to_wire(Demand(Resources.parse("cpus:1"), 3, (equals("rack", "r1"),)))],
    used=wire("cpus:2"),
    share_ppm=666_667,
    tasks=2,
    offers=1,
)
ROLE = pb.RoleView(
    role="ads",
    settings=settings_to_wire(
        RoleSettings(
            2500,
            {"gpus": 500},
            {"cpus": 4000},
            {"cpus": 8000, "mem": 0},
            preemption=False,
            min_run_ms=600_000,
            half_life_ms=604_800_000,
        )
    ),
    past_use=pb.PastUse(part_ppm=610_000, share_ppm=400_000, factor_ppm=656_000),
    entitlement_ppm=600_000,
    used=wire("cpus:2"),
    share_ppm=500_000,
    tasks=2,
)
OFFER = pb.OfferView(
    offer=framework_pb2.Offer(
        offer_id="o1", agent_id="a1", role="ads", resources=wire("cpus:2"), lease_ms=10_000
    ),
    framework_id="f1",
)
TASK = pb.TaskView(
    framework_id="f1",
    agent_id="a1",
    role="ads",
    task=task_pb2.TaskInfo(
        task_id="t1",
        name="first",
        command=task_pb2.Command(argv=["echo", "hi"], environment={"SECRET": "x"}),
        resources=wire("cpus:1"),
    ),
    status=task_pb2.TaskStatus(
        state=task_pb2.TASK_FAILED, exit_code=3, source=task_pb2.SOURCE_AGENT
    ),
)


def test_an_agent() -> None:
    view = as_object(AGENT)
    assert view["attributes"] == {"rack": "r1", "cores": "8"}
    assert view["total"] == {
        "text": "cpus:4;mem:8GB;ports:[1-2,5];zones:{a,b}",
        "milli": {"cpus": 4000, "mem": 8_192_000},
        "ranges": {"ports": [[1, 2], [5, 5]]},
        "sets": {"zones": ["a", "b"]},
    }
    assert view["offered"] == {"text": "", "milli": {}, "ranges": {}, "sets": {}}
    assert (view["isolation"], view["default_user"]) == (["files", "memory", "pids"], "(agent)")


def test_a_demand_with_portions_and_a_role() -> None:
    demand = Demand(Resources.parse("gpus:1"), None, (), 2, 4, Role("ads/prod"))
    view = as_object(demand_to_wire(demand))
    assert (view["min_per_offer"], view["max_per_offer"], view["role"]) == (2, 4, "ads/prod")
    assert demand_text(view) == "any number of <gpus:1> 2 to 4 at once in ads/prod"
    view = as_object(demand_to_wire(replace(demand, max_per_offer=None, role=None)))
    assert demand_text(view) == "any number of <gpus:1> 2 to any at once"


def test_a_task_shows_its_command_but_not_its_environment() -> None:
    view = as_object(TASK)
    assert (view["state"], view["exit_code"], view["signal"]) == ("FAILED", 3, None)
    assert (view["command"], view["shell"], view["source"]) == (["echo", "hi"], None, "AGENT")
    assert "SECRET" not in json.dumps(view)


ALL: list[tuple[Table, View]] = [
    (AGENTS, {**as_object(AGENT), "age_s": 200.0}),
    (FRAMEWORKS, {**as_object(FRAMEWORK), "age_s": 7500.0}),
    (ROLES, as_object(ROLE)),
    (WEIGHTS, as_object(ROLE)),
    (QUOTAS, as_object(ROLE)),
    (OFFERS, as_object(OFFER)),
    (TASKS, {**as_object(TASK), "age_s": 5.0}),
    (task_table(commands=True), as_object(TASK)),
]


def test_the_reason_column_repeats_no_state_or_exit_code() -> None:
    reasons = {}
    for state, reason in (
        (task_pb2.TASK_KILLED, task_pb2.REASON_AGENT_DRAINING),
        (task_pb2.TASK_FAILED, task_pb2.REASON_COMMAND_EXECUTOR_FAILED),
        (task_pb2.TASK_GONE_BY_OPERATOR, task_pb2.REASON_GONE_BY_OPERATOR),
    ):
        task = pb.TaskView(status=task_pb2.TaskStatus(state=state, reason=reason))
        if state == task_pb2.TASK_FAILED:
            task.status.exit_code = 3
        cells = lines_of(TASKS, [as_object(task)], None)[1].split()
        reasons[cells[5]] = cells[7]
    assert reasons == {"KILLED": "AGENT_DRAINING", "FAILED": "-", "GONE_BY_OPERATOR": "-"}


def test_the_reason_column_tells_why_a_task_stays_in_staging() -> None:
    status = task_pb2.TaskStatus(state=task_pb2.TASK_STAGING, message="missing")
    cells = lines_of(TASKS, [as_object(pb.TaskView(status=status))], None)[1].split()
    assert cells[5:8] == ["STAGING", "-", "missing"]


def test_the_reason_column_tells_of_a_failure_without_an_exit_code() -> None:
    reason = task_pb2.REASON_COMMAND_EXECUTOR_FAILED
    status = task_pb2.TaskStatus(state=task_pb2.TASK_FAILED, reason=reason)
    cells = lines_of(TASKS, [as_object(pb.TaskView(status=status))], None)[1].split()
    assert cells[5:8] == ["FAILED", "-", "COMMAND_EXECUTOR_FAILED"]


def test_tables_in_a_pipe() -> None:
    lines = [line for table, view in ALL for line in lines_of(table, [view], None)]
    assert "\n".join(lines) == EXPECTED.strip()


EXPECTED = """
HOST  AGENT  STATE      TASKS  USED      OFFERED  TOTAL                                     ATTRIBUTES       ISOLATION       CONNECTED
h1    a1     connected      3  cpus:1.5  -        cpus:4;mem:8GB;ports:[1-2,5];zones:{a,b}  rack:r1;cores:8  process,cgroup      3m20s
NAME   FRAMEWORK  ROLE      STATE                  SHARE  RUNNING  QUEUED  OFFERS  USED    OFFERED  WANTS                            CONNECTED
count  f1         ads/prod  connected, suppressed  0.667        2       0       1  cpus:2  -        3 <cpus:1> where rack equals r1       2h5m
ROLE  WEIGHT  SHARE  ENTITLED  GUARANTEE  LIMIT           FRAMEWORKS  RUNNING  QUEUED  USED    OFFERED
ads      2.5  0.500     0.600  cpus:4     cpus:8;mem:0MB           0        2       0  cpus:2  -
ROLE  WEIGHT  RESOURCES  SHARE  ENTITLED  HALF-LIFE   PAST  FACTOR
ads      2.5  gpus=0.5   0.500     0.600  7d         0.610   0.656
ROLE  GUARANTEE  LIMIT           PREEMPTION  MIN-RUN  USED    OFFERED
ads   cpus:4     cpus:8;mem:0MB  off         10m      cpus:2  -
OFFER  FRAMEWORK  HOST  ROLE  LEASE  RESOURCES  FRAMEWORK-ID  AGENT-ID
o1     f1         a1    ads     10s  cpus:2     f1            a1
TASK  NAME   FRAMEWORK  HOST  ROLE  STATE   CODE  WHY  RESOURCES  AGE  FRAMEWORK-ID  AGENT-ID
t1    first  f1         a1    ads   FAILED     3  -    cpus:1      5s  f1            a1
TASK  NAME   FRAMEWORK  HOST  ROLE  STATE   CODE  WHY  RESOURCES  AGE  FRAMEWORK-ID  AGENT-ID  COMMAND
t1    first  f1         a1    ads   FAILED     3  -    cpus:1       -  f1            a1        echo hi
"""  # noqa: E501 - lines of a table are not folded


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("table", "view"), ALL)
def test_an_empty_list_has_a_message(table: Table, view: View) -> None:
    for out in (io.StringIO(), Terminal()):
        print_table(table, [], out)
        assert out.getvalue() == table.empty + "\n"


@pytest.mark.parametrize(("table", "view"), ALL)
def test_a_terminal_shows_the_same_cells(
    table: Table, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    print_table(table, [view], out)
    shown = " ".join(out.getvalue().split())
    for line in lines_of(table, [view], None):
        for cell in line.split("  "):
            assert cell.strip() in shown


def test_a_terminal_shows_roles_as_a_tree_and_a_pipe_their_paths() -> None:
    roles = [as_object(ROLE) | {"role": role} for role in ("ads", "ads/prod", "ads/prod/eu")]
    out = Terminal()
    print_table(WEIGHTS, roles, out)
    shown = [line.split("  2.5")[0].rstrip() for line in out.getvalue().splitlines()[1:]]
    assert shown == ["ads", "  prod", "    eu"]
    assert [line.split()[0] for line in lines_of(WEIGHTS, roles, None)[1:]] == [
        "ads",
        "ads/prod",
        "ads/prod/eu",
    ]


def test_nothing_is_cut_in_a_pipe() -> None:
    long_id = "f" * 300
    out = io.StringIO()
    view = as_object(FRAMEWORK) | {"framework_id": long_id}
    print_table(FRAMEWORKS, [view], out)
    assert long_id in out.getvalue()


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_control_characters_are_escaped(out: io.StringIO) -> None:
    view = as_object(FRAMEWORK) | {"name": "[red]\x1b[2J\nx"}
    print_table(FRAMEWORKS, [view], out)
    assert "\x1b[2J" not in out.getvalue()
    plain = "\n".join(lines_of(FRAMEWORKS, [view], None))
    assert "[red]\\x1b[2J\\nx" in plain


def test_a_device_is_free_if_nobody_has_a_slot_of_it() -> None:
    devices = [resources_pb2.Device(device_id=f"g{n}", kind="gpus", slots=2) for n in range(4)]
    agent = pb.AgentView(
        agent=framework_pb2.AgentDescription(agent_id="a1", devices=devices),
        used=wire("gpus:1;devices:{g0#0,g1#0}"),
        held=wire("gpus:0.5;devices:{g2#1}"),
        device_uses=[pb.DeviceUse(device_id="g0", framework_id="f1", task_id="t1", milli=500)],
    )
    assert [line.rpartition(": ")[2] for line in device_lines(as_object(agent))] == [
        "t1 (0.5)",
        "taken",
        "taken",
        "free",
    ]


def test_a_lined_up_task_is_shown_as_that_where_others_have_a_forecast() -> None:
    queued, running = task_pb2.TASK_QUEUED, task_pb2.TASK_RUNNING
    views = [
        pb.TaskView(hostname="h", status=task_pb2.TaskStatus(state=queued)),
        pb.TaskView(status=task_pb2.TaskStatus(state=queued)),
        pb.TaskView(hostname="h", status=task_pb2.TaskStatus(state=running)),
    ]
    (eta,) = [each for each in task_table(eta=True).columns if each.title == "ETA"]
    assert [eta.show(as_object(view)) for view in views] == ["lined up", "", ""]


def test_an_empty_budget_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'' is no budget"):
        quota_change("ads", None, None, None, None, "")

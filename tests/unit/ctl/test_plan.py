"""The plan of `croupier local`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from croupier.ctl.commands.local import welcome, with_ports
from croupier.ctl.local.plan import (
    MAX_AGENTS,
    LocalPlan,
    LocalSpec,
    MachineSize,
    SecurityFiles,
    make_plan,
)
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources

MACHINE = MachineSize(cpus=8, mem_mib=16_000, disk_mib=90_000)


def plan(spec: LocalSpec, machine: MachineSize = MACHINE) -> LocalPlan:
    return make_plan(spec, machine, Path("/w"), 5050, 5080)


def spec_of(
    agents: int, cpus: str, mem: str, disk: str | None, weights: str, **flags: Any
) -> LocalSpec:
    return LocalSpec(agents, cpus, mem, disk, role_weights=weights, **flags)


def test_a_machine_is_divided_evenly() -> None:
    shares = [Resources(amount.scalars) for amount in plan(LocalSpec(agents=3)).each]
    assert shares == [Resources.parse("cpus:2;mem:5333;disk:30000")] * 3


def test_each_agent_has_at_least_one_cpu() -> None:
    each = plan(LocalSpec(agents=5), MachineSize(cpus=2, mem_mib=3, disk_mib=0)).each
    assert [Resources(amount.scalars) for amount in each] == [Resources.parse("cpus:1;mem:1")] * 5


def test_given_amounts_replace_the_equal_parts() -> None:
    (amount,) = plan(spec_of(1, "0.5", "2GB", "0", "")).each
    assert Resources(amount.scalars) == Resources.parse("cpus:0.5;mem:2GB")


def test_more_flags_are_passed_to_the_master() -> None:
    made = plan(spec_of(1, "1", "1GB", "0", "ads=2", master_flags=("--policy", "fifo")))
    assert made.master.argv[-4:] == ("--weights", "ads=2", "--policy", "fifo")


def test_flags_of_isolation_are_passed_to_agents() -> None:
    flags = ("--isolation", "process", "--task-user", "nobody")
    made = plan(spec_of(2, "1", "1GB", "0", "", isolation="process", task_user="nobody"))
    assert [agent.argv[-4:] for agent in made.agents] == [flags] * 2
    assert "process; tasks run as nobody" in welcome(
        made, Path("/w"), passes=True, isolation="process; tasks run as nobody"
    )


@pytest.mark.parametrize("agents", [1, 3, 100, MAX_AGENTS])
def test_no_two_agents_share_a_port(agents: int) -> None:
    ranges = [
        pair for amount in plan(LocalSpec(agents=agents)).each for pair in amount.ranges["ports"]
    ]
    assert len(ranges) == agents
    numbers = [number for begin, end in ranges for number in range(begin, end + 1)]
    assert len(numbers) == len(set(numbers))
    assert 31000 <= min(numbers) <= max(numbers) < 32768


@pytest.mark.parametrize(
    ("agents", "cpus", "mem"), [(0, "1", "1"), (MAX_AGENTS + 1, "1", "1"), (1, "0", "1"),
                                (1, "1", "0"), (1, "x", "1"), (1, "1", "-1")]
)  # fmt: skip
def test_amounts_out_of_range_are_refused(agents: int, cpus: str, mem: str) -> None:
    with pytest.raises(InvalidRequest):
        spec_of(agents, cpus, mem, None, "")


def test_daemons_run_on_this_python_with_explicit_flags() -> None:
    made = plan(spec_of(2, "1", "1GB", "0", "ads=2"))
    assert made.master.argv == (
        sys.executable, "-P", "-m", "croupier.master", "--listen", "127.0.0.1:5050",
        "--http", "127.0.0.1:5080", "--store", "sqlite:/w/master.sqlite",
        "--log-format", "json", "--log-level", "info",
        "--secrets-key-file", "/w/secrets.key", "--weights", "ads=2",
    )  # fmt: skip
    assert made.agents[1].argv == (
        sys.executable, "-P", "-m", "croupier.agent", "--master", "127.0.0.1:5050",
        "--hostname", "agent-2", "--http", "127.0.0.1:0", "--work-dir", "/w/agent-2",
        "--resources", "cpus:1;mem:1GB;ports:[31500-31999]", "--on-stop", "end",
        "--log-format", "json", "--log-level", "info",
    )  # fmt: skip


def test_a_secured_cluster_has_a_certificate_and_tokens_in_files() -> None:
    files = SecurityFiles(*(Path("/p", name) for name in ("ca", "crt", "key", "admin", "join")))
    made = make_plan(LocalSpec(agents=1), MACHINE, Path("/w"), 5050, 5080, files)
    master, agent = " ".join(made.master.argv), " ".join(made.agents[0].argv)
    assert "--tls-cert /p/crt --tls-key /p/key --admin-token-file /p/admin" in master
    assert "--tls-ca /p/ca --join-token-file /p/join" in agent


def test_the_ready_message_says_who_can_use_the_cluster() -> None:
    made = plan(LocalSpec())
    assert "every user of this machine" in welcome(made, Path("/w"), passes=True)
    text = welcome(made, Path("/w"), passes=True, access="only you")
    assert "access   only you" in text
    assert "https://127.0.0.1:5080/metrics" in text


def test_the_ready_message_names_the_next_commands() -> None:
    text = welcome(plan(LocalSpec()), Path("/w"), passes=True)
    assert "a master and 3 agents" in text
    assert "croupier run -- echo hello" in text
    assert "/w (removed at the end)" in text


def test_a_port_of_the_master_is_chosen_once_and_shown() -> None:
    assert with_ports(["--policy", "fifo", "--mesos-listen", "h:5055"])[-1] == "h:5055"
    first, given = with_ports(["--mesos-listen=127.0.0.1:0"]), with_ports(["--token-listen", "h:0"])
    assert re.fullmatch("h:[1-9][0-9]+", given[1])
    address = first[0].removeprefix("--mesos-listen=")
    assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]+", address)
    text = welcome(plan(LocalSpec(master_flags=first)), Path("/w"), passes=True)
    assert f"\n  mesos    http://{address}/\n" in text
    assert "mesos" not in welcome(plan(LocalSpec()), Path("/w"), passes=True)


def test_the_ready_message_names_a_master_on_another_port() -> None:
    other = make_plan(LocalSpec(agents=1), MACHINE, Path("/w"), 6000, 5080)
    text = welcome(other, Path("/w"), passes=False)
    assert "a master and 1 agent," in text
    assert "croupier run --master 127.0.0.1:6000 -- echo hello" in text
    assert "removed" not in text

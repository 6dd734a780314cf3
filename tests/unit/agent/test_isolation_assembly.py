"""The agent's flags of isolation, and the isolators that they make."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from croupier.agent.config import AgentConfig
from croupier.agent.isolation.assembly import Builder, assemble
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import (
    Isolator,
    Launch,
    Layers,
    Setting,
    limits_of,
    parse_levels,
)
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import (
    NO_LIMITS,
    Feature,
    Features,
    Limits,
    format_limits,
    parse_limits,
)
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Command, TaskInfo
from croupier.net.address import Address
from croupier.process.tls.flags import TlsFlags

SHIM = Shim(("/w/shim",))
TOTAL = Resources.parse("cpus:2;mem:1GB")
INFO = TaskInfo(TaskId("t1"), Command(("true",)), NOTHING)
LAUNCH = Launch("r-1", (FrameworkId("F1"), TaskId("t1")), INFO, "/s", ("true",), {})


@dataclass
class Recorder(Isolator):
    """An isolator that adds its name to the options, and records what is removed."""

    name: str
    features: Features
    forgotten: list[str] = field(default_factory=list)

    def prepare(self, launch: Launch) -> Launch:
        return replace(launch, options=(*launch.options, self.name))

    def join(self, launch: Launch) -> Launch:
        return replace(launch, options=(*launch.options, f"in {self.name}"))

    def forget(self, run: str) -> None:
        self.forgotten.append(run)


def giving(*features: Feature) -> Builder:
    def build(setting: Setting) -> Isolator:
        name = ",".join(feature.value for feature in features)
        return Recorder(name, frozenset(features))

    return build


def lacking(reason: str) -> Builder:
    def build(setting: Setting) -> Isolator:
        raise Unavailable(reason)

    return build


def flags(*levels: str) -> IsolationFlags:
    return IsolationFlags(isolation=levels)


def test_auto_takes_what_the_machine_has_and_warns_once_of_the_rest() -> None:
    builders = {
        "process": giving(Feature.FILES),
        "cgroup": lacking("the hierarchy is read-only"),
        "namespaces": lacking("there is no bwrap"),
    }
    with capture_logs() as logs:
        layers = assemble(Setting(flags("auto"), TOTAL, Path("/w"), SHIM), builders)
    assert layers.features == {Feature.FILES}
    assert [(line["log_level"], line["event"], line["missing"]) for line in logs] == [
        ("warning", "isolation_reduced", {"cgroup": "the hierarchy is read-only"}),
        ("info", "isolation_not_offered", {"namespaces": "there is no bwrap"}),
    ]


def test_a_named_level_that_is_missing_is_an_error_with_the_reason() -> None:
    builders = {"cgroup": lacking("the hierarchy is read-only")}
    with pytest.raises(InvalidRequest, match="--isolation cgroup: the hierarchy is read-only"):
        assemble(Setting(flags("process", "cgroup"), TOTAL, Path("/w"), SHIM), builders)


def test_levels_prepare_in_their_own_order_whatever_the_order_of_their_names() -> None:
    builders = {"cgroup": giving(Feature.MEMORY), "process": giving(Feature.FILES)}
    layers = assemble(Setting(flags("cgroup", "process"), TOTAL, Path("/w"), SHIM), builders)
    assert layers.prepare(LAUNCH).options == ("files", "memory")
    assert assemble(Setting(flags("cgroup"), TOTAL, Path("/w"), SHIM), builders).names == (
        "memory",
    )


def test_none_isolates_nothing() -> None:
    layers = assemble(
        Setting(flags("none"), TOTAL, Path("/w"), SHIM), {"cgroup": giving(Feature.MEMORY)}
    )
    assert not layers.names
    assert not layers.features


def test_a_launch_that_needs_more_is_refused_before_anything_is_made() -> None:
    layers = assemble(
        Setting(flags("cgroup"), TOTAL, Path("/w"), SHIM), {"cgroup": giving(Feature.MEMORY)}
    )
    wanting = replace(LAUNCH, info=replace(INFO, limits=Limits(mem=64_000, pids=10)))
    with pytest.raises(InvalidRequest, match="cannot enforce what it asks for: pids"):
        layers.prepare(wanting)


def test_pids_by_uid_are_refused_for_tasks_of_an_account() -> None:
    own = UnixUser("task", 2_000_007, 2_000_007, (), is_own=True)
    asking = replace(LAUNCH, info=replace(INFO, limits=Limits(pids=10)))
    by_uid = Layers([Recorder("process", frozenset({Feature.PIDS}))])
    assert by_uid.prepare(replace(asking, user=own)).options == ("process",)
    for user in (None, replace(own, is_own=False)):
        with pytest.raises(InvalidRequest, match="no control group for pids"):
            by_uid.prepare(replace(asking, user=user))
    assert by_uid.prepare(LAUNCH).options == ("process",)
    by_group = by_uid.extended(Recorder("cgroup", frozenset({Feature.PIDS})))
    assert by_group.prepare(asking).options == ("process", "cgroup")


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("auto", ("auto",)),
        ("none", ("none",)),
        ("cgroup", ("cgroup",)),
        ("process, cgroup", ("process", "cgroup")),
        ("container,namespaces", ("container", "namespaces")),
    ],
)
def test_levels_are_read_and_written(text: str, levels: tuple[str, ...]) -> None:
    assert parse_levels(text) == levels
    assert parse_levels(",".join(levels)) == levels


@pytest.mark.parametrize("text", ["", "cgroups", "auto,process", "none,cgroup", "process,"])
def test_unknown_levels_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="give auto, none, or some of process,cgroup,"):
        parse_levels(text)


def test_a_level_is_given_once() -> None:
    with pytest.raises(InvalidRequest, match="has a word twice"):
        parse_levels("process,process")


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", NO_LIMITS),
        ("pids:4096;files:65536", Limits(pids=4096, files=65536)),
        ("cpus:1.5;mem:1GB;disk:64MB", Limits(cpus=1500, mem=1_024_000, disk=64_000)),
    ],
)
def test_limits_are_read_and_written(text: str, limits: Limits) -> None:
    assert parse_limits(text) == limits
    assert parse_limits(format_limits(limits)) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus:1", "there is no limit of gpus; give some of cpus, mem, disk, pids, files"),
        ("ports:[1-2]", "there is no limit of ports"),
        ("pids:0", "the limit of pids must be above 0, not 0"),
        ("pids:1.5", "the limit of pids is a whole number"),
        ("pids:5000000", "the limit of pids is out of range"),
        ("files:many", "'many' is not an amount"),
        ("pids", "NAME:AMOUNT"),
    ],
)
def test_false_limits_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_limits(text)


def test_defaults_bound_processes_and_files() -> None:
    flags = IsolationFlags()
    assert format_limits(flags.default_limits) == "pids:4096;files:65536"
    assert (flags.isolation, flags.cpu_quota) == (("auto",), "off")


@pytest.mark.parametrize(
    ("resources", "own", "expected"),
    [
        ("", NO_LIMITS, Limits(mem=32_000, pids=100)),
        ("cpus:1;mem:64MB;disk:1GB", NO_LIMITS, Limits(mem=64_000, disk=1_024_000, pids=100)),
        ("mem:1MB", NO_LIMITS, Limits(mem=4_000, pids=100)),
        ("cpus:1;mem:64MB", Limits(2000, 128_000, 5, 6, 7), Limits(2000, 128_000, 5, 6, 7)),
    ],
)
def test_own_limits_come_before_resources_and_defaults(
    resources: str, own: Limits, expected: Limits
) -> None:
    info = TaskInfo(TaskId("t"), Command(("true",)), Resources.parse(resources), limits=own)
    assert limits_of(info, Limits(mem=32_000, pids=100)) == expected


def test_with_quotas_a_task_is_held_to_its_cpus() -> None:
    info = TaskInfo(TaskId("t"), Command(("true",)), Resources.parse("cpus:1.5"))
    assert limits_of(info, NO_LIMITS, has_quota=True) == Limits(cpus=1500)


def test_defaults_use_only_loopback() -> None:
    config = AgentConfig()
    assert config.http.is_loopback
    assert config.master == (Address("127.0.0.1", 5050),)
    assert config.hostname


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"http": Address("0.0.0.0", 5081)}, "or --insecure to accept that"),
        ({"master": (Address("10.0.0.1", 5050),)}, "10.0.0.1:5050 is on another machine"),
        (
            {"master": (Address("localhost", 1), Address("m2", 1))},
            "the master at m2:1 is on another",
        ),
        ({"master": ()}, "--master names no master"),
        ({"master": (Address("localhost", 0),)}, "port 0 cannot be connected to"),
        ({"hostname": ""}, "--hostname: a hostname has 1 to 255 printable characters"),
        ({"hostname": "a\nb"}, "--hostname"),
        ({"hostname": "a" * 256}, "--hostname"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        AgentConfig(**values)


def test_insecure_allows_other_machines() -> None:
    assert AgentConfig(http=Address("0.0.0.0", 5081), insecure=True).insecure
    assert AgentConfig(master=(Address("m1", 5050),), insecure=True).insecure
    # It connects to no master.
    assert AgentConfig(master=(Address("m1", 5050),), recover="cleanup").master


def test_tls_allows_other_machines() -> None:
    pair: dict[str, Any] = {"tls_cert": Path("/cert"), "tls_key": Path("/key")}
    everywhere, remote = Address("0.0.0.0", 5081), (Address("m1", 5050),)
    config = AgentConfig(http=everywhere, master=remote, tls=TlsFlags(**pair, tls_ca=Path("/ca")))
    assert not config.is_confined, "a redirect may lead to another machine"
    with pytest.raises(InvalidRequest, match="give --tls-ca, or --insecure"):
        AgentConfig(http=everywhere, master=remote, tls=TlsFlags(**pair))
    with pytest.raises(InvalidRequest, match="give --tls-cert and --tls-key, or --insecure"):
        AgentConfig(http=everywhere, tls=TlsFlags(tls_ca=Path("/ca")))

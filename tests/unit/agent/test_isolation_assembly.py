from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from croupier.agent.core.ending import NO_ENDING, Ending
from croupier.agent.isolation.assembly import Builder, assemble
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Isolator
from croupier.agent.isolation.launch import Launch
from croupier.agent.isolation.layers import Layers
from croupier.agent.isolation.setting import Setting
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import Feature, Features, Limits, Usage
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Command, TaskInfo

SHIM = Shim(("/w/shim",))
TOTAL = Resources.parse("cpus:2;mem:1GB")
INFO = TaskInfo(TaskId("t1"), Command(("true",)), NOTHING)
LAUNCH = Launch("r-1", (FrameworkId("F1"), TaskId("t1")), INFO, "/s", ("true",), {})


@dataclass
class Recorder:
    """An isolator that adds its name to the options, and records what is removed."""

    name: str
    features: Features
    forgotten: list[str] = field(default_factory=list)

    def prepare(self, launch: Launch) -> Launch:
        return replace(launch, options=(*launch.options, self.name))

    def join(self, launch: Launch) -> Launch:
        return replace(launch, options=(*launch.options, f"in {self.name}"))

    def usage(self, run: str) -> Usage | None:
        return None

    def is_empty(self, run: str) -> bool:
        return True

    def kill(self, run: str) -> None:
        pass

    def end(self, run: str) -> Ending:
        return NO_ENDING

    def forget(self, run: str) -> None:
        self.forgotten.append(run)

    def clean(self, known: Collection[str]) -> None:
        pass


def giving(*features: Feature) -> Builder:
    def build(setting: Setting) -> Iterator[Isolator]:
        name = ",".join(feature.value for feature in features)
        yield Recorder(name, frozenset(features))

    return build


def lacking(reason: str) -> Builder:
    def build(setting: Setting) -> Iterator[Isolator]:
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
        layers = assemble(flags("auto"), TOTAL, Path("/w"), builders, shim=SHIM)
    assert layers.features == {Feature.FILES}
    assert [(line["log_level"], line["event"], line["missing"]) for line in logs] == [
        ("warning", "isolation_reduced", {"cgroup": "the hierarchy is read-only"}),
        ("info", "isolation_not_offered", {"namespaces": "there is no bwrap"}),
    ]


def test_a_named_level_that_is_missing_is_an_error_with_the_reason() -> None:
    builders = {"cgroup": lacking("the hierarchy is read-only")}
    with pytest.raises(InvalidRequest, match="--isolation cgroup: the hierarchy is read-only"):
        assemble(flags("process", "cgroup"), TOTAL, Path("/w"), builders, shim=SHIM)


def test_levels_prepare_in_their_own_order_whatever_the_order_of_their_names() -> None:
    builders = {"cgroup": giving(Feature.MEMORY), "process": giving(Feature.FILES)}
    layers = assemble(flags("cgroup", "process"), TOTAL, Path("/w"), builders, shim=SHIM)
    assert layers.prepare(LAUNCH).options == ("files", "memory")
    assert assemble(flags("cgroup"), TOTAL, Path("/w"), builders, shim=SHIM).names == ("memory",)


def test_none_isolates_nothing() -> None:
    layers = assemble(
        flags("none"), TOTAL, Path("/w"), {"cgroup": giving(Feature.MEMORY)}, shim=SHIM
    )
    assert not layers.names
    assert not layers.features


def test_a_launch_that_needs_more_is_refused_before_anything_is_made() -> None:
    layers = assemble(
        flags("cgroup"), TOTAL, Path("/w"), {"cgroup": giving(Feature.MEMORY)}, shim=SHIM
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

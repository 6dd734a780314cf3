"""Settings of roles survive the wire, and malformed ones are refused."""

from __future__ import annotations

import pytest

from croupier.model.errors import InvalidRequest
from croupier.model.roles import RoleSettings
from croupier.v1 import operator_pb2 as pb
from croupier.v1.resources_pb2 import NamedScalar
from croupier.wire.roles import settings_from_wire, settings_to_wire


@pytest.mark.parametrize(
    "settings",
    [
        RoleSettings(),
        RoleSettings(
            1, {"gpus": 5000}, {"cpus": 4000, "mem": 0}, {"cpus": 4000, "disk": 0}, preemption=True
        ),
        RoleSettings(preemption=False),
    ],
)
def test_settings_survive_the_wire(settings: RoleSettings) -> None:
    wire = pb.RoleSettings.FromString(settings_to_wire(settings).SerializeToString())
    assert settings_from_wire(wire) == settings


def test_an_empty_message_is_the_default() -> None:
    assert settings_from_wire(pb.RoleSettings()) == RoleSettings()


@pytest.mark.parametrize(
    "wire",
    [
        pb.RoleSettings(weight_milli=0),
        pb.RoleSettings(weight_milli=-5),
        pb.RoleSettings(weight_milli=2**63 - 1),
        pb.RoleSettings(preemption=pb.Preemption.ValueType(7)),
        pb.RoleSettings(limit=[NamedScalar(name="cpus", milli=-1)]),
        pb.RoleSettings(limit=[NamedScalar(name="", milli=1)]),
        pb.RoleSettings(limit=[NamedScalar(name="cpus", milli=1)] * 2),
        pb.RoleSettings(guarantee=[NamedScalar(name=f"r{i}", milli=1) for i in range(70)]),
        pb.RoleSettings(resource_weights=[NamedScalar(name="cpus", milli=0)]),
        pb.RoleSettings(
            guarantee=[NamedScalar(name="cpus", milli=2)], limit=[NamedScalar(name="cpus", milli=1)]
        ),
    ],
)
def test_malformed_settings_are_refused(wire: pb.RoleSettings) -> None:
    with pytest.raises(InvalidRequest):
        settings_from_wire(wire)

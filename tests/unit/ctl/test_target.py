"""Which master a command talks to."""

from __future__ import annotations

import pytest

from croupier.ctl.__main__ import master_after_command
from croupier.ctl.killing import kill_request
from croupier.ctl.target import LOCAL, Target
from croupier.model.errors import InvalidRequest


def test_a_target_is_one_address_or_several() -> None:
    assert str(Target.parse("m1")) == "m1:5050"
    assert str(Target.parse("m1:1, m2:2")) == "m1:1,m2:2"
    assert str(LOCAL) == "127.0.0.1:5050"
    with pytest.raises(InvalidRequest):
        Target.parse("m1:x")


def test_a_kill_may_override_the_grace() -> None:
    assert not kill_request("t1", "", None).HasField("kill_policy")
    assert kill_request("t1", "f1", 0.0).HasField("kill_policy")
    assert kill_request("t1", "f1", 1.5).kill_policy.grace_ms == 1500


@pytest.mark.parametrize("grace_s", [-1.0, float("nan"), float("inf"), 86_401.0])
def test_a_grace_that_cannot_be_is_refused(grace_s: float) -> None:
    with pytest.raises(InvalidRequest, match="--grace"):
        kill_request("t1", "", grace_s)


def test_ids_are_checked_before_they_are_sent() -> None:
    with pytest.raises(InvalidRequest, match="task id"):
        kill_request("a/b", "", None)
    with pytest.raises(InvalidRequest, match="framework id"):
        kill_request("t1", "a b", None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--master m agents --json", "agents --master m --json"),
        ("--master=m why f1", "why --master=m f1"),
        ("--master m weights", "weights --master m"),
        ("--master m weights --json", "weights --master m --json"),
        ("--master m quota set ads --limit cpus:4", "quota set --master m ads --limit cpus:4"),
        ("--master m run -- sh -c x", "run --master m -- sh -c x"),
        ("weights --master m", "weights --master m"),
        ("--master m", "--master m"),
        ("--master", "--master"),
        ("", ""),
    ],
)
def test_the_master_may_be_named_before_the_command(given: str, meant: str) -> None:
    assert master_after_command(given.split()) == meant.split()

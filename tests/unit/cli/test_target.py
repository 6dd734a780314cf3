"""Flags that several commands share, and the place of --master."""

from __future__ import annotations

import pytest

from croupier.cli.flags import LOCAL, Target, parse_grace_ms
from croupier.ctl.__main__ import connection_after_command
from croupier.ctl.app import load_commands
from croupier.ctl.commands.task import kill_request
from croupier.model.errors import InvalidRequest


def test_a_target_is_one_address_or_several() -> None:
    assert str(Target.parse("m1")) == "m1:5050"
    assert str(Target.parse("m1:1, m2:2")) == "m1:1,m2:2"
    assert str(LOCAL) == "127.0.0.1:5050"
    with pytest.raises(InvalidRequest):
        Target.parse("m1:x")


def test_a_kill_may_override_the_grace() -> None:
    assert not kill_request("t1", None).HasField("kill_policy")
    assert kill_request("t1", 0).HasField("kill_policy")
    assert kill_request("t1", parse_grace_ms("1.5")).kill_policy.grace_ms == 1500


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "86401", "25h"])
def test_a_grace_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_grace_ms(text)


def test_ids_are_checked_before_they_are_sent() -> None:
    with pytest.raises(InvalidRequest, match="task id"):
        kill_request("a/b", None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--master m agents --json", "agents --master m --json"),
        ("--master=m why f1", "why --master=m f1"),
        ("--master m weights", "weights --master m"),
        ("--master m weights --json", "weights --master m --json"),
        ("--master m quota set ads --limit cpus:4", "quota set --master m ads --limit cpus:4"),
        ("--master m run -- sh -c x", "run --master m -- sh -c x"),
        ("--master m token create join --uses 2", "token create join --master m --uses 2"),
        ("--master m token create", "token create --master m"),
        ("weights --master m", "weights --master m"),
        ("--master m", "--master m"),
        ("--master", "--master"),
        (
            "--tls-ca c --master=m --token-file t agents",
            "agents --tls-ca c --master=m --token-file t",
        ),
        ("", ""),
    ],
)
def test_the_master_may_be_named_before_the_command(given: str, meant: str) -> None:
    load_commands()
    assert connection_after_command(given.split()) == meant.split()

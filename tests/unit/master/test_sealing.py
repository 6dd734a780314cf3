"""Sealed secrets: what opens them, and what does not."""

from __future__ import annotations

import stat
import sys
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.flags import SealingFlags
from croupier.master.sealing import (
    KeyBox,
    KeyFile,
    Keys,
    SecretPlace,
    Unopenable,
    create_key_file,
    keys_of_command,
    open_task,
    parse_keys,
    seal_task,
)
from croupier.master.services.stream import is_local, is_private
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.secrets import WITHHELD, SealedValue, SecretValues
from croupier.model.task_checks import check_task
from croupier.sdk import Resources, Task

CANARY = "hunter2"
HERE = SecretPlace(FrameworkId("f1"), TaskId("t1"), "PASSWORD")


def key(number: int) -> str:
    return b64encode(bytes([number]) * 32).decode()


def keys(*numbers: int) -> Keys:
    return parse_keys("\n".join(map(key, numbers)), "test")


def box(*numbers: int) -> KeyBox:
    return KeyBox(lambda: keys(*numbers))


def test_a_sealed_value_opens_at_its_place() -> None:
    sealed = box(1).seal(HERE, CANARY)
    assert CANARY not in sealed.text
    assert box(1).open(HERE, sealed) == CANARY


def test_the_same_value_is_sealed_differently_each_time() -> None:
    assert box(1).seal(HERE, CANARY).text != box(1).seal(HERE, CANARY).text


@pytest.mark.parametrize(
    "other",
    [
        replace(HERE, framework_id=FrameworkId("f2")),
        replace(HERE, task_id=TaskId("t2")),
        replace(HERE, name="OTHER"),
        # The parts must not run together.
        SecretPlace(FrameworkId("f"), TaskId("1t1"), "PASSWORD"),
    ],
)
def test_a_value_that_was_moved_to_another_place_does_not_open(other: SecretPlace) -> None:
    with pytest.raises(Unopenable, match="of another task"):
        box(1).open(other, box(1).seal(HERE, CANARY))


@pytest.mark.parametrize("at", [0, 12, -1])
def test_a_changed_byte_is_detected(at: int) -> None:
    sealed = box(1).seal(HERE, CANARY)
    content = bytearray(b64decode(sealed.text))
    content[at] ^= 1
    with pytest.raises(Unopenable, match="damaged"):
        box(1).open(HERE, replace(sealed, text=b64encode(content).decode()))


@pytest.mark.parametrize("text", ["-", "AAAA", "\u00e9"])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(Unopenable, match="damaged"):
        box(1).open(HERE, SealedValue(keys(1)[0].key_id, text))


def test_a_lost_key_is_named_and_the_value_is_not() -> None:
    sealed = box(1).seal(HERE, CANARY)
    with pytest.raises(Unopenable, match="which this master does not have") as refused:
        box(2).open(HERE, sealed)
    assert sealed.key_id in str(refused.value)
    assert CANARY not in str(refused.value)


def test_a_withheld_value_does_not_open() -> None:
    with pytest.raises(Unopenable, match="not stored"):
        box(1).open(HERE, WITHHELD)


def test_after_a_rotation_old_values_open_and_new_ones_use_the_new_key() -> None:
    old = box(1).seal(HERE, CANARY)
    rotated = box(2, 1)
    assert rotated.open(HERE, old) == CANARY
    assert rotated.seal(HERE, CANARY).key_id == keys(2)[0].key_id != old.key_id


def test_without_keys_nothing_is_sealed_or_opened() -> None:
    with pytest.raises(InvalidRequest, match="--secrets-key-file"):
        KeyBox().seal(HERE, CANARY)
    with pytest.raises(Unopenable):
        KeyBox().open(HERE, box(1).seal(HERE, CANARY))


def test_a_task_is_sealed_and_opened_as_a_whole() -> None:
    values = SecretValues({"A": "1", "B": "2"})
    task = Task(["true"], resources=Resources.parse("cpus:1"), task_id="t1").info
    sealed = seal_task(box(1), FrameworkId("f1"), task, values)
    check_task(sealed)
    assert open_task(box(1), FrameworkId("f1"), sealed) == values
    with pytest.raises(Unopenable):
        open_task(box(1), FrameworkId("f2"), sealed)


@pytest.mark.parametrize(
    "text", ["", "# none\n", "hunter2", key(1)[:-4], "\n".join(map(key, range(17)))]
)
def test_text_without_keys_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_keys(text, "keys")
    assert not text or text not in str(refused.value)


def test_a_key_file_is_created_once_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    create_key_file(path)
    first = path.read_text()
    create_key_file(path)
    assert path.read_text() == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(KeyFile(path)()) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    create_key_file(path)
    path.chmod(0o640)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        KeyFile(path)


def test_a_changed_key_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    create_key_file(path)
    source = KeyFile(path)
    path.write_text(key(1) + "\n" + path.read_text())
    assert source()[0] == keys(1)[0]
    path.write_text("broken")
    assert len(source()) == 2
    path.unlink()
    assert len(source()) == 2


def test_masters_that_share_a_store_do_not_make_keys_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    flags = SealingFlags(secrets_key_file=path)
    etcd = StoreChoice.parse("etcd://127.0.0.1:2379/croupier")
    with pytest.raises(InvalidRequest, match="same keys"):
        MasterConfig(store=etcd, sealing=flags).secret_box()
    assert not path.exists()
    MasterConfig(sealing=flags).secret_box()
    assert path.exists()


def test_one_source_of_keys_is_enough(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="give one of"):
        SealingFlags(secrets_key_file=tmp_path / "keys", secrets_key_command="true")


def test_a_command_prints_the_keys() -> None:
    assert keys_of_command(f"{sys.executable} -S -c \"print('{key(3)}')\"") == keys(3)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sh -c 'echo no such key >&2; exit 3'", "failed with 3: no such key"),
        ("sleep 30", "did not end"),
        ("/no/such/program", "No such file"),
        ("'", "quotation"),
        ("true", "0 keys"),
    ],
)
def test_a_command_that_prints_no_keys_is_refused(line: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        keys_of_command(line, timeout_s=0.2 if line.startswith("sleep") else 10.0)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:127.0.0.1:4711", True),
        ("ipv4:10.0.0.1:4711", False),
        ("ipv6:%5B::1%5D:4711", True),
        ("ipv6:[::1]:4711", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:1", True),
        ("ipv6:%5B2001:db8::1%5D:4711", False),
        ("unix:/run/croupier", True),
        ("unknown", False),
        ("", False),
    ],
)
def test_which_peers_are_on_this_machine(peer: str, expected: bool) -> None:
    assert is_local(peer) is expected


class Connection:
    """The part of a gRPC context that names the connection."""

    def __init__(self, peer: str, security: bytes) -> None:
        self._peer, self._security = peer, security

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [self._security]}


@pytest.mark.parametrize(
    ("peer", "security", "expected"),
    [
        ("ipv4:10.0.0.1:1", b"ssl", True),
        ("ipv4:10.0.0.1:1", b"insecure", False),
        ("ipv4:127.0.0.1:1", b"insecure", True),
    ],
)
def test_a_connection_is_private_if_it_is_encrypted_or_local(
    peer: str, security: bytes, expected: bool
) -> None:
    context: Any = Connection(peer, security)
    assert is_private(context) is expected

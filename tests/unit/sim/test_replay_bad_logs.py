"""Logs that are damaged, malicious, or no logs at all."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from croupier.model.errors import CroupierError
from croupier.sim.replay.change import Change
from croupier.sim.replay.reader import BadLog
from tests.harness.recorded import sealed
from tests.harness.replayed import look, printed


def test_an_incomplete_last_line_is_ignored(tmp_path: Path, log: Path) -> None:
    data = log.read_bytes()
    copy = tmp_path / "log"
    copy.write_bytes(data[:-40])
    found = look(copy)
    assert found.verification.digest is not None
    assert found.reader.notes == [
        f"{copy}, line {data.count(bytes([10]))} is cut off, and was left out"
    ]


def test_a_broken_line_is_named(tmp_path: Path, log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    copy = tmp_path / "log"
    for broken, why in (
        (b"{\n", "not a line of JSON"),
        (sealed(b'{"at":0,"event":{"kind":"Nothing"}}'), "unknown kind 'Nothing'"),
        (lines[0], "a head must be the first line"),
        (sealed(lines[5].replace(b'"at":0.0', b'"at":-1.0')), "before the one that precedes it"),
        (sealed(b'{"at":0,"event":{"kind":"AgentStopped","session":1}}'), "'message' is missing"),
        (re.sub(rb',"crc":"[0-9a-f]{8}"', b"", lines[5]), "its checksum is missing"),
    ):
        copy.write_bytes(b"".join([*lines[:30], broken, *lines[31:]]))
        with pytest.raises(CroupierError, match=f"log, line 31.*{why}|{why}"):
            look(copy)


def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(BadLog, match="No such file"):
        look(path)
    path.write_bytes(b"")
    with pytest.raises(BadLog, match="is empty"):
        look(path)
    path.write_bytes(b'{"head":{"format":99}}\n')
    with pytest.raises(
        BadLog, match="line 1: a log of format 99; this program reads formats up to"
    ):
        look(path)
    path.write_bytes(sealed(b'{"at":0,"event":{"kind":"TimePassed"}}'))
    with pytest.raises(BadLog, match="not the head of an event log"):
        look(path)
    path.write_bytes(b"\x00\xff" * 1000)
    with pytest.raises(BadLog, match="line 1"):
        look(path)
    with pytest.raises(BadLog, match="Is a directory"):
        look(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadLog, match="not a regular file"):
        look(tmp_path / "pipe")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"policy": "luck"},
        {"rules": {"order": "no"}},
        {"settings": {"completed_tasks": -1}},
        {"roles": {"a": {"weight": 0}}},
    ],
)
def test_a_head_with_unusable_settings_is_refused(
    tmp_path: Path, log: Path, spoilt: dict[str, object]
) -> None:
    lines = log.read_text().splitlines(keepends=True)
    head = json.loads(lines[0])
    head["head"] |= spoilt
    path = tmp_path / "log"
    first = sealed(json.dumps(head, separators=(",", ":")).encode())
    path.write_bytes(first + "".join(lines[1:]).encode())
    with pytest.raises(BadLog, match="no master can begin"):
        look(path)


def test_a_log_without_events_is_replayed(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    text, _ = printed(look(path, Change.parse(["ads=2"], [], None)))
    assert "0 events in 0.0 s" in text


def test_control_characters_are_escaped(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "log"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    changed = sealed(first.replace(b'"version":"test"', b'"version":"\\u001b[31m"'))
    path.write_bytes(b"".join([changed, *rest]))
    text, _ = printed(look(path))
    assert "\x1b" not in text
    assert "version \\x1b[31m" in text

"""Audit lines, and the file that they go to."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from croupier.master.access.audit import VERSION, Audit, AuditFile, AuditOutcome, line_fields
from croupier.master.access.caller import Call, Caller, CredentialKind
from croupier.model.errors import Unavailable
from croupier.model.principal import Principal, PrincipalName
from croupier.process.durable_files import write_all
from tests.harness.eventually import eventually

PAGE = Path(__file__).parents[3] / "docs/security.md"


CALLER = Caller(
    Principal(PrincipalName("client/a")), CredentialKind.TOKEN, "12345678", host="ipv4:10.0.0.1"
)


def line(method: str = "S/M", about: str = "agent:a1") -> dict[str, str | int]:
    call = Call(f"/croupier.v1.{method}", CALLER, 7, about, rule="admin")
    return line_fields(call, AuditOutcome.ALLOW, "OK", 1_700_000_000_123)


class Clock:
    at = 0.0

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return 5


def methods(path: Path) -> list[str]:
    return [json.loads(text)["method"] for text in path.read_text().splitlines() if text]


def test_a_line_has_the_documented_fields(tmp_path: Path) -> None:
    found = line(about="x\n" * 1000)
    assert found["version"] == VERSION
    assert found["time"] == "2023-11-14T22:13:20.123Z"
    assert len(str(found["object"])) == 512
    page = PAGE.read_text()
    assert [name for name in found if f"`{name}`" not in page] == []
    file = AuditFile(tmp_path / "audit")
    file.put(found)
    file.close()
    (text,) = (tmp_path / "audit").read_text().splitlines()
    assert json.loads(text) == found


def test_lines_are_appended_to_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for method in ("A", "B"):
        file = AuditFile(path)
        file.put(line(method))
        file.close()
    assert methods(path) == ["A", "B"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.lost == 0


def test_a_large_file_is_replaced_and_the_oldest_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.master.access.audit.FILES", 3)
    monkeypatch.setattr("croupier.process.queue_writer.BATCH", 1)
    path = tmp_path / "audit"
    file = AuditFile(path, file_bytes=10)
    for number in range(5):
        file.put(line(str(number)))
    file.close()
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == ["audit.000004", "audit.000005"]
    assert methods(tmp_path / "audit.000005") == ["4"]


async def test_a_full_disk_loses_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.process.queue_writer.RETRY_S", 0.01)
    is_full = True

    def write(fd: int, data: bytes) -> None:
        if is_full:
            # A part of it is written.
            os.write(fd, data[:5])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, data)

    path = tmp_path / "audit"
    with capture_logs() as logs:
        file = AuditFile(path, write=write)
        file.put(line("lost"))
        await eventually(lambda: file.lost == 1)
        is_full = False
        file.put(line("kept"))
        file.close()
    last = path.read_text().splitlines()[-1]
    assert json.loads(last)["method"] == "kept"
    assert [each["event"] for each in logs] == ["audit_log_failed", "audit_log_recovered"]
    assert logs[1]["lines_lost"] == 1
    assert logs[0]["reason"] == "No space left on device"


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(tmp_path / "elsewhere")
    for path in (fifo, link, tmp_path / "missing" / "audit"):
        with pytest.raises(Unavailable, match="--audit-log"):
            AuditFile(path)


def test_one_address_without_credentials_cannot_fill_the_log() -> None:
    clock, lines = Clock(), list[dict[str, str | int]]()
    audit = Audit(clock, cast("AuditFile", SimpleNamespace(put=lines.append)), is_on=True)

    def refuse(caller: Caller) -> None:
        audit.write(Call("S/M", caller), AuditOutcome.DENY, "UNAUTHENTICATED")

    first, second = Caller(host="ipv4:1.1.1.1"), Caller(host="ipv4:2.2.2.2")
    for _ in range(60):
        refuse(first)
    assert (len(lines), audit.suppressed) == (51, 9)
    refuse(second)
    refuse(CALLER)
    assert len(lines) == 53
    clock.at = 1.0
    refuse(first)
    assert len(lines) == 54
    assert lines[0]["time"] == "1970-01-01T00:00:00.005Z"


def test_the_log_of_the_master_leaves_out_routine_lines() -> None:
    audit = Audit(Clock(), is_on=True)
    with capture_logs() as logs:
        audit.write(Call("ACCEPT", CALLER, is_routine=True), AuditOutcome.ALLOW, "OK")
        audit.write(Call("KILL", CALLER), AuditOutcome.ALLOW, "OK")
    assert [each["method"] for each in logs] == ["KILL"]
    assert "time" not in logs[0]


def test_nothing_is_audited_while_it_is_off() -> None:
    audit = Audit(Clock(), is_on=False)
    with capture_logs() as logs:
        audit.write(Call("S/M", CALLER), AuditOutcome.ALLOW, "OK")
    assert (audit.suppressed, logs) == (0, [])

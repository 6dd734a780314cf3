"""The parts around a service's decisions: probes, control socket, state."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from croupier.apps.service import state_dir as state_module
from croupier.apps.service.control import ask, listening
from croupier.apps.service.core.rules import Check, Health, Rules, Version
from croupier.apps.service.core.state import Service
from croupier.apps.service.health_checks import probe
from croupier.apps.service.state_dir import StateDir
from croupier.model.errors import Conflict, InvalidRequest, Unavailable


class Web:
    """A server on a free port that answers `answer`, or never if that is None."""

    def __init__(self, answer: bytes | None, delay_s: float = 0.0) -> None:
        self.answer, self.delay_s, self.port = answer, delay_s, 0
        self.asked = b""

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked = await reader.readuntil(b"\r\n\r\n")
            if self.answer is None:
                await reader.read()
            for byte in self.answer or b"":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(self.delay_s)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


def http(timeout_s: float = 5.0) -> Health:
    return Health(Check.HTTP, path="/up?x=1", timeout_s=timeout_s)


class TestProbes:
    @pytest.mark.parametrize(
        ("answer", "passes", "text"),
        [
            (b"HTTP/1.1 200 OK\r\n\r\n", True, "HTTP 200"),
            (b"HTTP/1.0 302 Found\r\n\r\n", True, "HTTP 302"),
            (b"HTTP/1.1 503 No\r\n\r\n", False, "HTTP 503"),
            (b"SSH-2.0-x\r\n", False, "not HTTP"),
            (b"", False, "not HTTP"),
            (b"x" * 20000, False, ""),
        ],
    )
    async def test_http(self, answer: bytes, passes: bool, text: str) -> None:
        async with Web(answer) as web:
            passed, said = await probe(http(), "127.0.0.1", web.port)
        assert (passed, text in said) == (passes, True)
        assert web.asked.startswith(b"GET /up?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")

    @pytest.mark.parametrize(("answer", "delay_s"), [(None, 0.0), (b"HTTP/1.1 200 OK\r\n", 1.0)])
    async def test_a_server_that_hangs_or_drips_fails(
        self, answer: bytes | None, delay_s: float
    ) -> None:
        async with Web(answer, delay_s) as web:
            assert await probe(http(0.2), "127.0.0.1", web.port) == (
                False, "no answer within 0.2 s",
            )  # fmt: skip

    async def test_tcp(self) -> None:
        async with Web(b"") as web:
            health = Health(Check.TCP)
            assert (await probe(health, "127.0.0.1", web.port))[0]
        passed, said = await probe(health, "127.0.0.1", 1)
        assert not passed
        assert said


async def test_the_control_socket_answers_in_a_deep_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)

    async def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "no":
            raise Conflict("not now")
        return {"echo": request["do"]}

    with pytest.raises(Unavailable):
        await ask(deep, {"do": "x"})
    async with listening(deep, answer):
        assert (deep / "control.sock").stat().st_mode & 0o777 == 0o600
        assert (await ask(deep, {"do": "x" * 100_000}))["echo"] == "x" * 100_000
        with pytest.raises(Conflict, match="not now"):
            await ask(deep, {"do": "no"})
        with pytest.raises(InvalidRequest, match="malformed"):
            await ask(deep, {"what": "no"})
    with pytest.raises(Unavailable):
        await ask(deep, {"do": "x"})


def saved_web() -> Service:
    version = Version(1, "d", Health(Check.TCP), {"task": {"shell": "x"}, "ports": 1})
    service = Service.create("web", "abc", Rules(instances=3), version, 5.0, role="ads")
    service.framework_id = "F1"
    return service


class TestStateDir:
    def test_it_reads_what_it_wrote(self, tmp_path: Path) -> None:
        directory = StateDir(tmp_path / "base", "web")
        directory.make()
        assert directory.load() is None
        directory.save(saved_web())
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert directory.state_file.stat().st_mode & 0o777 == 0o600
        again = directory.load()
        assert again is not None
        assert (again.role, again.framework_id, again.rules.instances) == ("ads", "F1", 3)

    def test_one_process_has_the_lock(self, tmp_path: Path) -> None:
        first, second = StateDir(tmp_path, "web"), StateDir(tmp_path, "web")
        first.make()
        assert first.holder() == 0
        assert first.lock()
        assert not second.lock()
        assert second.holder() == os.getpid()
        first.unlock()
        assert second.lock()
        second.unlock()

    def test_a_full_disk_is_one_line_and_keeps_the_old_state(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = StateDir(tmp_path, "web")
        directory.make()
        saved = saved_web()
        directory.save(saved)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(state_module, "replace_file", full)
        saved.framework_id = "F2"
        with pytest.raises(Unavailable, match=r"cannot write the state in .*: No space left") as e:
            directory.save(saved)
        assert "\n" not in str(e.value)
        kept = directory.load()
        assert kept is not None
        assert kept.framework_id == "F1"

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "null", '{"schema": 1}', '{"schema": 1, "service": 5}']
    )
    def test_a_damaged_file_is_one_line(self, tmp_path: Path, text: str) -> None:
        directory = StateDir(tmp_path, "web")
        directory.make()
        directory.state_file.write_text(text)
        with pytest.raises(Unavailable, match="is damaged") as caught:
            directory.load()
        assert "\n" not in str(caught.value)

    def test_every_truncation_is_damage_and_a_newer_schema_is_named(self, tmp_path: Path) -> None:
        directory = StateDir(tmp_path, "web")
        directory.make()
        directory.save(saved_web())
        whole = directory.state_file.read_text()
        for length in range(0, len(whole), 37):
            directory.state_file.write_text(whole[:length])
            with pytest.raises(Unavailable, match="is damaged"):
                directory.load()
        directory.state_file.write_text(json.dumps({**json.loads(whole), "schema": 2}))
        with pytest.raises(Unavailable, match="newer release"):
            directory.load()

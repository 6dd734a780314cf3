"""The framework of a service against a master in memory."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.apps.job_file.section import section_of_text
from croupier.apps.service import state_dir as state_module
from croupier.apps.service.control import apply
from croupier.apps.service.controller import Controller
from croupier.apps.service.core.state import Service
from croupier.apps.service.file import ServiceFile, read_service
from croupier.apps.service.state_dir import StateDir
from croupier.apps.service.status import Journal
from croupier.cli.flags import Target
from croupier.process.durable_files import replace_file
from croupier.sdk import Conflict, TaskState
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually

TEXT = """\
name = "web"
instances = 2
ports = 2
[task]
shell = "run"
resources = "cpus:1;mem:64MB"
[update]
settle = 0
"""
OFFER = "cpus:1;mem:64MB;ports:[31000-31001]"


def file_of(text: str = TEXT) -> ServiceFile:
    return read_service(section_of_text(text))


def new(directory: StateDir) -> Service:
    file = file_of()
    directory.make()
    return Service.create("web", "abc", file.rules, file.version, 0.0, role=file.role)


@asynccontextmanager
async def running(
    saved: Service, directory: StateDir, master: FakeMaster
) -> AsyncIterator[Controller]:
    controller = Controller(saved, directory, Journal("web"), Target.parse(master.address))
    async with controller.serving(controller.tick()):
        await master.subscribed()
        await eventually(lambda: controller.now() >= controller.service.hold_until)
        yield controller
    controller.save_last()


async def test_instances_get_ports_and_survive_the_controller(tmp_path: Path) -> None:
    directory = StateDir(tmp_path, "web")
    async with FakeMaster() as master:
        async with running(new(directory), directory, master) as controller:
            master.offer(OFFER)
            call = await master.next_call("accept")
            task = call.tasks[0]
            assert task.command.environment["CROUPIER_INSTANCE"] == "0"
            assert "ports:[31000-31001]" in str(task.resources)
            await master.update(task.task_id, TaskState.RUNNING)
            service = controller.service
            await eventually(lambda: service.is_up(0, controller.now()))
        saved = StateDir(tmp_path, "web").load()
        assert saved is not None
        assert saved.framework_id == controller.framework_id
        assert list(saved.instances) == [task.task_id]
        async with running(saved, directory, master) as again:
            assert again.framework_id == controller.framework_id
            assert saved.is_up(0, again.now())
            master.offer(OFFER, agent_id="a2")
            second = await master.next_call("accept")
            while not second.tasks:
                second = await master.next_call("accept")
            assert second.tasks[0].task_id.startswith("web-1-v1-")


async def test_nothing_is_launched_that_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = StateDir(tmp_path, "web")
    is_full = asyncio.Event()

    def write(path: Path, data: bytes) -> None:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(path, data)

    monkeypatch.setattr(state_module, "replace_file", write)
    async with FakeMaster() as master, running(new(directory), directory, master) as controller:
        is_full.set()
        master.offer(OFFER)
        said = ""

        def has_said() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return "No space left" in said

        await eventually(has_said)
        assert not [call for call in master.calls if call.kind == "accept" and call.tasks]
        is_full.clear()
        call = await master.next_call("accept")
        assert call.tasks[0].task_id in directory.state_file.read_text()
        said += capsys.readouterr().out
        assert said.count("No space left") == 1
        assert controller.service.instances


async def test_a_file_of_another_service_or_role_is_refused(tmp_path: Path) -> None:
    directory = StateDir(tmp_path, "web")
    async with FakeMaster() as master, running(new(directory), directory, master) as controller:
        with pytest.raises(Conflict, match="of service other"):
            apply(controller, file_of(TEXT.replace('"web"', '"other"')))
        with pytest.raises(Conflict, match="runs in role"):
            apply(controller, file_of('role = "ads"\n' + TEXT))
        assert not apply(controller, file_of())
        assert apply(controller, file_of(TEXT.replace('"run"', '"walk"')))
        assert controller.service.target == 2

"""The process of a controller: from the state on disk to its end."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import closing
from functools import partial
from typing import Any, Final

from croupier.apps.controller.process import first
from croupier.apps.service.control import answer_about, apply, listening
from croupier.apps.service.controller import Controller, framework_name
from croupier.apps.service.core import events
from croupier.apps.service.core.state import Service
from croupier.apps.service.file import ServiceFile
from croupier.apps.service.state_dir import StateDir
from croupier.apps.service.status import Journal
from croupier.cli.connection import connected, missing_credential, objects
from croupier.cli.flags import Target
from croupier.cli.signals import EndSignals
from croupier.model.errors import Conflict, FailedOver, PermissionDenied, Removed, Unavailable
from croupier.net.task_scope import end
from croupier.v1 import operator_pb2 as pb

# A controller that was killed is still connected for a moment.
GONE_S: Final = 15.0
ASK_AGAIN_S: Final = 1.0


def _is_connected(copy: pb.FrameworkView) -> bool:
    return copy.state != "disconnected"


def _text_of(copy: pb.FrameworkView) -> str:
    """Return a description of the controller or instances, for people."""
    framework = copy.framework
    if _is_connected(copy):
        return f"a controller on {framework.hostname} (framework {framework.framework_id})"
    return f"{copy.tasks} instances without a controller (framework {framework.framework_id})"


class ControllerRun:
    """One run of a controller, whose lock is held."""

    def __init__(
        self,
        directory: StateDir,
        target: Target,
        file: ServiceFile | None,
        *,
        takes_over: bool = False,
    ) -> None:
        """Apply `file`; None ends the service. With `takes_over`, replace another controller."""
        self._directory, self._target = directory, target
        self._file, self._takes_over = file, takes_over
        self._journal = Journal(directory.name)

    async def to_the_end(self) -> int:
        """Run until the service is stopped, a signal arrives, or the session ends.

        Returns:
            The exit code.

        Raises:
            CroupierError: if it cannot start, or the master ends its session.
        """
        with closing(EndSignals()) as signals:
            signalled = asyncio.create_task(signals.first())
            preparing = asyncio.create_task(self._prepare())
            try:
                await first(preparing, signalled)
                if not preparing.done():
                    return 0
                service, adopts = preparing.result()
                return await self._serve(service, signalled, adopts=adopts)
            finally:
                await end(preparing, signalled)

    async def _prepare(self) -> tuple[Service, bool]:
        """Return the state to continue, and whether there are instances that it does not know."""
        service = self._directory.load()
        if service is not None and service.is_superseded and not self._takes_over:
            raise Conflict(
                f"another controller has taken over service {service.name}: use --takeover"
                " to run it here"
            )
        found = await self._find(service)
        if service is None or not service.framework_id:
            service = self._new(service)
            if found is not None:
                service.framework_id = found.framework.framework_id
        service.is_superseded = False
        self._directory.save(service)
        return service, found is not None

    def _new(self, old: Service | None) -> Service:
        file = self._file
        if old is not None:
            # It was stopped; the versions that it ran are kept.
            old.role = old.role if file is None else file.role
            old.instances.clear()
            old.token = secrets.token_hex(3)
            return old
        if file is None:
            raise Conflict("the service was never applied on this machine")
        token = secrets.token_hex(3)
        return Service.create(file.name, token, file.rules, file.version, 0.0, role=file.role)

    async def _find(self, service: Service | None) -> pb.FrameworkView | None:
        """Return the framework of another controller to take over.

        Raises Conflict if another controller runs the service, and is not to be replaced.
        """
        name = self._directory.name
        own = "" if service is None else service.framework_id
        deadline = asyncio.get_running_loop().time() + GONE_S
        while True:
            copies = await self._copies(name, waits=not own)
            mine = [each for each in copies if each.framework.framework_id == own]
            others = [each for each in copies if each.framework.framework_id != own]
            if others and own:
                raise Conflict(
                    f"service {name} also has {_text_of(others[0])}: end that first (croupier"
                    f" framework teardown {others[0].framework.framework_id})"
                )
            if others and self._takes_over:
                if len(others) > 1:
                    ids = ", ".join(each.framework.framework_id for each in others)
                    raise Conflict(f"service {name} has several frameworks: {ids}")
                return others[0]
            if others:
                raise Conflict(
                    f"service {name} already has {_text_of(others[0])}, of another state directory:"
                    " --takeover takes it over"
                )
            if self._takes_over or not any(map(_is_connected, mine)):
                return None
            if asyncio.get_running_loop().time() > deadline:
                raise Conflict(
                    f"service {name} already has {_text_of(mine[0])}: --takeover takes it over"
                )
            await asyncio.sleep(ASK_AGAIN_S)

    async def _copies(self, name: str, *, waits: bool) -> list[pb.FrameworkView]:
        """Return the frameworks of the service that have a controller or tasks.

        With `waits`, wait for a master; without one there are none otherwise.
        """
        has_told, missing = False, missing_credential(self._target)
        while True:
            try:
                async with connected(self._target) as master:
                    return [
                        each
                        async for each in objects(master, "frameworks")
                        if each.framework.name == framework_name(name)
                        and (_is_connected(each) or each.tasks)
                    ]
            except PermissionDenied:
                self._journal.write("may not list frameworks: other copies are not looked for")
                return []
            except Unavailable as error:
                if not has_told:
                    self._journal.write(f"waits for a master: {error}{missing.advice()}")
                if not waits:
                    return []
                has_told = True
                await asyncio.sleep(ASK_AGAIN_S)

    async def _serve(self, service: Service, signalled: asyncio.Task[Any], *, adopts: bool) -> int:
        controller = Controller(
            service, self._directory, self._journal, self._target, adopts=adopts
        )
        file = self._file
        if file is None:
            service.is_stopping = True
        elif events.is_rejected(service, file.version.digest):
            self._journal.write(
                f"the file is version {service.rollout.version}, which was rolled back;"
                " apply it again while the controller runs to try it again"
            )
        else:
            apply(controller, file)
        self._journal.write(
            f"the controller runs: version {service.target}, {service.rules.instances} instances"
        )
        answer = partial(answer_about, controller, self._journal)
        async with listening(self._directory.path, answer):
            try:
                async with controller.serving(controller.tick()):
                    await first(signalled, controller.over)
                    return await self._ended(controller)
            finally:
                controller.save_last()

    async def _ended(self, controller: Controller) -> int:
        """Report why the controller ended; return the exit code."""
        service = controller.service
        try:
            if controller.over.done():
                controller.over.result()
        except FailedOver:
            service.is_superseded = True
            raise Conflict(f"another controller has taken over service {service.name}") from None
        except Removed as error:
            service.framework_id = ""
            raise Unavailable(f"{error}; apply the file again to start anew") from None
        if controller.is_stopped:
            await controller.stop(teardown=True)
            service.framework_id = ""
            service.instances.clear()
            # Durable before it is told: who waits for the word may remove the directory.
            controller.save_last()
            self._journal.write("stopped")
            return 0
        count = len(service.instances)
        self._journal.write(
            f"the controller ends; {count} instances keep running. `croupier service apply`"
            " continues, `croupier service stop` ends them"
        )
        return 0

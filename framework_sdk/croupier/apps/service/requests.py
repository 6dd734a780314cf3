"""Requests of commands to the controller of a service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from croupier.apps.job_file import Section
from croupier.apps.service.control import Answer
from croupier.apps.service.controller import Controller
from croupier.apps.service.core import commands
from croupier.apps.service.file import ServiceFile, read_service
from croupier.apps.service.journal import Journal
from croupier.apps.service.status import service_view
from croupier.model.errors import Conflict, InvalidRequest


class Requests:
    """Changes a service, and answers about it."""

    def __init__(self, controller: Controller, journal: Journal) -> None:
        self._controller, self._journal = controller, journal

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Do what the request asks, and answer when it is durable.

        Raises:
            CroupierError: if it is refused.
        """
        controller, before = self._controller, self._journal.last
        service, now = controller.service, controller.now()
        more: Answer = {}
        match request.get("do"):
            case "status":
                view = service_view(controller.saved, now, controller_pid=os.getpid())
                since = int(request.get("since", before))
                return {"status": view, "lines": self._journal.since(since), "last": before}
            case "apply":
                more["is_update"] = self.apply(read_service(Section(request["tables"])))
            case "scale":
                commands.scale(service, int(request["instances"]))
            case "rollout":
                self._rollout(str(request["action"]))
            case "stop":
                self.stop()
            case "release":
                controller.finish()
                return {}
            case other:
                raise InvalidRequest(f"the controller cannot {other!r}: is it an older release?")
        await controller.turn()
        return {**more, "version": service.target, "last": before}

    def apply(self, file: ServiceFile) -> bool:
        """Apply a newer file; return whether it starts an update.

        Raises:
            Conflict: if it is of another service, or names another role.
        """
        service, role = self._controller.service, self._controller.saved.role
        if file.name != service.name:
            raise Conflict(f"the file is of service {file.name}, not of {service.name}")
        if file.role != role:
            raise Conflict(
                f"service {service.name} runs in role {role}: stop it, and apply the file again, to"
                f" change that to {file.role}"
            )
        now = self._controller.now()
        return commands.apply(service, file.rules, file.digest, file.health, file.content, now)

    def rejects(self, file: ServiceFile) -> bool:
        """Return whether the file is the version that was rolled back last."""
        return commands.is_rejected(self._controller.service, file.digest)

    def stop(self) -> None:
        """End all instances, and then the service."""
        self._controller.service.is_stopping = True

    def _rollout(self, action: str) -> None:
        service, now = self._controller.service, self._controller.now()
        match action:
            case "restart":
                commands.restart(service, now)
            case "undo":
                commands.undo(service, now)
            case "pause" | "resume":
                commands.pause(service, is_paused=action == "pause")
            case _:
                raise InvalidRequest(f"{action!r} is not an action on an update")

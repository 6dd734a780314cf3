"""Whether another controller runs the same service elsewhere, as the master knows."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.ctl.connection import connected
from croupier.ctl.flags import Target
from croupier.ctl.lists import FRAMEWORKS, all_of
from croupier.ctl.service.controller import framework_name


@dataclass(frozen=True, slots=True)
class Found:
    """A framework of the service."""

    framework_id: str
    is_connected: bool
    hostname: str
    tasks: int

    @property
    def text(self) -> str:
        """What runs there, for people."""
        if self.is_connected:
            return f"a controller on {self.hostname} (framework {self.framework_id})"
        return f"{self.tasks} instances without a controller (framework {self.framework_id})"


async def other_copies(target: Target, service: str) -> list[Found]:
    """Return the frameworks of `service` that have a controller or tasks.

    Raises:
        CroupierError: if the master cannot be asked.
    """
    async with connected(target) as master:
        listed = await all_of(master, FRAMEWORKS)
    return [
        Found(
            each["framework_id"],
            each["state"] != "disconnected",
            each["hostname"],
            each["tasks"],
        )
        for each in listed
        if each["name"] == framework_name(service)
        and (each["state"] != "disconnected" or each["tasks"])
    ]

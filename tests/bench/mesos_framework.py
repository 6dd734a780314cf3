"""One framework, by the SDK or by `pymesos`: sdk|gateway ADDRESS TASKS."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from typing import Any, Final

AT_ONCE: Final = 4
CPUS: Final = 1


def run_sdk(address: str, total: int) -> None:
    """Run the tasks by the SDK."""
    from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus

    class Trues(Framework):
        launched = ended = 0

        async def on_offers(self, offers: list[Offer]) -> None:
            for offer in offers:
                room = min(AT_ONCE - (self.launched - self.ended), total - self.launched)
                room = min(room, offer.resources["cpus"] // (1000 * CPUS))
                if room <= 0:
                    await self.decline([offer], refuse_s=1.0)
                    continue
                unit = Resources.parse(f"cpus:{CPUS};mem:8MB")
                self.launched += room
                tasks = [Task(["/bin/true"], resources=unit) for _ in range(room)]
                await self.accept([offer], tasks, refuse_s=0.0)

        async def on_update(self, status: TaskStatus) -> None:
            if status.state.is_terminal:
                self.ended += 1
                if self.ended >= total:
                    await self.stop()

    framework = Trues(name="trues", master=address)
    if not total:
        return
    asyncio.run(framework.run())


def run_gateway(address: str, total: int) -> None:
    """Run the tasks by pymesos."""
    from pymesos import MesosSchedulerDriver, Scheduler

    class Trues(Scheduler):  # type: ignore[misc]
        launched = ended = 0
        ids = count(1)

        def resourceOffers(self, driver: Any, offers: list[Any]) -> None:  # noqa: N802
            for offer in offers:
                cpus = sum(
                    each["scalar"]["value"] for each in offer["resources"] if each["name"] == "cpus"
                )
                room = min(AT_ONCE - (self.launched - self.ended), total - self.launched)
                room = min(room, int(cpus // CPUS))
                if room <= 0:
                    driver.declineOffer(offer["id"], {"refuse_seconds": 1})
                    continue
                self.launched += room
                tasks = [self.task(offer) for _ in range(room)]
                driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0})

        def task(self, offer: Any) -> dict[str, Any]:
            resources = (("cpus", CPUS), ("mem", 8))
            return {
                "task_id": {"value": f"t{next(self.ids)}"},
                "name": "true",
                "agent_id": offer["agent_id"],
                "command": {"value": "/bin/true", "shell": False},
                "resources": [
                    {"name": name, "type": "SCALAR", "scalar": {"value": value}}
                    for name, value in resources
                ],
            }

        def statusUpdate(self, driver: Any, status: Any) -> None:  # noqa: N802
            if status["state"] == "TASK_FINISHED":
                self.ended += 1
                if self.ended >= total:
                    driver.stop()

    framework = {"user": "nobody", "name": "trues", "failover_timeout": 60}
    driver = MesosSchedulerDriver(Trues(), framework, address)
    if total:
        driver.run()


if __name__ == "__main__":
    {"sdk": run_sdk, "gateway": run_gateway}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))

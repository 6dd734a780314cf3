"""Persistent volumes of frameworks of Mesos are volumes of their role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from croupier.master.app import MasterDaemon
from croupier.master.config import StoreChoice
from croupier.mesos.fields import Json
from croupier.v1 import resources_pb2
from tests.harness.agents import running_agent
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, running_master
from tests.harness.mesos import RawScheduler, gateway, scalar, task
from tests.integration.mesos.test_holds import outcome

DISK = resources_pb2.Resources(cpus_milli=4_000, mem_milli=8_192_000, disk_milli=10_000)


def volume(persistence_id: str, mib: float, path: str = "data", **more: Any) -> Json:
    """Return a persistent volume of the role db."""
    disk = {
        "persistence": {"id": persistence_id},
        "volume": {"container_path": path, "mode": "RW"},
        **more,
    }
    return {**scalar("disk", mib), "role": "db", "reservation": {}, "disk": disk}


def operation(kind: str, resource: Json, operation_id: str) -> Json:
    """Return an operation on one resource."""
    field = "volumes" if kind in ("CREATE", "DESTROY") else "resources"
    return {
        "type": kind,
        "id": {"value": operation_id},
        kind.lower(): {field: [resource]},
    }


def launch(*tasks: Json) -> Json:
    """Return a LAUNCH."""
    return {"type": "LAUNCH", "launch": {"task_infos": tasks}}


def with_volume(offer: Json, task_id: str, line: str, resource: Json) -> Json:
    """Return a task that uses a volume."""
    made = task(offer, task_id, line)
    made["resources"].append(resource)
    return made


async def accept(scheduler: RawScheduler, offer: Json, *operations: Json) -> None:
    """Accept an offer with operations."""
    done = await scheduler.call("ACCEPT", offer_ids=[offer["id"]], operations=operations)
    assert done == (202, "")


async def unreserved(scheduler: RawScheduler) -> Json:
    """Return the next offer with unreserved CPUs; others are declined."""
    while True:
        offer = await scheduler.offer()
        if offer["resources"][0]["name"] == "cpus" and offer["resources"][0]["role"] == "*":
            return offer
        await scheduler.call("DECLINE", offer_ids=[offer["id"]])


def volumes_in(offer: Json) -> list[Json]:
    return [each for each in offer["resources"] if "disk" in each]


async def test_a_volume_stays_between_tasks_until_it_is_destroyed(
    master: MasterDaemon, scheduler: RawScheduler, tmp_path: Path
) -> None:
    async with running_agent(tmp_path, master.address):
        await scheduler.subscribe(roles=["db"])
        offer = await unreserved(scheduler)
        assert not volumes_in(offer)
        made = volume("app#data#1", 64)
        disk = {**scalar("disk", 64), "role": "db", "reservation": {}}
        writes = with_volume(offer, "writes", "echo hello > data/said", made)
        await accept(
            scheduler,
            offer,
            operation("RESERVE", disk, "one"),
            operation("CREATE", made, "two"),
            launch(writes),
        )
        assert [await outcome(scheduler) for _ in range(2)] == [
            ("one", "OPERATION_FINISHED"),
            ("two", "OPERATION_FINISHED"),
        ]
        await scheduler.update("TASK_FINISHED")
        # The volume took all of the reservation.
        (hold,) = master.driver.state.holds.values()
        assert hold.volume

        offer = await unreserved(scheduler)
        assert volumes_in(offer) == [made]
        again = volume("app#data#1", 64, path="other")
        await accept(
            scheduler, offer, launch(with_volume(offer, "reads", "grep hello other/said", again))
        )
        await scheduler.update("TASK_FINISHED")

        offer = await unreserved(scheduler)
        await accept(scheduler, offer, operation("DESTROY", made, "three"))
        assert await outcome(scheduler) == ("three", "OPERATION_FINISHED")
        assert not master.driver.state.holds
        await eventually(
            lambda: not list(tmp_path.glob("volumes/*/*/*")), what="the directory is removed"
        )
        await scheduler.call("REVIVE")
        # Offers that were made before list it still.
        while volumes_in(await unreserved(scheduler)):
            pass


async def test_what_cannot_be_a_volume_is_refused_alone(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles=["db"])
        await agent.register(resources=DISK, isolation=["volumes"])
        offer = await scheduler.offer()
        free = volume("b", 1)
        del free["role"], free["reservation"]
        two = operation("CREATE", volume("c", 1), "two")
        two["create"]["volumes"].append(volume("d", 1))
        created = {
            "unreserved": operation("CREATE", free, "unreserved"),
            "other-role": operation("CREATE", {**volume("e", 1), "role": "web"}, "other-role"),
            "no-id": operation("CREATE", volume("", 1), "no-id"),
            "no-path": operation("CREATE", volume("f", 1, path=""), "no-path"),
            "long-path": operation("CREATE", volume("g", 1, path="a/b"), "long-path"),
            "source": operation("CREATE", volume("h", 1, source={"type": "MOUNT"}), "source"),
            "too-large": operation("CREATE", volume("i", 100), "too-large"),
            "two": two,
            "unknown": operation("DESTROY", volume("j", 1), "unknown"),
            "good": operation("CREATE", volume("a", 1), "good"),
            "again": operation("CREATE", volume("a", 1), "again"),
        }
        other_size = with_volume(offer, "other-size", "true", volume("a", 2))
        fits = with_volume(offer, "fits", "true", volume("a", 1))
        await accept(scheduler, offer, *created.values(), launch(other_size, fits))
        outcomes = dict([await outcome(scheduler) for _ in created])
        finished = [name for name, state in outcomes.items() if state == "OPERATION_FINISHED"]
        assert finished == ["good"]
        assert outcomes.keys() == created.keys()
        status = await scheduler.update("TASK_ERROR")
        assert "of this size" in status["message"]
        launched = (await agent.next("launch")).launch.task
        assert (launched.task_id, launched.resources.disk_milli) == ("fits", 0)
        assert [(each.path, each.role) for each in launched.volumes] == [("data", "db")]


async def test_volumes_are_listed_by_a_later_master(tmp_path: Path) -> None:
    capabilities = [{"type": "RESERVATION_REFINEMENT"}]
    options: dict[str, Any] = {"mesos_listen": ANY_PORT, "store": StoreChoice(tmp_path / "store")}
    async with (
        running_master(**options) as master,
        RawAgent(master.address) as agent,
        RawScheduler(gateway(master)) as scheduler,
    ):
        await scheduler.subscribe(roles=["db"])
        await agent.register(resources=DISK, isolation=["volumes"])
        offer = await scheduler.offer()
        await accept(scheduler, offer, operation("CREATE", volume("a:b", 1), "one"))
        assert await outcome(scheduler) == ("one", "OPERATION_FINISHED")
    async with (
        running_master(**options) as master,
        RawAgent(master.address) as later,
        RawScheduler(gateway(master)) as scheduler,
    ):
        await later.register(resources=DISK, isolation=["volumes"], **agent.claim)
        # A framework in a role below may use it.
        await scheduler.subscribe(roles=["db/x"], capabilities=capabilities)
        (listed,) = volumes_in(await scheduler.offer())
        assert listed["reservations"] == [{"type": "DYNAMIC", "role": "db"}]
        assert listed["disk"] == volume("a:b", 1)["disk"]
        assert listed["scalar"] == {"value": 1.0}

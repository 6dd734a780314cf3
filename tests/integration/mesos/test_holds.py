"""Reservations of frameworks of Mesos are holds of their role."""

from __future__ import annotations

from croupier.master.app import MasterDaemon
from croupier.mesos.fields import Json
from tests.harness.masters import RawAgent
from tests.harness.mesos import RawScheduler, scalar, task


def operation(kind: str, cpus: float, operation_id: str = "") -> Json:
    """Return an operation on some CPUs."""
    made: Json = {"type": kind, kind.lower(): {"resources": [scalar("cpus", cpus)]}}
    return {**made, "id": {"value": operation_id}} if operation_id else made


async def reserved(scheduler: RawScheduler) -> Json:
    """Return the next offer of reserved resources; others are declined."""
    while True:
        offer = await scheduler.offer()
        if offer["resources"][0].get("reservation") is not None:
            return offer
        await scheduler.call("DECLINE", offer_ids=[offer["id"]])


async def outcome(scheduler: RawScheduler) -> tuple[str, str]:
    """Return the id and the state of the next operation."""
    event = await scheduler.next("UPDATE_OPERATION_STATUS")
    status = event["update_operation_status"]["status"]
    return status["operation_id"]["value"], status["state"]


async def test_reserved_resources_are_offered_used_and_released(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles=["db"])
        await agent.register()
        offer = await scheduler.offer()
        operations = [
            operation("RESERVE", 2, "one"),
            operation("RESERVE", 1000, "two"),
            operation("GROW_VOLUME", 1, "three"),
            {"type": "LAUNCH", "launch": {"task_infos": [task(offer, "t")]}},
        ]
        call = {"offer_ids": [offer["id"]], "operations": operations}
        assert await scheduler.call("ACCEPT", **call) == (202, "")
        assert (await agent.next("launch")).launch.task.task_id == "t"
        outcomes = {await outcome(scheduler) for _ in range(3)}
        assert outcomes == {
            ("one", "OPERATION_FINISHED"),
            ("two", "OPERATION_ERROR"),
            ("three", "OPERATION_ERROR"),
        }
        state = master.driver.state
        assert len(state.holds) == 1

        held = await reserved(scheduler)
        # The task takes half a CPU of what is reserved.
        assert held["resources"] == [{**scalar("cpus", 1.5), "role": "db", "reservation": {}}]
        wrong = [operation("UNRESERVE", 1, "four")]
        await scheduler.call("ACCEPT", offer_ids=[held["id"]], operations=wrong)
        assert await outcome(scheduler) == ("four", "OPERATION_ERROR")
        await scheduler.call("REVIVE")
        held = await reserved(scheduler)
        right = [operation("UNRESERVE", 1.5, "five")]
        await scheduler.call("ACCEPT", offer_ids=[held["id"]], operations=right)
        assert await outcome(scheduler) == ("five", "OPERATION_FINISHED")
        assert not state.holds


async def test_a_malformed_reservation_is_refused_alone(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles=["db"])
        await agent.register()
        offer = await scheduler.offer()
        twice = {"name": "cpus", "type": "SET", "set": {"item": ["a"]}}
        bad = operation("RESERVE", 1, "bad")
        bad["reserve"]["resources"].append(twice)
        launch = {"type": "LAUNCH", "launch": {"task_infos": [task(offer, "t")]}}
        await scheduler.call("ACCEPT", offer_ids=[offer["id"]], operations=[bad, launch])
        assert await outcome(scheduler) == ("bad", "OPERATION_ERROR")
        assert (await agent.next("launch")).launch.task.task_id == "t"


async def test_operations_of_a_refused_call_are_refused_with_it(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles=["db"])
        await agent.register()
        offer = await scheduler.offer()
        await scheduler.call("DECLINE", offer_ids=[offer["id"]])
        reserve = operation("RESERVE", 1, "late")
        await scheduler.call("ACCEPT", offer_ids=[offer["id"]], operations=[reserve])
        assert await outcome(scheduler) == ("late", "OPERATION_ERROR")


async def test_reservations_have_their_new_form_for_frameworks_that_know_it(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        capabilities = [{"type": "RESERVATION_REFINEMENT"}, {"type": "MULTI_ROLE"}]
        await scheduler.subscribe(roles=["db"], capabilities=capabilities)
        await agent.register()
        offer = await scheduler.offer()
        call = {"offer_ids": [offer["id"]], "operations": [operation("RESERVE", 2)]}
        await scheduler.call("ACCEPT", **call)
        while True:
            cpus = (await scheduler.offer())["resources"][0]
            if "reservations" in cpus:
                break
        assert cpus["reservations"] == [{"type": "DYNAMIC", "role": "db"}]
        assert cpus["allocation_info"] == {"role": "db"}


async def test_resources_are_reserved_for_the_role_of_their_offer_only(
    master: MasterDaemon, scheduler: RawScheduler
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles=["db"])
        await agent.register()
        offer = await scheduler.offer()
        reservations: dict[str, Json] = {
            "own": {"reservations": [{"type": "DYNAMIC", "role": "db"}]},
            "other": {"reservations": [{"type": "DYNAMIC", "role": "web"}]},
            "older": {"role": "web", "reservation": {}},
        }
        operations = [
            {
                "type": "RESERVE",
                "id": {"value": name},
                "reserve": {"resources": [{**scalar("cpus", 1), **reservation}]},
            }
            for name, reservation in reservations.items()
        ]
        await scheduler.call("ACCEPT", offer_ids=[offer["id"]], operations=operations)
        assert {await outcome(scheduler) for _ in range(3)} == {
            ("own", "OPERATION_FINISHED"),
            ("other", "OPERATION_ERROR"),
            ("older", "OPERATION_ERROR"),
        }
        assert len(master.driver.state.holds) == 1

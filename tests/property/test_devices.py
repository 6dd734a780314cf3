"""Each task has the devices that it asked for, and no device is idle that a queued task can use."""

from __future__ import annotations

from random import Random

from croupier.master.allocator import Rules
from croupier.master.core import calls
from croupier.master.core.events import Received
from croupier.model.devices import Device, DeviceRequest, Inventory, needs_of, slots_of
from croupier.model.ids import HoldId, OfferId
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo, TaskState
from tests.harness.effort import portion
from tests.harness.world import World, in_group, make_task, with_devices

STEPS = 60
AMOUNTS = ("0", "0.2", "0.25", "0.5", "1", "1", "2", "3")
ASKED = ("any", "a100", "v100", "/nvlink", "a100/nvlink")


def devices(rng: Random, host: int) -> tuple[Device, ...]:
    return tuple(
        Device(
            f"h{host}-{number}",
            type=rng.choice(("", "a100", "v100")),
            groups=(("nvlink", str(rng.randrange(2))),) if rng.random() < 0.8 else (),
            slots=rng.choice((1, 1, 2, 4, 5)),
        )
        for number in range(rng.randrange(7))
    )


def new_task(rng: Random, name: str) -> TaskInfo:
    amount = rng.choice(AMOUNTS)
    asked = rng.choice(ASKED) if "." in amount or (amount != "0" and rng.random() < 0.5) else ""
    return with_devices(make_task(name, f"cpus:0.1;gpus:{amount}"), asked)


class Cluster:
    """Hosts with devices, one framework that submits and one that accepts."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.made = rng, 0
        # Nothing is withheld from a task that fits.
        self.world = World(rules=Rules(hold_s=0, scarce=frozenset()))
        self.asked: dict[str, DeviceRequest | None] = {}
        # Slots that tasks had.
        self.seen: set[str] = set()
        self.hosts = [
            self.world.agent(
                "cpus:4;mem:4GB", f"h{host}", devices=devices(rng, host), features="groups"
            )
            for host in range(3)
        ]
        self.submits = self.world.framework("a", suppressed=True)
        self.accepts = self.world.framework("b")

    def names(self, number: int) -> list[str]:
        self.made += number
        return [f"t{each}" for each in range(self.made - number, self.made)]

    def step(self) -> None:
        rng, world = self.rng, self.world
        match rng.choice(("submit", "submit", "group", "accept", "hold", "end", "end", "time")):
            case "submit":
                self._submit([new_task(rng, name) for name in self.names(rng.randint(1, 3))])
            case "group":
                names = self.names(rng.randint(2, 3))
                self._submit([in_group(names[0], new_task(rng, name)) for name in names])
            case "accept" if world.offers(self.accepts):
                self._accept([new_task(rng, name) for name in self.names(2)])
            case "hold" if world.offers(self.accepts):
                held = Resources.parse(f"cpus:0.1;gpus:{rng.choice(('0.5', '1', '2'))}")
                self._accept([], calls.MakeHold(HoldId(self.names(1)[0]), held))
            case "end":
                self._end()
            case "time":
                # Filters end; no agent is silent for long.
                world.pass_time(6)
                for session in self.hosts:
                    world.do(Received(session))
        self.check()

    def _submit(self, tasks: list[TaskInfo]) -> None:
        self.asked |= {task.task_id: task.devices for task in tasks}
        self.world.call(self.submits, calls.Submit(tuple(tasks)))

    def _accept(self, tasks: list[TaskInfo], *holds: calls.MakeHold) -> None:
        self.asked |= {task.task_id: task.devices for task in tasks}
        offers = self.world.offers(self.accepts)
        agent_id = self.rng.choice(offers).agent.agent_id
        ids = tuple(OfferId(o.offer_id) for o in offers if o.agent.agent_id == agent_id)
        self.world.call(self.accepts, calls.Accept(ids, tuple(tasks), holds=holds))

    def _end(self) -> None:
        world = self.world
        running = [
            (agent, task)
            for agent in world.state.agents.values()
            for task in agent.tasks.values()
            if not task.state.is_terminal
        ]
        if running:
            agent, task = self.rng.choice(running)
            number = task.sequence + 1
            assert agent.session is not None
            world.report(agent.session, task.framework_id, task.task_id, TaskState.FINISHED, number)

    def check(self) -> None:
        """Check tasks and queues; `World` checks that each slot is in one place."""
        state = self.world.state
        for agent in state.agents.values():
            for task in agent.tasks.values():
                if not task.state.is_terminal:
                    self._check_task(agent.inventory, task.info)
        for framework in state.frameworks.values():
            for task in framework.queues.heads():
                assert task.info.group is not None or not self._fits(task.info), task.task_id

    def _check_task(self, inventory: Inventory | None, info: TaskInfo) -> None:
        asked = self.asked[info.task_id]
        assert info.devices == asked
        if inventory is None:
            assert asked is None
            return
        left = slots_of(info.resources)
        self.seen |= left
        for need in inventory.needs(info.resources, needs_of(info.resources, asked)):
            taken = inventory.choose(left, need)
            assert taken is not None, (info.task_id, left, need)
            left -= taken
        assert not left

    def _fits(self, info: TaskInfo) -> bool:
        """Return whether a task would fit in what is free now."""
        allocator = self.world.state.allocator
        for agent in self.world.state.agents.values():
            free = allocator.queries.free(agent.agent_id)
            if not agent.is_offered:
                continue
            if agent.inventory is None:
                if info.devices is None and info.resources <= free:
                    return True
            elif info.resources <= free and agent.inventory.certain(
                info.resources, free, info.devices
            ):
                return True
        return False


def test_tasks_have_what_they_asked_for() -> None:
    seeds, seen = portion(24), 0
    for seed in range(seeds):
        cluster = Cluster(Random(seed))
        for _ in range(STEPS):
            cluster.step()
        seen += len(cluster.seen)
    assert seen > 4 * seeds, "tasks had devices"

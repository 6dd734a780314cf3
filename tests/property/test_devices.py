"""Each task has the devices that it asked for, and no device is idle that a queued task can use."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from croupier.master.allocator import Allocator, Rules
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask, Received
from croupier.master.core.registry import Registry
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.model.devices import Device, DeviceRequest, Inventory, needs_of, slots_of
from croupier.model.ids import AgentId, HoldId, OfferId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Source, TaskInfo, TaskState, TaskStatus
from tests.harness.effort import portion
from tests.harness.world import World, in_gang, in_group, make_task, with_devices

STEPS = 60
OPEN = Rules(hold_s=0, scarce=frozenset())
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


class Open(World):
    """A world whose masters all withhold nothing from a task that fits."""

    def _recovered(self, master_id: str, registry: Registry) -> State:
        allocator = Allocator(rules=OPEN, roles=self.state.initial_roles)
        return recover_state(registry, master_id, self.state.settings, allocator, self.now)


class Cluster:
    """Hosts with devices, one framework that submits and one that accepts."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.made = rng, 0
        self.world = Open(rules=OPEN)
        self.asked: dict[str, DeviceRequest | None] = {}
        # The numbers of the last updates of tasks that have ended.
        self.ended: dict[str, int] = {}
        # Slots that tasks had.
        self.seen: set[str] = set()
        self.devices = [devices(rng, host) for host in range(3)]
        self.hosts = [self._register(host) for host in range(3)]
        self.submits = self.world.framework("a", suppressed=True)
        self.accepts = self.world.framework("b")

    def _register(self, host: int, tasks: tuple[AgentTask, ...] = ()) -> SessionId:
        named, name = self.devices[host], f"h{host}"
        session = self.world.agent(
            "cpus:4;mem:4GB", name, "", name, tasks, devices=named, features="groups,gangs"
        )
        assert session not in self.world.closed
        return session

    def _return(self, host: int) -> None:
        """Have a host register with its tasks, also those whose end is unacknowledged."""
        agent, listed = self.world.state.agents[AgentId(f"h{host}")], []
        for task in agent.tasks.values():
            ended = self.ended.get(task.task_id)
            status = TaskStatus(
                task.framework_id,
                task.task_id,
                agent.agent_id,
                TaskState.RUNNING if ended is None else TaskState.FINISHED,
                Source.EXECUTOR,
                sequence=task.sequence + 1 if ended is None else ended,
            )
            listed.append(AgentTask(task.framework_id, task.info, status, (status,), task.role))
        self.hosts[host] = self._register(host, tuple(listed))

    def _restart(self) -> None:
        """Fail over to another master; all return."""
        world = self.world
        ids = world.framework_id(self.submits), world.framework_id(self.accepts)
        world.restart()
        for host in range(3):
            self._return(host)
        client = f"c{world.state.epoch}"
        self.submits = world.framework("a", framework_id=ids[0], suppressed=True, client_id=client)
        self.accepts = world.framework("b", framework_id=ids[1], client_id=client)

    def names(self, number: int) -> list[str]:
        self.made += number
        return [f"t{each}" for each in range(self.made - number, self.made)]

    def step(self) -> None:
        rng, world = self.rng, self.world
        often = ("submit", "submit", "accept", "end", "end")
        match rng.choice(
            (*often, *often, "group", "gang", "hold", "time", "time", "return", "restart")
        ):
            case "submit":
                self._submit([new_task(rng, name) for name in self.names(rng.randint(1, 3))])
            case "group":
                names = self.names(rng.randint(2, 3))
                self._submit([in_group(names[0], new_task(rng, name)) for name in names])
            case "gang":
                gang_id, *names = self.names(rng.randint(3, 5))
                kind = new_task(rng, gang_id)
                self._submit(
                    [*in_gang(gang_id, *(replace(kind, task_id=TaskId(n)) for n in names))]
                )
            case "accept" if world.offers(self.accepts):
                self._accept([new_task(rng, name) for name in self.names(2)])
            case "hold" if world.offers(self.accepts):
                held = Resources.parse(f"cpus:0.1;gpus:{rng.choice(('0.5', '1', '2'))}")
                self._accept([], calls.MakeHold(HoldId(self.names(1)[0]), held))
            case "end":
                self._end()
            case "return":
                self._return(rng.randrange(3))
            case "restart":
                self._restart()
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
            self.ended[task.task_id] = number
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
                is_alone = task.info.group is None and task.info.gang is None
                assert not (is_alone and self._fits(task.info)), task.task_id

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

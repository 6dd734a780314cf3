"""Operators change roles at any moment: the settings stay legal, durable and binding."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from croupier.master.allocator import Allocator
from croupier.master.allocator.queries import RoleStatus
from croupier.master.core.effects import Answer
from croupier.master.core.records import RoleRecord
from croupier.master.core.registry import Registry
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart, check_settings
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.model.errors import CroupierError
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.model.task import TaskState
from tests.harness.effort import portion
from tests.harness.role_statuses import role_statuses
from tests.harness.world import World, make_task

ROLES = [Role(role) for role in ("a", "a/x", "a/y", "a/y/z", "b", "b/x")]
FLAGS = {Role("a"): RoleSettings(2000), Role("b/x"): RoleSettings(500)}


class RandomCluster:
    """A cluster whose events are drawn from `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.world = World(state=State("m", Settings(), Allocator(roles=FLAGS)))
        self.sessions = [
            self.world.framework(
                roles=tuple(rng.sample(ROLES, rng.randint(1, 2))),
                demand="cpus:1;mem:1GB" if rng.random() < 0.8 else "",
            )
            for _ in range(4)
        ]
        self.agents = [self.world.agent(f"cpus:{rng.randint(2, 6)};mem:8GB") for _ in range(3)]
        self.tasks = 0
        self.accepted = self.refused = 0

    def amounts(self) -> dict[str, int]:
        names = self.rng.sample(["cpus", "mem", "gpus"], self.rng.choice([0, 1, 1, 1, 2]))
        return {name: self.rng.randint(0, 8) * 1000 for name in names}

    def change(self, role: Role) -> RoleChange:
        if self.rng.random() < 0.2:
            return RoleChange(role, None)
        settings = RoleSettings(
            self.rng.randint(0, 5) * 500,
            {"cpus": 3000} if self.rng.random() < 0.1 else {},
            self.amounts(),
            self.amounts(),
            self.rng.choice([None, True, False]),
        )
        parts = self.rng.sample(list(RolePart), self.rng.choice([0, 1, 1, 2]))
        return RoleChange(role, settings, tuple(parts))

    def update(self) -> None:
        roles = self.rng.sample(ROLES, self.rng.randint(1, 2))
        changes = tuple(self.change(role) for role in roles)
        force = self.rng.random() < 0.3
        before = role_statuses(self.world.state)
        would = self._ask(UpdateRoles(1, changes, True, force))
        assert role_statuses(self.world.state) == before
        did = self._ask(UpdateRoles(2, changes, False, force))
        if isinstance(did, CroupierError):
            self.refused += 1
            assert (type(would), str(would)) == (type(did), str(did))
            assert role_statuses(self.world.state) == before
            return
        self.accepted += 1
        assert isinstance(did, RolesMoved)
        assert isinstance(would, RolesMoved)
        for (was, would_be), (was_too, is_now) in zip(would.named, did.named, strict=True):
            assert was == was_too == before.get(was.role, RoleStatus(was.role, RoleSettings()))
            assert would_be.settings == is_now.settings
            assert is_now == role_statuses(self.world.state).get(was.role, is_now)

    def act(self) -> None:
        world, session = self.world, self.rng.choice(self.sessions)
        match self.rng.randrange(6):
            case 0 | 1:
                self.update()
            case 2 | 3:
                if offers := world.offers(session):
                    offer = self.rng.choice(offers)
                    self.tasks += 1
                    task = make_task(f"t{self.tasks}")
                    world.accept(session, task, offers=[offer.offer_id])
            case 4:
                framework = world.state.frameworks[world.framework_id(session)]
                live = [task for task in framework.tasks.values() if not task.state.is_terminal]
                for each in self.rng.sample(live, len(live) // 2):
                    (agent,) = (a for a in self.agents if world.agent_id(a) == each.agent_id)
                    known = framework.framework_id
                    world.report(agent, known, each.task_id, TaskState.FINISHED, 9)
            case _:
                for peer in world.state.peers.values():
                    peer.last_received = world.now + 6.0
                world.pass_time(6.0)

    def _ask(self, event: UpdateRoles) -> object:
        # Make no pass, so that the answer can be compared with the present state.
        (answer,) = (each for each in self.world._step(event) if isinstance(each, Answer))
        return answer.result


def recovered(world: World) -> Mapping[Role, RoleSettings]:
    """Return the settings of the next master."""
    registry = Registry()
    for record in world.saved:
        registry.apply(record)
    return recover_state(
        registry, "m2", Settings(), Allocator(roles=FLAGS), 0.0
    ).allocator.queries.roles()


@pytest.mark.parametrize("seed", range(portion(40)))
def test_settings_stay_legal_durable_and_binding(seed: int) -> None:
    drama = RandomCluster(random.Random(seed))
    world = drama.world
    used: dict[tuple[Role, str], int] = {}
    for _ in range(60):
        drama.act()
        for role, standing in role_statuses(world.state).items():
            for name, limit in standing.settings.limit.items():
                # Usage above a forced limit does not grow.
                before = used.get((role, name), 0)
                assert standing.used[name] <= max(limit, before), (role, name)
        used = {
            (role, name): standing.used[name]
            for role, standing in role_statuses(world.state).items()
            for name in ("cpus", "mem", "gpus")
        }
        check_settings(world.state.allocator.queries.roles())
    assert recovered(world) == world.state.allocator.queries.roles()
    assert drama.accepted
    assert drama.accepted + drama.refused > 10
    assert any(isinstance(record, RoleRecord) for record in world.saved)

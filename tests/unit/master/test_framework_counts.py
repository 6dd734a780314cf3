"""Numbers of a framework's tasks: running, queued, done and failed."""

from __future__ import annotations

from croupier.master.core.calls import Acknowledge, Submit
from croupier.master.services.views import view_framework
from croupier.model.ids import TaskId
from croupier.model.task import TaskState
from tests.harness.world import World, make_task


def test_each_task_is_counted_once_also_after_its_end_is_acknowledged() -> None:
    world = World()
    agent, session = world.agent("cpus:3;mem:9GB"), world.framework(suppressed=True)
    framework = world.state.frameworks[world.framework_id(session)]

    def counts() -> tuple[int, ...]:
        view = view_framework(world.state, framework, world.now)
        assert view.tasks == view.running + view.queued
        return view.running, view.queued, view.done, view.failed

    world.call(session, Submit(tuple(make_task(f"t{at}") for at in range(5))))
    assert counts() == (3, 2, 0, 0)
    world.report(agent, framework.framework_id, "t0", TaskState.FINISHED, 1)
    world.report(agent, framework.framework_id, "t1", TaskState.FAILED, 1)
    assert counts() == (3, 0, 2, 1)
    for name in ("t0", "t1"):
        update = (world.agent_id(agent), TaskId(name), 1)
        world.call(session, Acknowledge((update,)))
    assert not {"t0", "t1"} & framework.tasks.keys()
    assert counts() == (3, 0, 2, 1)

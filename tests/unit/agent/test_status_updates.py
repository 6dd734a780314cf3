"""Updates of tasks in the agent's core: sent, sent again, and acknowledged."""

from __future__ import annotations

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Acknowledged,
    SendRegister,
    SendUpdates,
)
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchTask, ResendUpdates
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, TaskId
from tests.harness.agent_core import KEY, F, T, World, kill, sent, task


class TestUpdates:
    def test_are_sent_again_after_10_s_doubling_to_10_min_for_ever(self) -> None:
        world = World()
        world.do(kill())
        waits: list[float] = []
        last = world.now
        for _ in range(9):
            at = world.state.next_deadline()
            assert at is not None
            waits.append(at - last)
            last = at
            assert sent(world.sleep(at - world.now)) == [("GONE", 1)]
        assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]

    def test_all_unacknowledged_updates_are_sent_again_together(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0))
        assert sent(world.sleep(10)) == [("STARTING", 1), ("RUNNING", 2), ("FINISHED", 3)]

    def test_an_acknowledgement_covers_all_earlier_updates(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0))
        world.sleep(10)
        world.do(AcknowledgeUpdate(F, T, 2))
        assert Acknowledged(2) in world.effects
        # The framework reads, so the shortest wait begins again.
        assert world.sleep(9.9) == []
        assert sent(world.sleep(0.1)) == [("FINISHED", 3)]

    def test_stale_and_unknown_acknowledgements_change_nothing(self) -> None:
        world = World().running()
        world.do(AcknowledgeUpdate(F, T, 1))
        assert world.do(AcknowledgeUpdate(F, T, 1), AcknowledgeUpdate(F, TaskId("x"), 9)) == []
        assert len(world.state.tasks[KEY].updates.waiting) == 1

    def test_of_a_reconnected_framework_are_sent_again_at_once(self) -> None:
        world = World().running()
        world.do(LaunchTask(FrameworkId("F2"), task(), DEFAULT_ROLE))
        effects = world.do(ResendUpdates(F))
        assert sent(effects) == [("STARTING", 1), ("RUNNING", 2)]
        assert all(isinstance(e, SendUpdates) and e.again for e in effects)
        assert world.do(ResendUpdates(FrameworkId("F3"))) == []

    def test_are_kept_while_there_is_no_session(self) -> None:
        world = World().running()
        world.do(ev.Disconnected(1))
        assert world.do(ev.Exited(KEY, exit_code=0)) == []
        assert world.sleep(1000) == []
        assert world.do(ev.Connected(2)) == [SendRegister(2)]
        assert len(world.state.tasks[KEY].updates.waiting) == 3
        assert len(sent(world.sleep(10))) == 3

    def test_are_sent_in_the_open_session(self) -> None:
        world = World().running()
        world.do(ev.Disconnected(1), ev.Connected(2))
        effects = world.do(ev.Exited(KEY, exit_code=0))
        assert [e.session for e in effects if isinstance(e, SendUpdates)] == [2]

    def test_the_end_of_an_older_session_changes_nothing(self) -> None:
        world = World()
        world.do(ev.Disconnected(1), ev.Connected(2), ev.Disconnected(1))
        assert world.state.session == 2

"""Five tasks that say hello.

python hello.py --master 127.0.0.1:5050
"""

from __future__ import annotations

import argparse

from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus, fit

UNIT = Resources.parse("cpus:0.1;mem:32MB")


class Hello(Framework):
    """Launches its tasks on the offers, and stops once all have ended."""

    def __init__(self, master: str | None) -> None:
        """Demand resources for five tasks."""
        super().__init__(name="hello", master=master, demand=UNIT, demand_count=5)
        self.todo = [
            Task(["echo", f"hello {n}"], resources=UNIT, name=f"hello-{n}") for n in range(5)
        ]
        self.names = {task.task_id: task.name for task in self.todo}
        self.states: dict[str, TaskState] = {}

    async def on_offers(self, offers: list[Offer]) -> None:
        """Place as many tasks as fit; an offer without tasks is declined."""
        for offer, tasks in fit(offers, self.todo):
            verdicts = await self.accept(offer, tasks)
            launched = {verdict.task_id for verdict in verdicts if verdict.ok}
            self.todo = [task for task in self.todo if task.task_id not in launched]

    async def on_update(self, status: TaskStatus) -> None:
        """Print each step of each task."""
        print(f"{self.names[status.task_id]}: {status.state.name} {status.message}".rstrip())
        self.states[status.task_id] = status.state
        ended = [state for state in self.states.values() if state.is_terminal]
        if len(ended) == len(self.names):
            await self.stop(teardown=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", help="HOST:PORT (default: CROUPIER_MASTER, or 127.0.0.1:5050)")
    hello = Hello(parser.parse_args().master)
    hello.run_forever(teardown=True)
    finished = [state for state in hello.states.values() if state is TaskState.FINISHED]
    raise SystemExit(len(finished) != len(hello.names))

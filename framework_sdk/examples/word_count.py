"""Counts words by map and reduce on a cluster, and checks the result.

    python word_count.py --master 127.0.0.1:5050 --maps 8 --output /tmp/counts TEXT...

Map tasks count parts of the files, then one reduce task adds the counts up. The tasks read
and write by absolute path: agents must see the same files, on one machine or on a shared file
system. A task that is lost or fails is launched again. Exits with 0 only if the cluster's counts
equal those of this process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus, fit

UNIT = Resources.parse("cpus:0.5;mem:64MB")
STEPS = str(Path(__file__).resolve().with_name("word_count_steps.py"))
MOST_TRIES = 3


class WordCount(Framework):
    """Runs steps in tasks: all maps, and after them the reduce.

    Attributes:
        failed: why a step failed for the last time; None if none did.
    """

    def __init__(self, master: str | None, parts: list[list[str]], output: Path) -> None:
        """Demand resources for one task per list of parts."""
        super().__init__(name="word-count", master=master, demand=UNIT, demand_count=len(parts))
        self.failed: str | None = None
        self._maps = {f"map-{number}": part for number, part in enumerate(parts)}
        self._output = output
        self._waiting = list(self._maps)
        self._running: dict[str, str] = {}  # task id -> step
        self._done: set[str] = set()
        self._tries: Counter[str] = Counter()

    @property
    def result(self) -> Path:
        """The file of counts that the reduce step writes."""
        return self._file("reduce")

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch the steps that wait."""
        tasks = {
            task.task_id: (task, step) for step in self._waiting for task in [self._task(step)]
        }
        for offer, chosen in fit(offers, [task for task, _ in tasks.values()]):
            self._running |= {task.task_id: tasks[task.task_id][1] for task in chosen}
            for verdict in await self.accept(offer, chosen):
                if verdict.ok:
                    self._waiting.remove(tasks[verdict.task_id][1])
                else:
                    del self._running[verdict.task_id]

    async def on_update(self, status: TaskStatus) -> None:
        """Go on to the next step, or try again."""
        step = self._running.get(status.task_id)
        if step is None or not (status.state.is_terminal or status.state is TaskState.UNREACHABLE):
            return
        del self._running[status.task_id]
        print(f"{step}: {status.state.name} {status.message}".rstrip(), flush=True)
        if status.state is TaskState.FINISHED:
            await self._on_finished(step)
        else:
            await self._on_failed(step, status)

    async def _on_finished(self, step: str) -> None:
        self._done.add(step)
        if step == "reduce":
            await self.stop(teardown=True)
        elif self._done == self._maps.keys():
            await self._launch("reduce")

    async def _on_failed(self, step: str, status: TaskStatus) -> None:
        self._tries[step] += 1
        if self._tries[step] < MOST_TRIES:
            await self._launch(step)
        else:
            self.failed = f"{step} failed {MOST_TRIES} times: {status.message or status.state.name}"
            await self.stop(teardown=True)

    async def _launch(self, step: str) -> None:
        self._waiting.append(step)
        await self.demand(UNIT, len(self._waiting))

    def _task(self, step: str) -> Task:
        inputs = self._maps.get(step) or [str(self._file(name)) for name in self._maps]
        kind = step.partition("-")[0]
        command = [sys.executable, STEPS, kind, str(self._file(step)), *inputs]
        return Task(command, resources=UNIT, name=step)

    def _file(self, step: str) -> Path:
        return self._output / f"{step}.json"


def split(files: list[Path], maps: int) -> list[list[str]]:
    """Split `files` into parts of about equal size, in `maps` lists."""
    sizes = {file.resolve(): file.stat().st_size for file in files}
    size = max(1, -(-sum(sizes.values()) // maps))
    lists: list[list[str]] = [[] for _ in range(maps)]
    offset = 0
    for file, total in sizes.items():
        begin = 0
        while begin < total:
            end = min(total, begin + size - offset % size)
            lists[min(offset // size, maps - 1)].append(f"{file}:{begin}:{end}")
            offset += end - begin
            begin = end
    return [parts for parts in lists if parts]


def count_here(files: list[Path], output: Path) -> Counter[str]:
    """Return the counts of whole `files`, by one process on this machine."""
    whole = [f"{file.resolve()}:0:{file.stat().st_size}" for file in files]
    subprocess.run([sys.executable, STEPS, "map", str(output), *whole], check=True)
    return Counter(json.loads(output.read_text()))


def main() -> int:
    """Count, compare, and print the most frequent words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="*", type=Path, metavar="TEXT", help="a text file")
    parser.add_argument("--files", nargs="+", type=Path, default=[], help="more text files")
    parser.add_argument("--dir", type=Path, help="take all files in this directory too")
    parser.add_argument("--maps", type=int, default=4, help="number of map tasks (default: 4)")
    parser.add_argument("--output", type=Path, help="directory for counts that agents can write")
    parser.add_argument("--master", help="HOST:PORT (default: CROUPIER_MASTER, or 127.0.0.1:5050)")
    args = parser.parse_args()
    files = [*args.texts, *args.files, *(sorted(args.dir.iterdir()) if args.dir else [])]
    files = [file for file in files if file.is_file()]
    parts = split(files, max(1, args.maps))
    if not parts:
        parser.error("no text to count")
    output = args.output or Path(tempfile.mkdtemp(prefix="word-count-"))
    output.mkdir(parents=True, exist_ok=True)
    framework = WordCount(args.master, parts, output.resolve())
    framework.result.unlink(missing_ok=True)
    framework.run_forever(teardown=True)
    if framework.failed or not framework.result.exists():
        print(f"word count: {framework.failed or 'stopped'}", file=sys.stderr)
        return 1
    counts = Counter(json.loads(framework.result.read_text()))
    expected = count_here(files, output / "expected.json")
    for word, number in counts.most_common(10):
        print(f"{number:>8}  {word}")
    print(f"{counts.total()} words, {len(counts)} different, by {len(parts)} maps")
    if counts != expected:
        print("word count: the cluster's counts differ from those of one process", file=sys.stderr)
        return 1
    print("equal to the count of one process")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

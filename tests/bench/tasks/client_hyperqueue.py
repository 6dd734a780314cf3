"""HyperQueue as its wheel has it: server and worker are threads of one process.

python -m tests.bench.tasks.client_hyperqueue serve DIR SLOTS
python -m tests.bench.tasks.client_hyperqueue run DIR
"""

import sys
import time

import hyperqueue  # type: ignore[import-not-found]
import hyperqueue.cluster  # type: ignore[import-not-found]

from tests.bench.tasks.client import answer, serve

# The library's own wait looks once a second; this asks the server that often.
POLL_S = 0.02
POLL_ONE_S = 0.001


class Pending(Exception):
    """Some tasks have not ended."""


def run_server(directory: str, slots: int) -> None:
    cluster = hyperqueue.cluster.LocalCluster(server_dir=directory)
    cluster.start_worker(hyperqueue.cluster.WorkerConfig(cores=slots))
    answer({})
    sys.stdin.read()


def run_client(directory: str) -> None:
    client = hyperqueue.Client(directory)

    def look(jobs: dict[int, dict[str, object]]) -> None:
        if not all(job["completed"] for job in jobs.values()):
            raise Pending

    def run(count: int) -> None:
        job = hyperqueue.Job(default_workdir=directory, max_fails=None)
        for _ in range(count):
            job.program(["/bin/true"], stdout=None, stderr=None)
        submitted = client.submit(job)
        while True:
            try:
                failed = client.connection.wait_for_jobs((submitted.id,), look)
            except Pending:
                time.sleep(POLL_S if count > 1 else POLL_ONE_S)
            else:
                assert not failed, failed
                return

    serve(run)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", directory, slots]:
            run_server(directory, int(slots))
        case [_, directory]:
            run_client(directory)

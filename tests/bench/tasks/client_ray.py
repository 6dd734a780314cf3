"""The client that runs tasks on Ray: each is a remote function that runs /bin/true.

    python -m tests.bench.tasks.client_ray ADDRESS

A remote function runs in a worker process of Ray, which is kept.
"""

import subprocess
import sys

import ray  # type: ignore[import-not-found]

from tests.bench.tasks.client import serve


def run_true() -> int:
    return subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL).returncode


task = ray.remote(num_cpus=1)(run_true)


def run(count: int) -> None:
    assert ray.get([task.remote() for _ in range(count)]) == [0] * count


if __name__ == "__main__":
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
    serve(run)

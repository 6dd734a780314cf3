"""Run Python functions on a cluster, through the interface of `concurrent.futures`.

    from croupier.futures import ClusterExecutor

    with ClusterExecutor(max_workers=20) as executor:
        print(sum(executor.map(work, range(1000), chunksize=10)))

Needs the extra `croupier[futures]`. docs/futures.md describes it.
"""

from importlib.util import find_spec

if find_spec("cloudpickle") is None:
    raise ImportError("croupier.futures needs cloudpickle: pip install 'croupier[futures]'")

from croupier.futures.board import Progress
from croupier.futures.call import CallFuture
from croupier.futures.executor import CallExecutor, ClusterExecutor
from croupier.futures.outcome import (
    ClusterBroken,
    RemoteError,
    RemoteTraceback,
    TooLarge,
    WorkerDied,
)

__all__ = [
    "CallExecutor",
    "CallFuture",
    "ClusterBroken",
    "ClusterExecutor",
    "Progress",
    "RemoteError",
    "RemoteTraceback",
    "TooLarge",
    "WorkerDied",
]

"""Run Python functions on a cluster, through the interface of `concurrent.futures`.

    from croupier.sdk.futures import ClusterExecutor

    with ClusterExecutor(max_workers=20) as executor:
        print(sum(executor.map(work, range(1000), chunksize=10)))

Needs the extra `croupier[futures]`. docs/futures.md describes it.
"""

from importlib.util import find_spec

if find_spec("cloudpickle") is None:
    raise ImportError("croupier.sdk.futures needs cloudpickle: pip install 'croupier[futures]'")

from croupier.sdk.futures.call import CallFuture
from croupier.sdk.futures.errors import (
    ClusterBroken,
    RemoteError,
    RemoteTraceback,
    TooLarge,
    WorkerDied,
)
from croupier.sdk.futures.executor import CallExecutor, ClusterExecutor
from croupier.sdk.futures.progress import Progress

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

"""A Dask cluster whose workers are tasks of Croupier.

    from croupier.dask import DaskCluster
    from dask.distributed import Client

    with DaskCluster(cpus=1, mem="2GB") as cluster, Client(cluster):
        cluster.adapt(0, 20)
        ...

Needs the extra `croupier[dask]`. docs/dask.md describes it.
"""

from importlib.util import find_spec

if find_spec("distributed") is None:
    raise ImportError("croupier.dask needs Dask: pip install 'croupier[dask]'")

from croupier.dask.cluster import DaskCluster
from croupier.dask.workers import WorkersFailed

__all__ = ["DaskCluster", "WorkersFailed"]

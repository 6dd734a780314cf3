"""A Dask cluster whose workers are tasks of Croupier.

    from croupier.sdk.dask import DaskCluster
    from dask.distributed import Client

    with DaskCluster(cpus=1, mem="2GB") as cluster, Client(cluster):
        cluster.adapt(0, 20)
        ...

Needs the extra `croupier[dask]`. docs/dask.md describes it.
"""

from importlib.util import find_spec

if find_spec("distributed") is None:
    raise ImportError("croupier.sdk.dask needs Dask: pip install 'croupier[dask]'")

from croupier.sdk.dask.cluster import DaskCluster
from croupier.sdk.dask.failures import WorkersFailed

__all__ = ["DaskCluster", "WorkersFailed"]

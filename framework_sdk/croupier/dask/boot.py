"""The program of a worker: checks its Python before it unpickles anything, then runs Dask's.

Rule: it stands alone, as agents need not have Croupier. It is sent as text.
"""

import os
import sys

# Exit codes that `failure_text` explains.
OTHER_PYTHON = 91
NO_DASK = 92


def main() -> None:
    """Check the interpreter, and become a Dask worker."""
    wanted = os.environ["CROUPIER_DASK_PYTHON"]
    found = "{}.{}".format(*sys.version_info[:2])
    if found != wanted:
        print(f"the client runs Python {wanted}, this worker {found}", file=sys.stderr)
        sys.exit(OTHER_PYTHON)
    try:
        from distributed.cli.dask_worker import main as run
    except ImportError as error:
        print(f"{sys.executable} cannot import distributed: {error}", file=sys.stderr)
        sys.exit(NO_DASK)
    sys.argv[0] = "dask-worker"
    run()


if __name__ == "__main__":
    main()

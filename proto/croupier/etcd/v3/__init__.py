"""Messages of etcd: code generated from the `.proto` file beside it."""

import os

# Must be set before grpc is imported: see croupier.net.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

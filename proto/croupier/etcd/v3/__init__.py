"""Messages of etcd: code generated from the `.proto` file beside it."""

import os

# Before grpc is imported; the reason stands in croupier.rpc.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

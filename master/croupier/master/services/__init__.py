"""gRPC services: they convert requests and decide nothing."""

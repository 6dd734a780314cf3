"""A small client of etcd v3 over grpc.aio, and the election of a leader with it.

Why not one of the packages there are: see docs/decisions/.
"""

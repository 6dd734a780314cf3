"""The gateway: frameworks of Apache Mesos, by its v1 HTTP API.

A translator that sits where the gRPC services sit: it makes the same events of calls, and gets the
same messages through a session. Nothing here is loaded unless the master has `--mesos-listen`.
"""

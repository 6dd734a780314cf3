"""What the master and the agent share to serve clients of the v1 HTTP API of Apache Mesos."""

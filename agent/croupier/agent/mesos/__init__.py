"""Executors of Mesos: the executor API at an agent.

It translates only: its streams are those of all executors (`agent/executors`). Nothing here is
loaded unless `--mesos-listen` is given, and what needs aiohttp only with the first connection.
"""

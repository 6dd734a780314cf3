"""Real daemons and commands that start in milliseconds, as forks of a loaded interpreter.

A daemon takes a second of CPU time to start, a command half of one, nearly all of it for imports.
Tests start them a thousand times. Each still is a process of its own and a child of the test's,
with its own pid, descriptors, environment and directory.
"""

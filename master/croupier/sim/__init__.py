"""The simulator: the real allocator and core in virtual time, and experiments on them.

Rule: the same seed gives the same result. Nothing here uses a network or the machine's clock.

- `experiment`: the protocol of experiments; `report`: their results as text and files.
- `kernel`: the master's real core in virtual time; `agent`, `framework`: its simulated peers;
  `machine`: the cost of overcommitting a node; `work`, `gpus`: the tasks.
- `replay`: the same work as in a master's event log.
"""

"""The simulator: the real allocator and core in virtual time, and experiments on them.

Rule: the same seed gives the same result. Nothing here uses a network or the machine's
clock; only `cli` knows a terminal.

- `experiment` and `registry`: the protocol of experiments, and the table of all of them.
- `clock`: virtual time; `kernel`: the master's real core in it; `agent`, `framework`: its simulated
  peers; `machine`: the cost of overcommitting a node; `cluster`: all of these together.
- `jobs`, `mapreduce`, `gpus`, `traces`: workloads, synthetic or from public traces.
- `vectors`: golden vectors of the fairness schema, answered by the engine.
- `solvers`: policies that the engine does not have, and that share no code with it.
"""

"""The simulator: the real allocator and core in virtual time, and what they are held against.

Rule: the same seed gives the same result. Nothing here speaks to a network or waits for a
real clock; only `cli` knows that there is a terminal.

- `experiment` and `registry`: what an experiment is, and the table of all of them.
- `kernel`: virtual time around the master's real core; `agent`, `framework`: its pretend peers;
  `machine`: what overcommitting a node costs; `cluster`: all of these together.
- `jobs`, `mapreduce`, `gpus`, `traces`: work to be done, made up or from public traces.
- `vectors`: golden vectors of the fairness schema, run against the engine and the solvers.
- `solvers`: continuous and discrete reference policies that share no code with the engine.
"""

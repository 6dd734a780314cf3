"""Replays of a master's event log: verified decisions, and other settings on the same work.

Rule: the same log gives the same output, byte for byte. A malicious log can only fail to be read.

- `reader`: the lines of one run of a master.
- `history`: the agents, frameworks and tasks of the log; `demand_history`: since when tasks were
  demanded. `ledger`: shares over time and waits.
- `change`: other settings; `workload` and `play`: the same work in the simulator.
- `result`: all of that in turn; first, the core decides all events again. `report`: for people and
  programs.
"""

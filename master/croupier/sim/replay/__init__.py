"""`croupier replay`: a master's event log, decided again, and what would have been otherwise.

Rule: the same log gives the same output, byte for byte; and no log, whoever wrote it, does
more than fail to be read.

- `reader`: the lines of one run of a master. `exact`: the core decides all of it again.
- `history`: who was there, and what ran when, as the log tells it; `wishes`: since when it was
  wanted. `ledger`: what that comes to.
- `change`: what is to be otherwise; `workload` and `play`: the same work in the simulator.
- `report`: for people and programs. `cli`: the command.
"""

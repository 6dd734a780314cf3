"""The decisions of a service's controller. Pure: no clock, I/O, randomness or logging.

`Service` holds the state. Methods `on_...` apply events; `decide` compares what is with what is
wanted, changes the state, and returns the kills that follow. So a decision that was lost with the
process is made again by the next one.
"""

"""What becomes of an agent's tasks: pure decisions, no I/O, no clock.

`step(state, event, now)` takes what happened and returns what must be done:

    orders of the master       Launch Kill Acknowledge Resend Registered Removed
    news of the connection     Connected Disconnected
    news of the processes      Started LaunchFailed Exited
    the daemon itself          StopAsked Due

A task goes STARTING, RUNNING (with its pid), KILLING if it is asked to end, and then to
one terminal state. Each move makes a status update, numbered per task from 1, that is kept
until the master says its framework has it; a task is forgotten when the last of them is.
"""

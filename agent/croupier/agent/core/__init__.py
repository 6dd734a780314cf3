"""What becomes of an agent's tasks: pure decisions, no I/O, no clock.

`step(state, event, now)` takes what happened and returns what must be done:

    the agent itself           AgentStarted StopRequested DeadlinePassed DiskFull HealthChecked
    orders of the master       Launch Kill Acknowledge Resend MasterSeen Registered Removed
    news of the connection     Connected Disconnected
    answers to `Spawn`         Started LaunchFailed NotStarted
    answers to `Adopt`         Adopted Exited LaunchFailed Vanished
    news of the processes      Exited

A task goes STARTING, RUNNING (with its pid), KILLING if it is asked to end, and then to
one terminal state. Each move makes a status update, numbered per task from 1, that is kept
until the master says its framework has it; a task is forgotten when the last of them is.

What the shell owes it:

- A new agent is `AgentState.of(total, life=...)`; one that was there before is
  `recovered(records, total, boot_id=..., life=..., incomplete=...)`. Either way `AgentStarted` is
  the first event. `life` is different in each life of each agent, and part of an id: it makes
  names of runs, and the agent's own.
- The records of all `Checkpoint` effects of a batch (one `step`, or several) are durable, in
  order, before any other effect of that batch is performed. Those that are `lazy` need not
  be, but they keep their place among the others.
- Each `Spawn(key, run)` is answered exactly once: `Started`, `LaunchFailed`, or `NotStarted`
  where `state.wants_process(key)` is false by then. Each `Adopt(key, run)` is answered
  exactly once: `Adopted` (it lives), `Exited` (its recorded end), `LaunchFailed` (the same) or
  `Vanished` (`never_started` only if no process was ever begun under that name). After
  `Started` and `Adopted` there comes exactly one `Exited`.
- There is a first `HealthChecked` without being asked for. Then each `CheckHealth` is answered
  with one, unless another `CheckHealth` replaces it.
- `RefuseLaunch` is not recorded. If it cannot be sent, the session must end: REGISTER in the
  next one does not list the task, and the master orders it again.
- `ForgetRun(key, run)` lets go of what is kept about a run that was spawned; not before.
- There is one session at a time: `Connected`, then `Disconnected`. `SendRegister(session)` asks
  for REGISTER, made of the state at that moment with `state.master_epoch` and
  `state.incomplete`; it comes once nothing is left to be adopted. The link hears no master
  whose epoch is lower than the highest that any has had, which `MasterSeen` tells the core before
  anything else of that message.
- Nothing comes back from a batch that could not be made durable: the agent ends, and the next
  one is `recovered`.
"""

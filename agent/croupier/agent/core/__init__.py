"""The agent's decisions about its tasks: pure, without I/O or a clock.

`step(state, event, now)` takes one event and returns its effects:

    the agent itself           AgentStarted StopRequested DeadlinePassed DiskFull HealthChecked
    orders of the master       LaunchTask KillTask AcknowledgeUpdate ResendUpdates
    the session                Connected MasterSeen Registered Removed Disconnected
    answers to `Spawn`         Started LaunchFailed NotStarted
    answers to `Adopt`         Adopted Exited LaunchFailed Vanished
    processes                  Exited LimitExceeded

A task is STARTING, RUNNING, KILLING if it is asked to end, and at last in one terminal state. Each
change makes a status update, numbered per task from 1, which the agent keeps until it is
acknowledged. The agent forgets a task once its last update is acknowledged.

The caller, such as the reactor, keeps these rules:

- A new agent starts with `AgentState.of(total, life=...)`, an earlier one with
  `recovered(records, total, boot_id=..., life=..., incomplete=...)`. `AgentStarted` is the first
  event. `life` differs in each life of each agent; names of runs and the agent's id contain it.
- The records of all `Checkpoint` effects of a batch are durable, in order, before any other
  effect of that batch is performed. Lazy ones may wait, but keep their place among the others.
- Each `Spawn` is answered exactly once: with `NotStarted` if `state.wants_process(key)` is false
  by then, else with `Started` or `LaunchFailed`. Each `Adopt` is answered exactly once: with
  `Adopted` (it lives), `Exited` (its recorded end), `LaunchFailed` (the same) or `Vanished`.
  Exactly one `Exited` follows `Started` and `Adopted`.
- There is a first `HealthChecked` without a request. Then each `CheckHealth` is answered with
  one, unless another `CheckHealth` replaces it.
- If a `RefuseLaunch` cannot be sent, the session must end. REGISTER of the next session does not
  list the task, and the master orders the launch again.
- There is one session at a time: `Connected`, then `Disconnected`. `SendRegister(session)` asks
  for REGISTER, made of the current state. The link drops messages of a master with an epoch below
  the highest seen; `MasterSeen` comes before the orders of a message that shows a newer master.
- The agent ends if a batch cannot be made durable; its next life is `recovered`.
"""

"""The process that supervises a task, so that the task outlives the agent."""

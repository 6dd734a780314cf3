"""The process that watches over a task, so that the task need not end with the agent."""

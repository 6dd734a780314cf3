"""Isolation of tasks from each other, from the agent and from the machine."""

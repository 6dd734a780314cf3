"""Isolation of tasks from each other, from the agent and from the machine.

Functions raise OSError if the system refuses what they need.
"""

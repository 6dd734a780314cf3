"""The cluster at a glance: totals, the map of agents, and the last hour.

Rule: each is made in slices of about 2 ms, and shared by all callers that may view the same.
"""

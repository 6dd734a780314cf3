"""The common part of the applications: a durable engine that runs tasks for a policy.

`outcomes` says what the end of a task means, `store` keeps what lasts, `engine` hands tasks to the
cluster and learns what becomes of them, `process` runs a framework until a signal.
"""

"""`croupier cron`: runs the jobs of a file at their times.

Rule: `core/` decides, from the file's jobs, the stored runs and the time; what it decides is in the
state file before a task is handed to the cluster. See docs/cron.md.
"""

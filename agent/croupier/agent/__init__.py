"""The agent: runs tasks on one machine and reports their state to the master."""

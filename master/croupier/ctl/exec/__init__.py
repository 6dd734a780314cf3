"""`croupier exec`: a command beside a task."""

"""`croupier service`: N instances of a long-running task, kept running and updated.

`core` decides. Around it: `file` (the service file), `state_dir` (what lasts), `controller` (the
framework), `probes` (health checks), `control` (the socket for the other commands).
"""

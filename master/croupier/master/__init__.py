"""The master: it tracks the free resources of every agent and deals them to frameworks, fairly."""

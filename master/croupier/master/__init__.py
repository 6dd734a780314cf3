"""The master: tracks what every agent has free and deals it to frameworks, fairly."""

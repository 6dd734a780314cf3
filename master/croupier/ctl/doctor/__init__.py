"""Checks of the client's view of a cluster: credentials, certificates, masters, agents."""

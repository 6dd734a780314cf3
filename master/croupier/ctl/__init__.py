"""The `croupier` command: what people and scripts ask of a cluster.

It reaches masters and agents over the wire only, and starts them only as processes of their
own. What is heavy to import is imported by the command that needs it.
"""

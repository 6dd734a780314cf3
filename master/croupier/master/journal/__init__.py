"""The journal: what happened in the cluster during this term, for people who watch it.

It is made of the facts that the core reports. It is not the event log, which a replay reads.
"""

"""Stores of records. All records of a batch are durable when `commit` returns."""

from croupier.master.store.protocol import Committing, MemoryStore, Store
from croupier.master.store.sqlite import SqliteStore

__all__ = ["Committing", "MemoryStore", "SqliteStore", "Store"]

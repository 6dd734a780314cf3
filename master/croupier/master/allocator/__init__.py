"""The fairness engine: pure, exact, deterministic.

The rest of the master uses `Allocator` and its parts. README.md has the nouns and an example.
"""

from croupier.master.allocator.allocator import Allocator
from croupier.master.allocator.grant import Grant, Units
from croupier.master.allocator.reasons import Cause, PassedOver
from croupier.master.allocator.state import Rules

__all__ = ["Allocator", "Cause", "Grant", "PassedOver", "Rules", "Units"]

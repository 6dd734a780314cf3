"""Test doubles for frameworks: a master that a test scripts."""

from croupier.sdk.testing.master import FakeMaster
from croupier.sdk.testing.recorded import RecordedCall

__all__ = ["FakeMaster", "RecordedCall"]

"""Golden vectors of fairness: files of questions with the answers that must come out.

The schema is told in `tests/vectors/fairness.json` itself (`schema.fields`). Everything that a
vector says is used or refused: an unknown field, mode, policy or expected key is a failure of
that vector, in words.
"""

from croupier.sim.vectors.check import MODES, Verdict, check_text, check_vector
from croupier.sim.vectors.document import Malformed
from croupier.sim.vectors.facts import Mismatch

__all__ = ["MODES", "Malformed", "Mismatch", "Verdict", "check_text", "check_vector"]

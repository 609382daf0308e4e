"""Evidence: who allowed what, and what came of it, read from the log of a run; and a file to compare the log with."""

from .account import RunEvidence as RunEvidence
from .account import account as account

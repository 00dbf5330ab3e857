"""Where noise comes from, in the words that every output uses. No torch here: the ledger says them too."""

from __future__ import annotations

SIMULATION = "seeded: simulation only"
DEPLOYMENT = "operating system"
NO_PROTECTION = "simulation: no protection"
"""What stands where the guarantee would stand when the noise follows from a seed."""

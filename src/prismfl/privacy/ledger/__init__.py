"""The ledger that pays: a hash chain on disk, balances, the rule that admits a run. Knows no torch."""

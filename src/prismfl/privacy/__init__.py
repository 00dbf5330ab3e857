"""What a release costs, what that is worth in epsilon, and the ledger that pays for it. Numbers only."""

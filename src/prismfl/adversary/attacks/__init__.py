"""Attacks: each gets a view of what an adversary sees, never the records."""

"""Proof from the outside: canaries, two worlds, attacks on finished runs, and the facts of a report."""

"""Proof from the outside: canaries, two worlds, a hostile server, attacks on finished runs."""

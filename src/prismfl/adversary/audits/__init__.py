"""Proof from the outside: canaries, two worlds, own files, a hostile server."""

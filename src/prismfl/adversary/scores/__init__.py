"""How well an attack did, and what differential privacy allows it at most."""

"""Flower as a transport: the only folder that imports it."""

"""Engines move states and releases between a server and its sites; they decide nothing."""

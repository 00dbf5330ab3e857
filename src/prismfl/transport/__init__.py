"""Moves requests and answers between a server and its sites, and drives the rounds. Knows no record."""

"""Measures of states, releases and held-out data. They may not see the boundary or private records."""

"""A run from config to result: what is asked, planned, kept in its directory, and simulated on one machine."""

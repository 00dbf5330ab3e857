"""Secure sums: masks, parties, who is believed, and the turns in which the server learns only the sum."""

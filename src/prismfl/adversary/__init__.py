"""The other side: what it sees, what it tries, how well it does. Attacks never hold the truth; scores do."""

"""A federation of real sites: who they are, what each of them allows, and what it lets out. Knows nothing of Flower."""

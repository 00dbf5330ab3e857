"""Numbers: what an answer costs, what that is worth in epsilon, how it is sampled, clipped and noised. No networks."""

"""Methods that send generators: 3DGL's pool, diffusion, random features, GANs."""

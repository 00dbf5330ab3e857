"""Networks, encoders, training, augmentation: what is trained. Knows nothing of privacy."""

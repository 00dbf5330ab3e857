"""prismfl: federated learning by exchanging differentially private synthetic data."""

__version__ = "0.1.0"

"""Networks: what is trained, never how it is protected."""

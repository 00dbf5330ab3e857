"""PRISM: noisy feature statistics, a closed-form head, and public images that are matched to them."""

"""What a site owns and decides: data, policy, keys, what leaves. Imports neither simulator nor report."""

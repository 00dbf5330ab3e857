"""What a federation's server does: its folder, the sites it knows, a run from start to result."""

"""Fast exact arithmetic, each kernel beside its reference. Knows nothing of records, costs or methods."""

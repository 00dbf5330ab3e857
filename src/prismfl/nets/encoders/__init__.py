"""Public encoders: networks and transforms that know no private record, each with its digest and its origin."""

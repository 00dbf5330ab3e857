"""Methods that average models: FedAvg and its kin, with DP-SGD at a site or noise at the hub."""

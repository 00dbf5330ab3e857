"""Methods that send images fitted to gradients or features: FedLAP, FedDM, DSC, PSG."""

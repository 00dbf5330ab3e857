"""Methods that send gradients: FedSGD, FedEM, and gradients with noise."""

"""One torch thread everywhere: two were up to sixteen times slower on a busy machine."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

torch.set_num_threads(1)

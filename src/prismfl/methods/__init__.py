"""Every method, by name. To add one: `methods/<family>/x.py`, `tests/methods/test_x.py`, and its line in this dict."""

from __future__ import annotations

from prismfl.core.method import Method
from prismfl.methods.averaging import (
    dp_central,
    dp_fedavg,
    dp_fedavg_client,
    dp_fedprox,
    fedavg,
    fedprox,
    local_only,
    scaffold,
)
from prismfl.methods.generators import ddp_vae, dp_feta, dp_gan, dp_merf, dpdm, marginals, threedgl
from prismfl.methods.gradients import fedem, fedem_dp, fedsgd, noisy_sgd
from prismfl.methods.landscape import dsc, feddm, feddm_dp, fedlap, fedlap_dp, psg
from prismfl.methods.prism import auto, client, local, prism

METHODS: dict[str, Method] = {
    "prism": prism.METHOD,
    "prism-local": local.METHOD,
    "prism-client": client.METHOD,
    "prism-head": auto.HEAD,
    "fedsgd": fedsgd.METHOD,
    "fedem": fedem.METHOD,
    "fedem-dp": fedem_dp.METHOD,
    "fedavg": fedavg.METHOD,
    "fedprox": fedprox.METHOD,
    "scaffold": scaffold.METHOD,
    "dp-fedavg": dp_fedavg.METHOD,
    "dp-fedprox": dp_fedprox.METHOD,
    "dp-fedavg-client": dp_fedavg_client.METHOD,
    "dp-central": dp_central.METHOD,
    "fedlap": fedlap.METHOD,
    "fedlap-dp": fedlap_dp.METHOD,
    "local-only": local_only.METHOD,
    "3dgl": threedgl.METHOD,
    "ddp-vae": ddp_vae.METHOD,
    "dp-marginals": marginals.METHOD,
    "dp-feta": dp_feta.METHOD,
    "dpdm": dpdm.METHOD,
    "dp-merf": dp_merf.METHOD,
    "dp-gan": dp_gan.METHOD,
    "fedsgd-gauss": noisy_sgd.GAUSS,
    "fedsgd-laplace": noisy_sgd.LAPLACE,
    "fedsgd-clip": noisy_sgd.CLIP,
    "ldp-fedsgd": noisy_sgd.LDP,
    "dsc": dsc.METHOD,
    "psg": psg.METHOD,
    "psg-sites": psg.SITES,
    "feddm": feddm.METHOD,
    "feddm-dp": feddm_dp.METHOD,
}

"""Every method, by name. To add one: a file here, its test, and its line in this dict."""

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
from prismfl.methods.generators import ddp_vae, dp_feta, dp_gan, dp_merf, dpdm, threedgl
from prismfl.methods.gradients import fedem, fedem_dp, fedsgd, noisy_sgd
from prismfl.methods.landscape import dsc, feddm, fedlap, fedlap_dp, psg
from prismfl.methods.prism import client as prism_client
from prismfl.methods.prism import head as prism_head
from prismfl.methods.prism import local as prism_local
from prismfl.methods.prism import prism

METHODS: dict[str, Method] = {
    m.METHOD.name: m.METHOD
    for m in (
        prism,
        prism_local,
        prism_client,
        prism_head,
        fedsgd,
        fedem,
        fedem_dp,
        fedavg,
        fedprox,
        scaffold,
        dp_fedavg,
        dp_fedprox,
        dp_fedavg_client,
        dp_central,
        fedlap,
        fedlap_dp,
        local_only,
        threedgl,
        ddp_vae,
        dp_feta,
        dpdm,
        dp_merf,
        dp_gan,
    )
}
METHODS |= {m.name: m for m in (*noisy_sgd.METHODS, dsc.METHOD, *psg.METHODS, *feddm.METHODS)}

"""Every method, by name. To add one: a file here, its test, and its line in this dict."""

from __future__ import annotations

from prismfl.method import Method
from prismfl.methods import (
    ddp_vae,
    dp_central,
    dp_fedavg,
    dp_fedavg_client,
    dp_fedprox,
    dp_feta,
    dp_gan,
    dp_merf,
    dpdm,
    dsc,
    fedavg,
    feddm,
    fedem,
    fedem_dp,
    fedlap,
    fedlap_dp,
    fedprox,
    fedsgd,
    local_only,
    noisy_sgd,
    prism,
    prism_client,
    prism_head,
    prism_local,
    psg,
    scaffold,
    threedgl,
)

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

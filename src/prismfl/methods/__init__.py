"""Every method, by name. To add one: `methods/<family>/x.py`, `tests/methods/test_x.py`, and its line in this dict.

A method is imported when it is asked for: a run of one of them need not load the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

from prismfl.core.method import Method


class Methods(MutableMapping[str, Method]):
    """Methods by name, each from its place ("family.module:NAME") once it is used."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._found: dict[str, Method | str] = dict(places)

    def __getitem__(self, name: str) -> Method:
        found = self._found[name]
        if isinstance(found, str):
            module, _, inner = found.partition(":")
            self._found[name] = found = getattr(import_module(f"{__name__}.{module}"), inner)
            assert isinstance(found, Method)
        return found

    def __setitem__(self, name: str, method: Method) -> None:
        self._found[name] = method

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


METHODS = Methods(
    {
        "prism": "prism.prism:METHOD",
        "prism-local": "prism.local:METHOD",
        "prism-client": "prism.client:METHOD",
        "prism-head": "prism.auto:HEAD",
        "fedsgd": "gradients.fedsgd:METHOD",
        "fedem": "gradients.fedem:METHOD",
        "fedem-dp": "gradients.fedem_dp:METHOD",
        "fedavg": "averaging.fedavg:METHOD",
        "fedprox": "averaging.fedprox:METHOD",
        "scaffold": "averaging.scaffold:METHOD",
        "dp-fedavg": "averaging.dp_fedavg:METHOD",
        "dp-fedprox": "averaging.dp_fedprox:METHOD",
        "dp-fedavg-client": "averaging.dp_fedavg_client:METHOD",
        "dp-central": "averaging.dp_central:METHOD",
        "fedlap": "landscape.fedlap:METHOD",
        "fedlap-dp": "landscape.fedlap_dp:METHOD",
        "local-only": "averaging.local_only:METHOD",
        "3dgl": "generators.threedgl:METHOD",
        "ddp-vae": "generators.ddp_vae:METHOD",
        "dp-marginals": "generators.marginals:METHOD",
        "dp-feta": "generators.dp_feta:METHOD",
        "dpdm": "generators.dpdm:METHOD",
        "dp-merf": "generators.dp_merf:METHOD",
        "dp-gan": "generators.dp_gan:METHOD",
        "fedsgd-gauss": "gradients.noisy_sgd:GAUSS",
        "fedsgd-laplace": "gradients.noisy_sgd:LAPLACE",
        "fedsgd-clip": "gradients.noisy_sgd:CLIP",
        "ldp-fedsgd": "gradients.noisy_sgd:LDP",
        "dsc": "landscape.dsc:METHOD",
        "psg": "landscape.psg:METHOD",
        "psg-sites": "landscape.psg:SITES",
        "feddm": "landscape.feddm:METHOD",
        "feddm-dp": "landscape.feddm_dp:METHOD",
    }
)

"""DPDM: DP-SGD of a diffusion model, DP-FETA without central images."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from prismfl.methods import METHODS
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody


def test_it_is_dp_feta_without_central_images() -> None:
    assert settings("dpdm").model_dump()["easy"] == "none"
    assert METHODS["dpdm"].client is METHODS["dp-feta"].client
    tiny = dict(METHODS["dpdm"].tiny)
    one = answer("dpdm", **tiny)
    two = answer("dp-feta", easy="none", **tiny)
    assert one.leaves["generator"].digest == two.leaves["generator"].digest


def test_it_cannot_be_asked_for_them() -> None:
    with pytest.raises(ValidationError, match="easy"):
        settings("dpdm", easy="mean")


def test_the_meter_reads_what_was_planned() -> None:
    told = answer("dpdm", sigma=1.4)
    assert told.cost == told.job.plan()
    assert told.cost.private


def test_without_queries_for_central_images_it_costs_less() -> None:
    plain, fetched = job_of("dpdm", sigma=1.4).plan(), job_of("dp-feta", sigma=1.4).plan()
    assert sum(n for _, n in plain.branches[0]) < sum(n for _, n in fetched.branches[0])


@pytest.mark.parametrize("share", ["generator", "samples"])
def test_what_leaves_has_the_declared_shape_whatever_the_site_holds(share: str) -> None:
    told = answer("dpdm", share=share)
    empty = answer("dpdm", share=share, records=nobody())
    assert told.shapes() == empty.shapes() == told.job.shapes


def test_another_noise_is_another_generator() -> None:
    one, two = (answer("dpdm", noise=n).leaves["generator"].digest for n in (0, 1))
    assert one != two

"""The sites of the audit: their files are read as they are meant, and a record that cannot be is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.adversary.audits import hostile_patients
from prismfl.adversary.audits.hostile_site import RECORDS, WORLDS, write_data
from prismfl.site import data as site_data
from prismfl.site.config import SiteConfig


@pytest.mark.parametrize("kind", hostile_patients.KINDS)
@pytest.mark.parametrize("world", WORLDS)
def test_a_world_differs_from_all_by_one_record(kind: str, world: str, tmp_path: Path) -> None:
    own = write_data(tmp_path / "own", kind, world)
    config = SiteConfig(name="north", methods=["prism"], releases=["statistics"], **own)
    data = site_data.read(config)
    assert data.spec.kind == kind
    expected = {"without": RECORDS - 1, "out of bounds": RECORDS + 1}.get(world, RECORDS)
    assert len(data.records) == expected
    assert data.left_out == (world in ("label", "unreadable"))
    assert float(data.records.x.any(1).float().mean()) > 0.8  # a report that is missing is a value


def test_rows_hold_an_empty_record_and_a_full_one() -> None:
    x, y = hostile_patients.rows("patient", RECORDS)
    assert len(x) == len(y) == RECORDS
    assert not x[0].any()
    assert bool((x[-1] == 255).all())

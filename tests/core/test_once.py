"""One holder, one release: whom the ledger knows the data by."""

from __future__ import annotations

import pytest
import torch

from prismfl.core.once import refuse_seeded, unit_prints
from prismfl.core.records import Records
from prismfl.errors import UserError
from prismfl.privacy.ledger.admission import Cap


def test_people_are_known_by_their_codes_each_once() -> None:
    x, y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    assert list(unit_prints(Records(x, y))) == []
    found = list(unit_prints(Records(x, y, torch.tensor([7, -1, 7, 2**40]))))
    assert sorted(found) == sorted(code.to_bytes(8, "little", signed=True) for code in (-1, 7, 2**40))


def test_seeded_noise_is_refused_where_data_have_a_cap() -> None:
    refuse_seeded(None, deployed=False)
    refuse_seeded(Cap(1.0, 1e-5), deployed=True)
    with pytest.raises(UserError, match="protects nobody"):
        refuse_seeded(Cap(1.0, 1e-5), deployed=False)

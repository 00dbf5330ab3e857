"""The words for where noise comes from: told apart by how they begin, and without torch."""

from __future__ import annotations

import subprocess
import sys

from prismfl.sources import DEPLOYMENT, NO_PROTECTION, SIMULATION


def test_a_seed_and_the_operating_system_are_told_apart_by_their_first_word() -> None:
    assert SIMULATION.startswith("seeded")
    assert DEPLOYMENT.startswith("operating")
    assert NO_PROTECTION.endswith("no protection")


def test_the_words_need_no_torch() -> None:
    code = "import sys; import prismfl.sources; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"

"""Every module of the package has a test file at the mirrored path: `a/b.py` is tested by `tests/a/test_b.py`.

A folder in a folder may be left out of the path, where the name is then still one module's:
`tests/methods/test_fedavg.py` is for `methods/averaging/fedavg.py`, and `tests/methods/test_prism_head.py` is for
`methods/prism/head.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "prismfl"
# Modules that are tested elsewhere. This list only shrinks: write the file, and take the line off.
_LISTED = """
adversary/attacks/lbfgs
adversary/audits/bounds
adversary/audits/hostile
adversary/audits/hostile_play
adversary/audits/hostile_processes
adversary/audits/hostile_site
adversary/audits/hostile_sums
adversary/audits/one_run
adversary/audits/own_files
adversary/audits/steps
adversary/audits/trial
adversary/audits/two_worlds
adversary/audits/watcher
adversary/cases/foreign
adversary/cases/gradients
adversary/cases/membership
adversary/cases/population
adversary/on_run
adversary/scores/membership
adversary/scores/population
adversary/scores/reconstruction
adversary/view
cli/audit
cli/terminal
core/method
core/wire
kernels/clipped_gradients
kernels/double_backward
kernels/fast_conv
kernels/first_block
kernels/layer_gradients
kernels/loss
kernels/per_record
kernels/plane_norm
kernels/row_by_row
kernels/wide_layers
privacy/shares
report/listings
report/norms
report/sites
secure/masking
secure/roster
server/app
server/running
server/serving
server/starting
site/app
site/config
site/keys
site/making
site/policy
synth/arrays
synth/ways
transport/faults
transport/flower/adapter
transport/flower/children
transport/flower/guard
transport/inbox
transport/post
"""
ELSEWHERE = frozenset(_LISTED.split())


def modules() -> list[str]:
    found = (path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*.py"))
    return sorted(name for name in found if not name.rpartition("/")[2].startswith("__"))


def mirrors(module: str) -> list[Path]:
    """The places where a module's test file may lie."""
    folder, _, name = module.rpartition("/")
    room, _, inner = folder.partition("/")
    places = [TESTS / folder / f"test_{name}.py"]
    if inner:
        places.append(TESTS / room / f"test_{inner.replace('/', '_')}_{name}.py")
        alike = [other for other in modules() if other.startswith(f"{room}/") and other.endswith(f"/{name}")]
        places += [TESTS / room / f"test_{name}.py"] if alike == [module] else []
    return places


def is_tested(module: str) -> bool:
    return any(place.is_file() for place in mirrors(module))


@pytest.mark.parametrize("module", [name for name in modules() if name not in ELSEWHERE])
def test_a_module_has_its_test_file(module: str) -> None:
    words = " or ".join(str(place.relative_to(TESTS.parent)) for place in mirrors(module))
    assert is_tested(module), f"src/prismfl/{module}.py has no test file; write {words}"


def test_the_list_of_exceptions_only_shrinks() -> None:
    gone = sorted(ELSEWHERE - set(modules()))
    tested = sorted(name for name in ELSEWHERE & set(modules()) if is_tested(name))
    assert not gone, f"these modules are no more: take them off the list: {', '.join(gone)}"
    assert not tested, f"these modules have their test file: take them off the list: {', '.join(tested)}"

"""`pneumonia-reports`: films and reports of other people put in pairs, by the label and by a second trait.

Nobody has published films with their reports that may be used here, so pairs are made: a PneumoniaMNIST film and an
Indiana University report of the same label (normal or not), both from the training part or both from the test part,
each used once. The second trait is hidden: of the films of a label those that are brighter in the middle go with the
reports that deny an effusion or a pneumothorax by name, the darker ones with those that do not; as many are brighter as
there are such reports. So film and report of a pair have more in common than their label, which is what cross moments
can carry. The order is seeded.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.data.declared_parts import PNEUMONIA_REPORTS, REPORT_BYTES
from prismfl.data.manifest import FILES, read_checked
from prismfl.data.spec import Dataset, Spec
from prismfl.data.split import stratified
from prismfl.data.stored import read_npz
from prismfl.data.text_sets import XrayReport, as_rows, read_reports
from prismfl.data.texts import text_bytes

Codes = npt.NDArray[np.int64]
TRAIN, TEST = (1000, 2000), (200, 380)  # pairs of each label
REPORTS_TRAIN = 3142  # as `xray-reports` divides them
_DENIES = re.compile(r"\b(?:no|without)\b[^.]*\b(?:effusion|pneumothorax)", re.IGNORECASE)
_SEED = 0x9A125


def brightness(films: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """How bright a film is in the middle."""
    edge = films.shape[1] // 4
    found: npt.NDArray[np.float64] = films[:, edge:-edge, edge:-edge].reshape(len(films), -1).mean(1)
    return found


def denies(reports: list[XrayReport]) -> npt.NDArray[np.bool_]:
    """Whether a report denies an effusion or a pneumothorax by name."""
    return np.array([bool(_DENIES.search(report.text)) for report in reports])


def pairs(
    films: tuple[Codes, npt.NDArray[np.float64]],
    reports: tuple[Codes, npt.NDArray[np.bool_]],
    counts: tuple[int, ...],
    *,
    seed: int,
) -> tuple[Codes, Codes]:
    """Places of films and of reports that belong together: the same label, and the brighter films with the reports that
    have the trait, in a random order among them."""
    rng = np.random.default_rng(np.random.SeedSequence([_SEED, seed]))
    left, right = [], []
    for label, count in enumerate(counts):
        mine = [rng.permutation(np.flatnonzero(labels == label))[:count] for labels, _ in (films, reports)]
        assert min(len(some) for some in mine) == count, f"fewer than {count} of label {label}"
        dark_first = mine[0][np.argsort(films[1][mine[0]], kind="stable")]
        without = int((~reports[1][mine[1]]).sum())
        left += [rng.permutation(dark_first[:without]), rng.permutation(dark_first[without:])]
        right += [mine[1][~reports[1][mine[1]]], mine[1][reports[1][mine[1]]]]
    order = rng.permutation(sum(counts))
    return np.concatenate(left)[order], np.concatenate(right)[order]


def read_paired(spec: Spec, folder: Path | None, subset: int | None) -> Dataset:
    """The pairs, in a training and a test part."""
    film_path, report_path = FILES[spec.name]
    arrays = read_npz(read_checked(folder, spec.name, film_path))
    reports = read_reports(read_checked(folder, spec.name, report_path))
    said = np.array([int(not report.normal) for report in reports])
    kept = stratified(said, len(said) - REPORTS_TRAIN)
    found = []
    for seed, (part, places, counts) in enumerate(zip(("train", "test"), kept, (TRAIN, TEST))):
        films, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"][:, 0].astype(np.int64)
        own = [reports[i] for i in places]
        left, right = pairs((labels, brightness(films)), (said[places], denies(own)), counts, seed=seed)
        given = {"image": np.maximum(films[left], 1), "text": text_bytes([own[i].text for i in right], REPORT_BYTES)}
        found.append((PNEUMONIA_REPORTS.joined(given), labels[left]))
    return as_rows(spec, (found[0], found[1]), subset=subset)

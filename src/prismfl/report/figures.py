"""Figures of runs as PNG files: learning curves, trust regions, and what the synthetic images look like.

What comes from messages that crossed, or from a public benchmark, may be shown. Accuracy on own records and
`gradient_norms` are exact numbers of records: those pictures are drawn on site only, and say that they stay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.core.payloads import Payload, SyntheticSet
from prismfl.data.pictures import grid, save_sheet
from prismfl.errors import UserError
from prismfl.report.charts import PALETTE, colour_of
from prismfl.report.editions import STAYS, is_own
from prismfl.report.groups import make_group
from prismfl.report.norms import norms_by_layer
from prismfl.runs.directory import Message, RunDirectory

STAGES = 3
STYLES = ("-", "--", ":", "-.")
COLUMNS = 10
Runs = Mapping[str, RunDirectory]


def named(paths: Sequence[Path]) -> dict[str, RunDirectory]:
    """Runs by a short name: the method, with the folder's name where a method comes twice."""
    opened = [(RunDirectory.open(path), path) for path in paths]
    methods = [str(run.read_json("config.json")["method"]) for run, _ in opened]
    return {
        method if methods.count(method) == 1 else f"{method} ({path.name})": run
        for method, (run, path) in zip(methods, opened)
    }


def draw(paths: Sequence[Path], folder: Path, *, on_site: bool = False) -> dict[str, Path | None]:
    """Every figure of runs into a folder; images are shown of the first. None where there is nothing to draw."""
    runs = named(paths)
    first = next(iter(runs.values()))
    made = {
        "progress": progress(runs, folder / f"{'on-site-' if on_site else ''}progress.png", on_site=on_site),
        "trust region": trust_region(runs, folder / "trust-region.png"),
        "images at three stages": stages(first, folder / "stages.png"),
        "pixel values": pixels(first, folder / "pixels.png"),
    }
    if on_site:
        made["gradient norms"] = gradient_norms(norms_by_layer(paths[0]), folder / "on-site-gradient-norms.png")
    return made


def shareable(runs: Runs) -> dict[str, RunDirectory]:
    """Those runs whose measurements are public: on a named benchmark."""
    return {name: run for name, run in runs.items() if not is_own(run.read_json("config.json"), _result(run))}


def _result(run: RunDirectory) -> Mapping[str, Any]:
    return run.read_json("result.json") if run.status == "finished" else {}


def progress(runs: Runs, path: Path, *, on_site: bool = False) -> Path | None:
    """Test accuracy over rounds, over epsilon where there is a guarantee, and over bytes that crossed. None where every
    run was measured on own records, unless it is drawn on site."""
    runs = runs if on_site else shareable(runs)
    if not runs:
        return None
    found = _by_group(runs)
    figure, panels = _canvas(3, rows=len(found))
    for (title, group), row in zip(found.items(), panels.reshape(len(found), 3)):
        _progress_row(group, row)
        if len(found) > 1:
            row[0].set_title(title, fontsize=9, loc="left")
    if on_site:
        _stamp(figure, "Measured on held-out records without noise")
    return _save(figure, path)


def _by_group(runs: Runs) -> dict[str, dict[str, RunDirectory]]:
    """The runs by data, unit, relation and delta: unlike ones have a row of panels each."""
    found: dict[str, dict[str, RunDirectory]] = {}
    for name, run in runs.items():
        config, result = run.read_json("config.json"), _result(run)
        promise = {key: result.get(key, config.get(key)) for key in ("unit", "relation", "delta")}
        found.setdefault(make_group(promise, config).words(), {})[name] = run
    return found


def _looks(runs: Runs) -> dict[str, dict[str, Any]]:
    """A colour a method, as on every page; the runs of one method differ by their dashes."""
    seen: dict[int, int] = {}
    found = {}
    for name, run in runs.items():
        colour = colour_of(str(run.read_json("config.json")["method"]))
        style = STYLES[seen.get(colour, 0) % len(STYLES)]
        seen[colour] = seen.get(colour, 0) + 1
        found[name] = {"color": PALETTE[colour], "linestyle": style, "marker": "o", "markersize": 3, "label": name}
    return found


def _progress_row(runs: Runs, panels: Sequence[Any]) -> None:
    by_round, by_epsilon, by_bytes = panels
    looks = _looks(runs)
    for name, run in runs.items():
        rows = [row for row in run.metrics() if row.get("accuracy") is not None]
        if not rows:
            raise UserError(f"The run in '{run.path}' has measured no accuracy yet.")
        scores = [row["accuracy"] for row in rows]
        by_round.plot([row["round"] for row in rows], scores, **looks[name])
        spent = [row["epsilon"] for row in rows]
        if None not in spent:
            by_epsilon.plot(spent, scores, **looks[name])
        crossed = np.cumsum([row["bytes_up"] + row["bytes_down"] for row in rows]) / 1e6
        by_bytes.plot(crossed, scores, **looks[name])
    for axes, label in ((by_round, "round"), (by_epsilon, "epsilon spent"), (by_bytes, "MB that crossed")):
        axes.set_xlabel(label)
        axes.set_ylabel("test accuracy, %")
        axes.grid(alpha=0.3)
    if not by_epsilon.lines:
        by_epsilon.text(0.5, 0.5, "no run has a guarantee", ha="center", transform=by_epsilon.transAxes)
    by_round.legend(fontsize=8)


def trust_region(runs: Runs, path: Path) -> Path | None:
    """How far and how many steps the server went in each kept round; None where no method says."""
    taken = {name: found for name, run in runs.items() if (found := _taken(run))}
    if not taken:
        return None
    figure, (radius, steps) = _canvas(2)
    looks = _looks({name: runs[name] for name in taken})
    for name, rounds in taken.items():
        radius.plot(list(rounds), [r for r, _ in rounds.values()], **looks[name])
        steps.plot(list(rounds), [s for _, s in rounds.values()], **looks[name])
    for axes, label in ((radius, "distance the server went"), (steps, "steps of the server")):
        axes.set_xlabel("round")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    radius.legend(fontsize=8)
    return _save(figure, path)


def stages(run: RunDirectory, path: Path) -> Path | None:
    """The first images of each class at three stages, one block of rows a stage; each image to its own range."""
    kept = _kept_images(run)
    if not kept:
        return None
    blocks = []
    for number in _stages(list(kept)):
        pooled = list(kept[number].values())
        x, y = torch.cat([s.x for s in pooled]), torch.cat([s.hard_y for s in pooled])
        blocks.append([_stretched(x[y == c][:COLUMNS]) for c in sorted(set(y.tolist()))])
    width = max(len(row) for block in blocks for row in block)
    rows = []
    for block in blocks:
        rows += [torch.cat([row, torch.ones(width - len(row), *row.shape[1:])]) for row in block]
        rows.append(torch.ones(width, *block[0].shape[1:]))
    save_sheet(grid(torch.cat(rows[:-1]), width), path)
    return path


def pixels(run: RunDirectory, path: Path) -> Path | None:
    """How pixel values are spread at each site, stage by stage."""
    kept = _kept_images(run)
    if not kept:
        return None
    chosen = _stages(list(kept))
    figure, panels = _canvas(len(chosen))
    for axes, number in zip(panels, chosen):
        values = {site: made.x.flatten().numpy() for site, made in kept[number].items()}
        low, high = np.percentile(np.concatenate(list(values.values())), [0.5, 99.5])
        for site, value in values.items():
            axes.hist(value, bins=60, range=(low, high), histtype="step", density=True, label=site)
        axes.set_title(f"round {number + 1}", fontsize=10)
        axes.set_xlabel("pixel value")
        axes.set_ylabel("density")
    panels[0].legend(fontsize=7)
    return _save(figure, path)


def gradient_norms(norms: Mapping[str, tuple[Sequence[float], Sequence[float]]], path: Path) -> Path:
    """Norms of the gradient by layer, on the records and on the images: site -> (records, images)."""
    figure, panels = _canvas(min(len(norms), 5))
    for axes, (site, (real, made)) in zip(panels, norms.items()):
        place = np.arange(len(real))
        axes.bar(place - 0.2, real, 0.4, label="records")
        axes.bar(place + 0.2, made, 0.4, label="images")
        axes.set_title(site, fontsize=10)
        axes.set_xlabel("layer")
        axes.set_ylabel("norm of the gradient")
        axes.set_yscale("log")
    panels[0].legend(fontsize=8)
    _stamp(figure, "Taken from private records without noise")
    return _save(figure, path)


def _kept_images(run: RunDirectory) -> dict[int, dict[str, SyntheticSet]]:
    """The synthetic sets that went up, by round and site, of rounds that were kept whole and are complete."""
    found: dict[int, dict[str, SyntheticSet]] = {}
    for message in _whole(run, "up"):
        for payload in run.payloads(message).values():
            if isinstance(payload, SyntheticSet) and payload.x.ndim == 4:
                found.setdefault(message.round, {})[message.site] = payload
    most = max((len(sites) for sites in found.values()), default=0)
    return {number: sites for number, sites in sorted(found.items()) if len(sites) == most}


def _taken(run: RunDirectory) -> dict[int, tuple[float, int]]:
    """Distance and steps of the server by round; what round k did goes down with round k + 1."""
    found: dict[int, Mapping[str, Payload]] = {m.round: run.payloads(m) for m in _whole(run, "down")}
    last = run.load_state()
    if last is not None:
        found[last.round] = last.items
    return {
        number: (float(items["taken"].tensors["radius"]), int(items["taken"].tensors["steps"]))
        for number, items in sorted(found.items())
        if "taken" in items
    }


def _whole(run: RunDirectory, direction: str) -> list[Message]:
    return [m for m in run.messages() if m.direction == direction and m.file is not None]


def _stages(rounds: Sequence[int]) -> list[int]:
    picks = np.linspace(0, len(rounds) - 1, min(STAGES, len(rounds))).round().astype(int)
    return [rounds[i] for i in picks]


def _stretched(x: torch.Tensor) -> torch.Tensor:
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    return (x - low) / (high - low).clamp_min(1e-6)


def _canvas(columns: int, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its panels in a flat row, row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def _stamp(figure: Any, what: str) -> None:
    figure.suptitle(f"{what}: {STAYS}", fontsize=10, color="tab:red")


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write the picture {path}: {error}.") from None
    return path

"""The picture of a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.errors import UserError


def draw(counts: npt.NDArray[np.int64], classes: tuple[str, ...], path: Path) -> Path:
    """Write a bar for each site, its records stacked by class, as a picture; gives the path back."""
    # The object interface leaves the process-wide matplotlib backend alone.
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sites = len(counts)
    figure = Figure(figsize=(6.5, min(12.0, 1.6 + 0.32 * max(sites, 4))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    palette = colormaps["tab10" if len(classes) <= 10 else "tab20" if len(classes) <= 20 else "viridis"]
    start = np.zeros(sites, dtype=np.int64)
    for label, name in enumerate(classes):
        shade = label if len(classes) <= 20 else label / (len(classes) - 1)
        axes.barh(np.arange(sites), counts[:, label], left=start, color=palette(shade), label=name, height=0.8)
        start += counts[:, label]
    axes.invert_yaxis()
    axes.set_xlabel("records")
    axes.set_ylabel("site")
    # Past thirty sites, a tick for each would run into the next.
    axes.set_yticks(np.arange(0, sites, 1 + (sites - 1) // 30))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8, ncols=1 + (len(classes) - 1) // 20
    )
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write the picture {path}: {error}.") from None
    return path

"""`scale.md` and `scale.png` out of what was measured: cost by sites, records, parameters and rounds, and what larger
federations would need.

    python benchmarks/scale_page.py

Reads `results/scale.json` and `results/slopes.json` (scale.py), `results/real_sites.json` (real_sites.py) and
`results/large.json` (large.py). What is not there is said to be not measured; nothing is filled in by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alternate import RESULTS, say, table

PAGE = Path(__file__).with_name("scale.md")
PICTURE = Path(__file__).with_name("scale.png")
Row = Mapping[str, Any]
AXIS_WORDS = {
    "records": "One site by its records (20 steps, expected batch 256, MLP)",
    "parameters": "One site of 200 records by the numbers of its network (4 steps, MLP)",
    "rounds": "50 sites by rounds",
}
PHONES, HOSPITALS, SHARE = 100_000, 1_000, 0.01
RELEASE = 204_000  # bytes of the MLP in `dp-fedavg`
CPU_OF_SERVER, SERVER_PEAK, SITE_PEAK = "server's CPU ms a site and round", "server's peak MB", "a site's peak MB"
CORES, LINE = 16, 1e9 / 8  # of a server: cores, and bytes a second of its line


def read(name: str) -> dict[str, Any]:
    file = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The exponent b of y = a x^b, by least squares of the logarithms."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(logs) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread if spread else None


def by_sites(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each case and number of workers, by sites."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["sites"]):
        found.setdefault(f"{row['case']}, {row['workers']} worker{'s' if row['workers'] > 1 else ''}", []).append(row)
    return found


def by_axis(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["size"]):
        found.setdefault(row["axis"], []).append(row)
    return found


def words_of(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


def machine(rows: Sequence[Row]) -> str:
    told = sorted({str(row.get("measured on", "unknown")) for row in rows})
    return "; ".join(told) if told else "not measured"


def sites_part(rows: Sequence[Row]) -> str:
    if not rows:
        return "Not measured yet: `python benchmarks/scale.py --workers 1 2`.\n"
    lines = []
    for name, some in by_sites(rows).items():
        flat = slope([(row["sites"], row["CPU ms a site"]) for row in some])
        lines.append(
            f"- {name}: slope of CPU a site against sites on log axes {words_of(flat)} (0 is flat); "
            f"{some[0]['CPU ms a site']:.0f} ms at {some[0]['sites']:,} sites, {some[-1]['CPU ms a site']:.0f} ms at "
            f"{some[-1]['sites']:,}; peak memory {some[-1]['peak MB']} MB, {some[-1]['open files']} open files, "
            f"{some[-1]['disk kB a site']:.1f} kB of disk a site."
        )
    columns = ("case", "sites", "workers", "wall ms a site", "CPU ms a site", "peak MB", "open files", "disk kB a site")
    return table([{key: row[key] for key in columns} for row in rows]) + "\n" + "\n".join(lines) + "\n"


def axes_part(rows: Sequence[Row]) -> str:
    parts = []
    for axis, words in AXIS_WORDS.items():
        some = by_axis(rows).get(axis, [])
        if not some:
            parts.append(f"{words}: not measured yet, `python benchmarks/scale.py --axes {axis}`.\n")
            continue
        exponents = {key: slope([(row["size"], row[key]) for row in some[-3:]]) for key in ("wall s", "peak MB")}
        shown = [{axis: f"{row['size']:,}", "wall s": row["wall s"], "peak MB": row["peak MB"]} for row in some]
        parts.append(
            f"{words}:\n\n{table(shown)}\nOver the last decades time grows with the power "
            f"{words_of(exponents['wall s'])}, peak memory with {words_of(exponents['peak MB'])}.\n"
        )
    return "\n".join(parts)


def real_part(found: Mapping[str, Any]) -> str:
    idle, rounds = found.get("idle"), found.get("rounds")
    large = {key: value for key, value in found.items() if key.startswith("large")}
    lines = []
    if idle:
        site = idle["site"]
        lines.append(
            f"- An idle site, before the first request: {site['proportional MB']} MB in {idle['processes']} processes "
            f"with shared pages counted once ({site['resident MB']} MB resident); {idle['with torch']} have torch."
        )
    if rounds:
        lines.append(
            f"- {rounds['sites']} real sites over TLS, {rounds['rounds']} rounds: {rounds['median seconds a round']} s "
            f"a round in the median, {rounds[CPU_OF_SERVER]} ms of the server's CPU for a site and round, "
            f"{rounds[SERVER_PEAK]:.0f} MB at the server, {rounds[SITE_PEAK]:.0f} MB at a site; "
            f"faults: {', '.join(rounds['faults']) or 'none'} (load {rounds['load'][0]} on {rounds['cores']} cores)."
        )
    for one in large.values():
        lines.append(
            f"- Replies of {one['bytes of a reply'] / 1e6:.0f} MB from {one['sites']} sites at once, with "
            f"{one['busy processes beside']} busy processes beside: {one['status']}, faults: "
            f"{', '.join(one['faults']) or 'none'}; {one['seconds in all']} s; {one[SERVER_PEAK]:.0f} MB at the server."
        )
    return "\n".join(lines) + "\n" if lines else "Not measured yet: `python benchmarks/real_sites.py`.\n"


def larger_part(real: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """On paper, from what was measured here."""
    rounds = real.get("rounds")
    if not rounds:
        return "Needs `results/real_sites.json`: python benchmarks/real_sites.py rounds.\n"
    cpu = rounds[CPU_OF_SERVER] / 1000
    trip = rounds["median seconds a round"]
    lines = []
    for name, sites, share, count in (("phones", PHONES, SHARE, 1000), ("hospitals", HOSPITALS, 1.0, 100)):
        asked = sites * share
        work, moved = asked * cpu / CORES, 2 * asked * RELEASE / LINE
        seconds = max(trip, work, moved)
        neck = {trip: "Flower's round trip", work: "the SuperLink's CPU", moved: "the server's line"}[seconds]
        lines.append(
            {
                "federation": f"{sites:,} {name}",
                "asked a round": f"{asked:,.0f}",
                "rounds": f"{count:,}",
                f"server CPU s a round on {CORES} cores": round(work, 1),
                "GB a round, both ways": round(2 * asked * RELEASE / 1e9, 2),
                "s a round at least": round(seconds, 1),
                "hours in all": round(seconds * count / 3600, 1),
                "bottleneck": neck,
            }
        )
    here = ""
    simulated = [row for row in rows if row["case"] == "dp-fedavg"]
    if simulated:
        each = simulated[-1]["CPU ms a site"] / 1000
        here = (
            f"\nSimulated on one machine of {CORES} cores instead, {PHONES:,} phones at {100 * SHARE:g} % a round are "
            f"{PHONES * SHARE * each / CORES:.1f} s a round, {HOSPITALS:,} hospitals of 200 records each "
            f"{HOSPITALS * each / CORES:.1f} s.\n"
        )
    words = (
        f"Assumed: {RELEASE / 1000:g} kB a release, as dp-fedavg's MLP here; a server of {CORES} cores on a line of "
        f"{LINE * 8 / 1e9:g} Gbit/s; one SuperLink, whose work a site and round is what {rounds['sites']} real sites "
        f"cost here ({1000 * cpu:.0f} ms of CPU, linear in the sites: not measured beyond {rounds['sites']}). Sites "
        "compute beside each other, so their time is the slowest's and not in this table.\n"
    )
    warning = (
        "\nThe SuperLink is one process with one SQLite database: it uses one core for most of that work, so that with "
        "many sites a round takes up to the CPU seconds themselves. Beyond some thousand connected sites, several "
        "SuperLinks (a tree of servers) are needed; prismfl has no such tree.\n"
    )
    return words + "\n" + table(lines) + here + warning


def draw(rows: Sequence[Row], axes: Sequence[Row]) -> bool:
    """The curves on log axes."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {"sites": {}}
    for name, some in by_sites(rows).items():
        curves["sites"][name] = [(r["sites"], r["CPU ms a site"] * r["sites"] / 1000) for r in some]
    for axis, some in by_axis(axes).items():
        curves[axis] = {"wall": [(r["size"], r["wall s"]) for r in some]}
    curves = {axis: lines for axis, lines in curves.items() if lines}
    if not curves:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, len(curves), figsize=(4 * len(curves), 3.4), squeeze=False)
    for place, (axis, lines) in zip(places[0], curves.items()):
        for name, points in lines.items():
            exponent = slope(points)
            label = f"{name}: slope {exponent:.2f}" if exponent is not None else name
            place.plot(*zip(*points), marker="o", label=label)
        place.set(xscale="log", yscale="log", xlabel=axis, ylabel="CPU s" if axis == "sites" else "wall s")
        place.legend(fontsize=7)
        place.grid(True, which="both", alpha=0.2)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)
    return True


def page() -> str:
    rows, axes = read("scale").get("rows", []), read("slopes").get("rows", [])
    real, large = read("real_sites"), read("large")
    drawn = f"![cost on log axes]({PICTURE.name})\n\n" if draw(rows, axes) else ""
    tables = [table(large[part]) for part in ("disk", "network") if large.get(part)]
    disk = "\n".join(tables) or "Not measured yet: `python benchmarks/large.py disk` and `network`.\n"
    return f"""# Scale

Written by `python benchmarks/scale_page.py` from the files in `results/`; every number was measured, or follows from
measured ones as said.

## By sites

One machine, one round of every site, 200 records each (`scale.py`; {machine(rows)}).

{drawn}{sites_part(rows)}
## By records, parameters and rounds

`scale.py --axes` ({machine(axes)}).

{axes_part(axes)}
## Large data and networks

Records that are mapped from disk beside the same in memory, and one private step of a network of 100 MB under a
declared memory (`large.py`; load {large.get("machine", {}).get("load", ["not measured"])[0]} on two cores: of the times
only the ratio of alternated steps says something).

{disk}
## Real sites

{real_part(real)}
## On paper: 100,000 phones, 1,000 hospitals

{larger_part(real, rows)}"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    say(f"wrote {PAGE.name}" + (f" and {PICTURE.name}" if PICTURE.exists() else ""))


if __name__ == "__main__":
    main()

"""A site is made from its operator's words, and its own data are read anew where they or the words have changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from prismfl.data import DATASETS
from prismfl.errors import PrismError, UserError
from prismfl.files import schema
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.files.bounded import read_regular
from prismfl.methods import METHODS
from prismfl.runs.config import validate
from prismfl.site import data as site_data
from prismfl.site.config import SCHEMA, SiteConfig, as_toml, check_site, load_site
from prismfl.site.data import SiteData
from prismfl.site.folder import FILE
from prismfl.site.keys import KEY_LIMIT, make_site_keys

SHOWN = 20
Say = Callable[[str], None]


def declared_site(
    *,
    methods: Sequence[str],
    data: str,
    cap: str,
    schema: str | None,
    classes: Sequence[str] | None,
    bounds: str | None,
    part: str | None,
    honest: int | None,
    split: str | None = None,
    **plain: object,
) -> SiteConfig:
    """The config that options mean: lists with commas, 0/3 for a part, releases as the methods send them."""
    known = [METHODS[name] for name in methods if name in METHODS]
    kinds = {kind.kind for m in known for kind in m.leaves.values()} | (set() if honest is None else {"statistics"})
    own = {key: value for key, value in plain.items() if value is not None}
    given: dict[str, object] = {**own, "data": _absolute(data), "methods": list(methods), "releases": sorted(kinds)}
    given |= {
        "schema_file": schema and _absolute(schema),
        "honest": honest or 1,
        "bounds": bounds and bounds.split(","),
    }
    given["cap"] = cap if cap == "none" else _number(cap)
    given["classes"] = list(classes) if classes else None
    if part is not None:
        first, _, second = part.partition("/")
        given |= {"part": first, "parts": second, **({} if split is None else {"split": split})}
    elif split is not None:
        raise UserError(f"--split {split} deals a named data set over trial sites; say which part this is: --part 0/3.")
    config: SiteConfig = validate(SiteConfig, given, "the options")
    return check_site(config)


def make_site(folder: Path, config: SiteConfig, *, ca: Path | None, say: Say) -> None:
    """Keys, site.toml and what is read of the data. Nothing is made before all of it is known to be right."""
    config, taken = site_data.declare(config)
    found = None if config.data in DATASETS else site_data.read(config)
    if ca is not None and not ca.is_file():
        raise UserError(f"No certificate at '{ca}'.")
    make_folder(folder, closed=True)
    folder.chmod(0o700)
    make_site_keys(folder / "keys")
    if ca is not None:
        write_atomically(folder / "keys" / "ca.pem", read_regular(ca, limit=KEY_LIMIT))
    write_atomically(folder / FILE, as_toml(config).encode())
    schema.begin(folder, SCHEMA)
    if found is not None:
        site_data.keep(folder, config, found)
        if taken:
            say(f"{', '.join(taken)}: declared from your files; they count as public from now on")
        _tell_left_out(found, say)


def reread(folder: Path, config: SiteConfig, say: Say, *, always: bool) -> SiteData | None:
    """Own data read anew where they or site.toml have changed (or `always`), with a line that says so."""
    if config.data in DATASETS:
        return None
    why = site_data.stale(folder, config)
    if why is None and not always:
        return None
    say(f"reading the data: {why or 'nothing has changed'}")
    data = site_data.prepare(folder, config)
    _tell_left_out(data, say)
    return data


def _tell_left_out(data: SiteData, say: Say) -> None:
    """For the operator's own terminal: what to know of the data, and which records were left out, without what stands
    in them."""
    for line in data.notices:
        say(f"warning: {line}")
    if data.left_out:
        say(f"warning: {data.left_out} records were left out: they are not what the facts in {FILE} say")
    for fault in data.faults[:SHOWN]:
        say(f"  record {fault.row}: {fault.what}{fault.place and ', ' + fault.place}")
    if data.left_out > SHOWN and data.faults:
        say(f"  and {data.left_out - SHOWN} more")


def _absolute(data: str) -> str:
    return str(Path(data).resolve()) if Path(data).exists() else data


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"Expected --cap as a number or \"none\", got '{text}'.") from None


def main() -> None:
    """`reread` for another process, which stays light: each line as JSON, and what is wrong as the last of them."""

    def tell(**told: str) -> None:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    folder = Path(sys.argv[1])
    try:
        reread(folder, load_site(folder, thorough=False), lambda line: tell(say=line), always=False)
    except PrismError as error:
        tell(error=str(error))


if __name__ == "__main__":
    main()

"""The answers of a round on the server's disk, read one at a time: memory does not grow with the number of sites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prismfl.core.payloads import Items, decode
from prismfl.files.atomic import write_atomically


class Inbox(Mapping[str, Items]):
    """The releases of a round, on disk; each is read when it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, site: str, raw: bytes) -> None:
        write_atomically(self._path(site), raw)

    def raw(self, site: str) -> bytes:
        return self._path(site).read_bytes()

    def drop(self, site: str) -> None:
        self._path(site).unlink(missing_ok=True)

    def refuse(self, site: str) -> None:
        """Take a site's release out for good: it is not read again, and the site is not asked again this round."""
        write_atomically(self.folder / f"{site}.refused", b"")
        self.drop(site)

    @property
    def refused(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.refused")}

    def clear(self) -> None:
        for path in self.folder.glob("*"):
            path.unlink()
        if self.folder.exists():
            self.folder.rmdir()

    def __getitem__(self, site: str) -> Items:
        if site not in set(self):
            raise KeyError(site)
        return decode(self.raw(site))[0]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.folder.glob("*.safetensors")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, site: str) -> Path:
        return self.folder / f"{site}.safetensors"


class Raw(Mapping[str, bytes]):
    """The answers of some sites as bytes; each is read when it is used."""

    def __init__(self, inbox: Inbox, sites: Iterable[str]) -> None:
        self.inbox, self.sites = inbox, tuple(sites)

    def __getitem__(self, site: str) -> bytes:
        if site not in self.sites:
            raise KeyError(site)
        return self.inbox.raw(site)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

"""The answers of one turn of a round, as they arrive: on the server's disk, or in memory where all sites are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from prismfl.core.payloads import Items, decode
from prismfl.files.atomic import write_atomically


class Inbox(Mapping[str, Items]):
    """The releases of a round, on disk; each is read when it is used: memory does not grow with the number of sites."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, site: str, raw: bytes, items: Items | None = None) -> None:
        """Keep what a site sent; `items` are what it holds, where that was read already."""
        write_atomically(self._path(site), raw)

    def raw(self, site: str) -> bytes:
        """What the site sent, byte for byte."""
        return self._path(site).read_bytes()

    def drop(self, site: str) -> None:
        """Forget what the site sent; it may be asked again."""
        self._path(site).unlink(missing_ok=True)

    def refuse(self, site: str) -> None:
        """Take a site's release out for good: it is not read again, and the site is not asked again this round."""
        write_atomically(self.folder / f"{site}.refused", b"")
        self.drop(site)

    @property
    def refused(self) -> set[str]:
        """The sites whose releases were taken out for good."""
        return {path.stem for path in self.folder.glob("*.refused")}

    def close(self) -> None:
        """Nothing is added any more: a killed server goes on with the same answers."""
        write_atomically(self.folder / "closed", b"")

    @property
    def closed(self) -> bool:
        """Whether the inbox was closed, by this process or an earlier one."""
        return (self.folder / "closed").exists()

    def clear(self) -> None:
        """Remove all of it."""
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


class MemoryInbox(Inbox):
    """The same in memory, for sites of this process: killed, they send the same again from their ledgers, for free."""

    def __init__(self) -> None:
        self._raw: dict[str, bytes] = {}
        self._items: dict[str, Items] = {}
        self._refused: set[str] = set()

    def put(self, site: str, raw: bytes, items: Items | None = None) -> None:
        """Keep what the site's answer holds where it was read already, else its bytes."""
        if items is None:
            self._raw[site] = raw
        else:
            self._items[site] = items

    def raw(self, site: str) -> bytes:
        """What the site sent, byte for byte, where it was put as bytes alone."""
        return self._raw[site]

    def drop(self, site: str) -> None:
        """Forget what the site sent; it may be asked again."""
        self._raw.pop(site, None)
        self._items.pop(site, None)

    def refuse(self, site: str) -> None:
        """Take a site's release out for good, and note that it was."""
        self._refused.add(site)
        self.drop(site)

    @property
    def refused(self) -> set[str]:
        """The sites whose releases were taken out for good."""
        return set(self._refused)

    def close(self) -> None:
        """Nothing outlives this process, so nothing is kept."""

    @property
    def closed(self) -> bool:
        """Never: no earlier process can have closed it."""
        return False

    def clear(self) -> None:
        """Forget all answers; who was refused is kept."""
        self._raw, self._items = {}, {}

    def __getitem__(self, site: str) -> Items:
        return self._items[site]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._raw, *self._items])


class Raw(Mapping[str, bytes]):
    """The answers of an inbox as bytes; each is read when it is used."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox, self.sites = inbox, tuple(inbox)

    def __getitem__(self, site: str) -> bytes:
        if site not in self.sites:
            raise KeyError(site)
        return self.inbox.raw(site)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

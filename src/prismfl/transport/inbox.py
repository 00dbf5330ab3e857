"""The answers of one turn of a round, as they arrive: on the server's disk, or in memory where all sites are.

However many sites there are, memory holds a few of their releases: a method that folds takes each in and lets it go,
and what does not fit is asked for again when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from prismfl.core.method import Folding
from prismfl.core.payloads import Items, decode
from prismfl.files.atomic import write_atomically


class Inbox(Mapping[str, Items]):
    """The releases of a round, on disk; each is read when it is used: memory does not grow with the number of sites."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    folds = False  # whether answers are best asked for by the names of their sites

    def folded(self) -> Folding | None:
        """The step that has taken all answers in, where they were."""
        return None

    def skip(self, site: str) -> None:
        """Nothing will come from a site in this turn."""

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
    """The same in memory, for sites of this machine: killed, they send the same again, for free.

    Up to `room` bytes are held; of what is beyond that, `again` gives the same bytes when it is used. With a `folding`
    nothing is held but what arrived before its turn: releases are taken in by the names of the sites `expected`.
    """

    def __init__(
        self,
        *,
        again: Callable[[str], bytes] | None = None,
        room: int | None = None,
        folding: Folding | None = None,
        expected: Sequence[str] = (),
    ) -> None:
        self._raw: dict[str, bytes] = {}
        self._items: dict[str, Items | None] = {}
        self._refused: set[str] = set()
        self._again, self._room, self._folding = again, room, folding
        self.folds = folding is not None
        self._expected = sorted(expected, reverse=True)
        self._early: dict[str, Items | None] = {}

    def put(self, site: str, raw: bytes, items: Items | None = None) -> None:
        """Keep what the site's answer holds where it was read already, else its bytes."""
        if items is None:
            self._raw[site] = raw
        elif self._folding is not None:
            self._items[site] = None
            self._early[site] = items
            self._take_in()
        elif self._again is None or self._room is None or len(raw) <= self._room:
            self._room = None if self._room is None else self._room - len(raw)
            self._items[site] = items
        else:
            self._items[site] = None

    def skip(self, site: str) -> None:
        """Nothing will come from a site: the others need not wait for it."""
        if self._folding is not None and site not in self._items:
            self._early[site] = None
            self._take_in()

    def _take_in(self) -> None:
        while self._expected and self._expected[-1] in self._early:
            items = self._early.pop(self._expected.pop())
            if items is not None and self._folding is not None:
                self._folding.add(items)

    def folded(self) -> Folding | None:
        """The step that has taken all answers in; who has not answered by now is left out."""
        for site in self._expected:
            self.skip(site)
        return self._folding

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
        items = self._items[site]
        if items is None:
            assert self._again is not None, "what is not held can be asked for again"
            return decode(self._again(site))[0]
        return items

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

"""When each site was last there."""

from __future__ import annotations

from pathlib import Path

from prismfl.server.contacts import contacts, note_contacts


def test_contacts_are_noted_every_two_seconds_at_most_and_outlive_the_process(tmp_path: Path) -> None:
    moments = iter([100.0, 101.0, 103.0, 200.0])
    note = note_contacts(tmp_path, lambda: next(moments))
    note(["north"])
    note(["south"])
    assert contacts(tmp_path) == {"north": 100.0}
    note([])
    assert contacts(tmp_path) == {"north": 100.0, "south": 101.0}
    note_contacts(tmp_path, lambda: next(moments))(["south"])
    assert contacts(tmp_path) == {"north": 100.0, "south": 200.0}

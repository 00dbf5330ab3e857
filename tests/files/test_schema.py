"""Folders that last carry a number: another one is refused in one line, none is the format of before."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.files import schema
from prismfl.server.config import ServerConfig, init_server, load_server
from prismfl.site.config import load_site
from tests.site.folders import make_site


def test_a_folder_of_before_has_format_one_and_is_marked(tmp_path: Path) -> None:
    schema.check(tmp_path, schema.BEFORE)
    with pytest.raises(UserError, match=r"in format 1, prismfl .* reads 2"):
        schema.check(tmp_path, 2)
    schema.begin(tmp_path, 1)
    schema.begin(tmp_path, 1)
    schema.check(tmp_path, 1)
    with pytest.raises(UserError, match="reads 2"):
        schema.begin(tmp_path, 2)


@pytest.mark.parametrize("text", ['{"schema": 99, "prismfl": "9.0"}', '{"schema": true}', "[]", "3"])
def test_a_site_and_a_server_of_a_later_format_are_refused(tmp_path: Path, text: str) -> None:
    folder = make_site(tmp_path, "north").folder
    init_server(tmp_path / "server", ServerConfig(), ["127.0.0.1"])
    (folder / "state.json").write_text(text)
    (tmp_path / "server" / "state.json").write_text(text)
    with pytest.raises(UserError, match="use the version that wrote it, or a newer one"):
        load_site(folder)
    with pytest.raises(UserError, match="use the version that wrote it, or a newer one"):
        load_server(tmp_path / "server")

"""What `deploy/` holds: closed containers, sandboxed units, nothing that moves by itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
LONG = [path for path in UNITS if "backup" not in path.name]
SANDBOX = {
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "CapabilityBoundingSet": "",
    "User": "prismfl",
    "UMask": "0077",
}


def settings(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if re.match(r"[A-Z]\w+=", line))


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.name)
def test_a_unit_is_sandboxed(path: Path) -> None:
    found = settings(path)
    assert {key: found.get(key) for key in SANDBOX} == SANDBOX
    assert "MemoryMax" in found
    assert found["ReadWritePaths"] == "/var/lib/prismfl"
    assert found["ExecStart"].startswith("/opt/prismfl/bin/prismfl ")


def as_installed(place: Path) -> str:
    """The units under the names of one site, and systemd's tool."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze at hand")
    for other in DEPLOY.glob("prismfl-*"):
        text = other.read_text().replace("/opt/prismfl/bin/prismfl", sys.executable)
        (place / other.name.replace("@", "@north")).write_text(text)
    return tool


@pytest.mark.parametrize("path", [*UNITS, DEPLOY / "prismfl-backup@.timer"], ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(path: Path, tmp_path: Path) -> None:
    tool, unit = as_installed(tmp_path), tmp_path / path.name.replace("@", "@north")
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60)
    if "Failed to" in done.stderr and "manager" in done.stderr:
        pytest.skip("systemd-analyze cannot work here")
    words = [line for line in done.stderr.splitlines() if unit.name in line]
    assert words == []


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_calls_a_unit_little_exposed(path: Path, tmp_path: Path) -> None:
    """Of 10, for a service without any sandbox, at most 2.5."""
    tool, unit = as_installed(tmp_path), path.name.replace("@", "@north")
    command = [tool, "security", "--offline=true", "--threshold=25", "--no-pager", f"./{unit}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze looks at running services alone")
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@pytest.mark.parametrize("name", ["site", "server"])
def test_an_image_has_no_root_and_no_moving_part(name: str) -> None:
    text = (DEPLOY / f"{name}.Dockerfile").read_text()
    assert re.search(r"^ARG BASE=python:\d+\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}$", text, re.M)
    assert re.search(r"^USER 10001:10001$", text, re.M)
    installs = re.findall(r"pip install [^\n]*", text)
    assert len(installs) == 2
    assert all("-c constraints.txt" in line for line in installs)
    assert "latest" not in text
    assert "curl" not in text


def test_every_service_of_the_trial_is_closed() -> None:
    told: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    assert set(told["services"]) == {"found", "server", "north", "south", "west"}
    for name, service in told["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["user"] == "10001:10001", name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        assert "ports" not in service, name
    assert told["networks"]["federation"]["internal"] is True


def test_every_volume_belongs_to_the_user_that_writes_to_it() -> None:
    """The bug: a new volume takes its owner from the folder below it; where the image has none, that is root, and a
    container without root could not write a single file of the trial."""
    told: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    for name, service in told["services"].items():
        image = (DEPLOY.parent / service["build"]["dockerfile"]).read_text()
        (made,) = re.findall(r"install -d -o 10001 -g 10001 -m 0700 ([^\n]*)", image)
        places = [volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")]
        assert set(places) <= set(made.split()), name
        assert "working_dir" not in service, name  # made by root, if it is not there yet


def test_the_founding_script_is_plain_sh() -> None:
    subprocess.run(["/bin/sh", "-n", str(DEPLOY / "found.sh")], check=True)

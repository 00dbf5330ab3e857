"""A real Chromium, driven over its debugging socket: what it loads, what it logs, how wide the page gets."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prismfl.methods import METHODS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120.0
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT_OFF = """[...document.querySelectorAll('figure > svg text')].filter(t => {
  const a = t.getBoundingClientRect(), b = t.closest('svg').getBoundingClientRect();
  return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 3 || a.bottom > b.bottom + 3;
}).map(t => t.textContent)"""
MARKS = """[...document.querySelectorAll('.legend svg > *')].map(s => {
  const a = s.getBoundingClientRect();
  return Math.max(a.width, a.height);
})"""
COLOURS = """[...document.querySelectorAll('.legend li')].map(li => {
  const look = getComputedStyle(li.querySelector('circle, path'));
  return [li.textContent.split(',')[0], li.querySelector('circle') ? look.fill : look.stroke];
})"""


def on_screen(colour: str) -> str:
    """A colour of the palette as a browser tells it."""
    return f"rgb({int(colour[1:3], 16)}, {int(colour[3:5], 16)}, {int(colour[5:], 16)})"


def check_looks(browser: Browser, widths: tuple[int, ...] = (360, 390, 1200)) -> dict[str, str]:
    """Nothing is too wide, no letter of a chart is cut off, legends are small; a method's colour, which is one."""
    colours: dict[str, set[str]] = {}
    for width in widths:
        browser.size(width)
        assert browser.js(SIDEWAYS) <= 0, f"the page is too wide at {width}"
        cut = browser.js(CUT_OFF)
        assert cut == [], f"letters of a chart are cut off at {width}: {cut}"
        assert all(0 < size <= 30 for size in browser.js(MARKS)), "the signs of a legend are as large as a chart"
    for name, colour in browser.js(COLOURS):
        if name in METHODS:
            colours.setdefault(name, set()).add(colour)
    assert all(len(found) == 1 for found in colours.values()), colours
    return {name: found.pop() for name, found in colours.items()}


def check_print(browser: Browser) -> None:
    """On paper (A4 between its margins) nothing is wider than the page, and no table is scrolled."""
    browser.size(688)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        wide = "[...document.querySelectorAll('table, figure, dl')].filter(t => t.getBoundingClientRect().right > 689)"
        found = browser.js(f"{wide}.map(t => t.outerHTML.slice(0, 200))")
        assert found == [], f"wider than paper: {found}"
        assert browser.js(SIDEWAYS) <= 0
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


class Browser:
    """One tab. Requests, console messages and exceptions are kept from the start."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.count = socket, 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.loaded = 0
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE))
            if message.get("id") == self.count:
                assert "error" not in message, message
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        name, params = message.get("method"), message.get("params", {})
        if name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif name == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif name in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(params)[:300])
        elif name == "Page.loadEventFired":
            self.loaded += 1

    def go(self, address: str) -> None:
        before = self.loaded
        self.call("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE
        while self.loaded == before and time.monotonic() < end:
            self.js("1")
            time.sleep(0.05)
        assert self.loaded > before, "the page did not load"

    def js(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def size(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def until(self, expression: str, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.2)


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium at hand")
    client = pytest.importorskip("websockets.sync.client")
    profile = folder / "profile"
    process = subprocess.Popen(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = _port(profile / "DevToolsActivePort")
        with client.connect(_tab(port), max_size=None, open_timeout=PATIENCE) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def _port(file: Path) -> int:
    end = time.monotonic() + PATIENCE
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < end, "Chromium did not start"
        time.sleep(0.1)
    return int(file.read_text().split()[0])


def _tab(port: int) -> str:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE) as answer:
        tabs = json.load(answer)
    return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))

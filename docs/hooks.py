"""What mkdocs is told beside mkdocs.yml: pages made from the code, and links that lead out of docs/."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from markdown import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import generated

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
_FETCHED = re.compile(r'<(?:script|img|iframe|link(?! rel="canonical"))\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
_PAGE_OF = {source: page for page, source in generated.COPIES.items()}


class _ListsAfterText(Preprocessor):
    """A list right below a line of text is a list, as it is on GitHub and in docstrings."""

    def run(self, lines: list[str]) -> list[str]:
        made: list[str] = []
        for line in lines:
            item, above = _ITEM.match(line), made[-1] if made else ""
            if item and above.strip() and not _ITEM.match(above) and _indent(above) == _indent(line):
                made.append("")
            made.append(line)
        return made


class _Lists(Extension):
    def extendMarkdown(self, md: Any) -> None:
        md.preprocessors.register(_ListsAfterText(md), "lists-after-text", 20)  # after the fences are taken out


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def on_config(config: Any) -> Any:
    """Name the pages that are not files: one for each package, one for each table of results."""
    config.markdown_extensions.append(_Lists())
    for part in config.nav:
        if "Reference" in part:
            part["Reference"].append({"API": [generated.api_path(package) for package in generated.packages()]})
        if "Results" in part:
            part["Results"] = [page for page in generated.COPIES if page.startswith("results/")]
    return config


def on_files(files: Files, config: Any) -> Files:
    for page, make in generated.PAGES.items():
        files.append(File.generated(config, page, content=make()))
    for page, source in generated.COPIES.items():
        for picture in sorted((generated.ROOT / source).parent.glob("*.png")) if page.startswith("results/") else ():
            target = f"results/{PurePosixPath(source).parent.name}-{picture.name}"
            if target not in files.src_uris:
                files.append(File.generated(config, target, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the repository, turned to the pages of the site; no empty table of contents."""
    if "\n## " not in markdown and "\n::: " not in markdown:
        page.meta["hide"] = ["toc"]
    source = generated.COPIES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return _LINK.sub(lambda m: _turned(m, source, page.file.src_uri), markdown)


def _turned(match: re.Match[str], source: str, page: str) -> str:
    target, hash_, anchor = match[2].partition("#")
    if not target or re.match(r"[a-z]+:", target):
        return match[0]
    path = os.path.normpath(PurePosixPath(source).parent / target)
    found = _site_path(path)
    if found is None:  # a file of the repository that is no page: its name is all there is to say
        return match[1].lstrip("!")[1:-2]
    return f"{match[1]}{os.path.relpath(found, PurePosixPath(page).parent)}{hash_}{anchor}{match[3]}"


def _site_path(path: str) -> str | None:
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".png"):
        place = PurePosixPath(path)
        return f"results/{place.parent.name}-{place.name}"
    return _PAGE_OF.get(path, _PAGE_OF.get(f"{path}/README.md"))


def on_post_build(config: Any) -> None:
    """Nobody who reads a page is seen by anybody else: nothing in it is fetched."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        found = _FETCHED.search(path.read_text())
        if found is not None:
            raise PluginError(f"{path.name} would fetch something when it is read: {found[0]}")

#!/usr/bin/env python3
"""Build the documentation's site into build/site from the Markdown of this project, and check all of its links.

python tools/make_site.py

The pages are those that GitHub shows and `tarragon docs` prints. Here they are copied into one folder, since some are
outside of docs/, and links to code lead to the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
SOURCE_URL = "https://github.com/tarragon-dev/tarragon"
CONFIG = ROOT / "tools" / "site.toml"
"""Zensical's configuration. Its `nav` has the order of the pages, by their paths in this project."""

_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: |\bsrc=\"|\bhref=\")(?!\w+:|#|/)([^)\s\"]+)", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_ASSETS = (".svg", ".png", ".yaml", ".yml", ".csv", ".py")


def main() -> int:
    site = build(ROOT, BUILD)
    broken = list(broken_links(site))
    for each in broken:
        sys.stderr.write(f"{each}\n")
    pages = sum(1 for _ in site.rglob("*.html"))
    sys.stdout.write(f"{site}: {pages} pages, {len(broken)} broken links; open {site / 'index.html'}\n")
    return 1 if broken else 0


def build(root: Path, folder: Path) -> Path:
    """Build the site of the project in `root` below `folder`, and return where it is. Raises CalledProcessError."""
    pages = pages_of(root)
    sources, site = folder / "site-source", folder / "site"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    for page, place in pages.items():
        target = sources / "docs" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(with_links(page.read_text(encoding="utf-8"), page, root, pages), encoding="utf-8")
        else:
            shutil.copy(page, target)
    (sources / "docs" / "adr" / "index.md").write_text(list_of_decisions(root), encoding="utf-8")
    shutil.copy(CONFIG, sources / "zensical.toml")
    subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--strict", "--config-file", sources / "zensical.toml"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.move(sources / "site", site)
    return site


def pages_of(root: Path) -> Mapping[Path, PurePosixPath]:
    """Return the place in the site of each page of the project, and of each file that a page shows."""
    found = {root / "README.md": PurePosixPath("index.md")}
    found |= {
        root / f"{name}.md": PurePosixPath(f"{name.lower()}.md")
        for name in ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")
    }
    for page in sorted((root / "docs").rglob("*")):
        if page.suffix == ".md" or page.suffix in _ASSETS:
            found[page] = PurePosixPath(page.relative_to(root / "docs").as_posix())
    for page in sorted((root / "examples").glob("*/README.md")):
        found[page] = PurePosixPath("examples") / f"{page.parent.name}.md"
    return found


def list_of_decisions(root: Path) -> str:
    """Return a page that lists the decisions."""
    titles = {page.name: page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for page in _decisions(root)}
    return "\n".join(["# Decisions", "", *(f"- [{title}]({name})" for name, title in titles.items()), ""])


def _decisions(root: Path) -> list[Path]:
    return sorted((root / "docs" / "adr").glob("[0-9]*.md"))


def with_links(text: str, page: Path, root: Path, pages: Mapping[Path, PurePosixPath]) -> str:
    """Return a page's text with links that work in the site; those to other files lead to the repository."""

    def changed(match: re.Match[str]) -> str:
        path, sign, anchor = match[2].partition("#")
        aim = Path(os.path.normpath(page.parent / unquote(path)))
        if aim in pages:
            here = pages[page].parent
            found = os.path.relpath(pages[aim], here)
        else:
            kind = "tree" if aim.is_dir() else "blob"
            found = f"{SOURCE_URL}/{kind}/main/{aim.relative_to(root).as_posix()}"
        return f"{match[1]}{found}{sign}{anchor}"

    pieces, end = [], 0
    for fenced in _FENCED.finditer(text):
        pieces += [_LINK.sub(changed, text[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join([*pieces, _LINK.sub(changed, text[end:])])


class _Page(HTMLParser):
    """The links of a page, and the ids that links may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.ids.add(value)
            if (tag, name) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")} and value:
                self.links.append(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield every link inside the site that leads nowhere."""
    parsed = {page: _Page(page.read_text(encoding="utf-8")) for page in sorted(site.rglob("*.html"))}
    for page, found in parsed.items():
        if page.name == "404.html":  # shown at any address, so its links begin with the site's
            continue
        for link in dict.fromkeys(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            aim = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
            aim = aim / "index.html" if aim.is_dir() else aim
            where = page.relative_to(site)
            if not aim.exists():
                yield f"{where}: {link}: there is no such page"
            elif parts.fragment and aim in parsed and unquote(parts.fragment) not in parsed[aim].ids:
                yield f"{where}: {link}: the page has no such heading"


def pages_in_order(config: str) -> Iterator[str]:
    """Yield the pages of the navigation."""

    def below(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, list | dict):
            for inner in entry if isinstance(entry, list) else entry.values():
                yield from below(inner)

    yield from below(tomllib.loads(config)["project"]["nav"])


if __name__ == "__main__":
    sys.exit(main())

"""The pages of the documentation, and their sections by the anchors that GitHub gives headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.cli.bundled.files import bundled_folder
from tarragon.kube.field_reader import suggestion

_HEADING = re.compile(r"(#{1,6}) +(.*?) *#*$")
_FENCE = "```"
_NO_PAGES = "adr/"
"""Decisions are for developers: they are not part of the package."""


class PageNotFound(TarragonError):
    """There is no such page or section."""


def page_titles() -> Mapping[str, str]:
    """Returns the titles of all pages by name, as `howto/mpi`."""
    folder = bundled_folder("docs")
    pages = {page.relative_to(folder).with_suffix("").as_posix(): page for page in sorted(folder.rglob("*.md"))}
    return {name: _title(page) for name, page in pages.items() if not name.startswith(_NO_PAGES)}


def read_page(reference: str) -> str:
    """Returns a page, or one section of it: `scheduling`, `scheduling#why-a-job-waits`. Raises PageNotFound."""
    name, _, anchor = reference.partition("#")
    titles = page_titles()
    if name not in titles:
        raise PageNotFound(
            f"there is no page {name}", why=suggestion(name, titles), remedy="`tarragon docs` lists all pages"
        )
    text = (bundled_folder("docs") / f"{name}.md").read_text(encoding="utf-8")
    return _section(text, name, anchor) if anchor else text


def sections(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields the anchor of each heading, its level and the index of its line."""
    is_code, seen = False, dict[str, int]()
    for index, line in enumerate(text.splitlines()):
        is_code ^= line.startswith(_FENCE)
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading is not None:
            anchor = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
            number = seen.get(anchor, 0)
            seen[anchor] = number + 1
            yield f"{anchor}-{number}" if number else anchor, len(heading[1]), index


def _section(text: str, page: str, anchor: str) -> str:
    found = list(sections(text))
    position = next((number for number, (name, _, _) in enumerate(found) if name == anchor), None)
    if position is None:
        names = [name for name, _, _ in found]
        raise PageNotFound(
            f"the page {page} has no section {anchor}",
            why=suggestion(anchor, names),
            remedy=f"`tarragon docs {page}` prints the whole page",
        )
    _, level, start = found[position]
    end = next((index for _, other, index in found[position + 1 :] if other <= level), None)
    return "\n".join(text.splitlines()[start:end]).rstrip() + "\n"


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return lines.readline().strip("# \n").replace("`", "")

"""What the tests need to know of a Markdown page: its links, its headings and its fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(\w*)")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_LINKS = (
    re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)"),  # [text](target "title"), ![text](target)
    re.compile(r"^\s*\[[^\]]+\]:\s*<?([^\s>]+)"),  # [name]: target
    re.compile(r"\b(?:src|href|srcset)=\"([^\"]+)\""),  # <img src="target">
)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a page; `language` is None outside fenced blocks."""

    number: int
    text: str
    language: str | None


def lines(text: str) -> Iterator[Line]:
    """The lines of a page, without the fences."""
    fence, language = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.match(line)
        if not fence and match:
            fence, language = match[1], match[2]
        elif fence and match and match[1].startswith(fence) and not match[2]:
            fence = ""
        else:
            yield Line(number=number, text=line, language=language if fence else None)


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line number and target of each link, those in code excepted."""
    for line in lines(text):
        if line.language is None:
            prose = _CODE.sub("", line.text)
            for form in _LINKS:
                for target in form.findall(prose):
                    yield line.number, target


def anchors(text: str) -> frozenset[str]:
    """What `#...` may name in this page: its headings as GitHub spells them in links."""
    found: set[str] = set()
    for line in lines(text):
        match = _HEADING.match(line.text) if line.language is None else None
        if match:
            slug = re.sub(r"[^\w\- ]", "", match[1].lower()).replace(" ", "-")
            count = sum(1 for other in found if other == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", other))
            found.add(f"{slug}-{count}" if count else slug)
        found.update(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", line.text))
    return frozenset(found)


def pages() -> list[Path]:
    """Every Markdown page of the project."""
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    return sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))])

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.markdown import ROOT, anchors, links, pages


def broken_links(page: Path) -> Iterator[str]:
    """What is wrong with each relative link of the page that leads nowhere."""
    for number, target in links(page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = unquote(target).partition("#")
        aim = (page.parent / path) if path else page
        if not aim.exists():
            yield f"{page.name}:{number}: {target}: there is no such file"
        elif anchor and aim.suffix == ".md" and anchor not in anchors(aim.read_text()):
            yield f"{page.name}:{number}: {target}: {aim.name} has no such heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_the_docs_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_link_to_a_file_or_heading_that_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, with `code`\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-heading-with-code) [c](other.md#twice-1) [d](https://example.com/x)\n"
        '[e](gone.md) [f](other.md#gone) `[g](not-a-link.md)` <img src="gone.svg">\n'
        "\n```md\n[h](not-a-link.md)\n```\n[i]: gone.txt\n"
    )

    found = list(broken_links(page))

    assert found == [
        "page.md:2: gone.md: there is no such file",
        "page.md:2: other.md#gone: other.md has no such heading",
        "page.md:2: gone.svg: there is no such file",
        "page.md:7: gone.txt: there is no such file",
    ]

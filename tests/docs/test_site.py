"""The documentation's site: it is built for real, and every link in it leads somewhere."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tools.make_site import CONFIG, ROOT, broken_links, build, pages_in_order, pages_of, with_links

PAGES = {
    Path("/project/README.md"): PurePosixPath("index.md"),
    Path("/project/docs/cli.md"): PurePosixPath("cli.md"),
    Path("/project/docs/howto/mpi.md"): PurePosixPath("howto/mpi.md"),
    Path("/project/examples/mpi/README.md"): PurePosixPath("examples/mpi.md"),
}


@pytest.mark.timeout(120)
def test_the_site_has_all_pages_and_no_broken_link(tmp_path: Path) -> None:
    site = build(ROOT, tmp_path)

    assert list(broken_links(site)) == []
    for place in pages_of(ROOT).values():
        assert (site / (place.with_suffix(".html") if place.suffix == ".md" else place)).exists()


def test_every_page_is_in_the_navigation() -> None:
    places = {str(place) for place in pages_of(ROOT).values() if place.suffix == ".md" and place.parts[0] != "adr"}

    assert {*pages_in_order(CONFIG.read_text())} == {*places, "adr/index.md"}


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("README.md", "docs/cli.md#scripts", "cli.md#scripts"),
        ("README.md", "examples/mpi/README.md", "examples/mpi.md"),
        ("docs/cli.md", "../README.md", "index.md"),
        ("docs/howto/mpi.md", "../../examples/mpi/README.md", "../examples/mpi.md"),
        ("docs/cli.md", "https://example.com/a.md", "https://example.com/a.md"),
        ("docs/cli.md", "#scripts", "#scripts"),
        (
            "docs/howto/mpi.md",
            "../../tarragon/cli/main.py",
            "https://github.com/tarragon-dev/tarragon/blob/main/tarragon/cli/main.py",
        ),
    ],
)
def test_links_lead_to_pages_of_the_site_or_to_the_repository(page: str, link: str, there: str) -> None:
    text = f"[a]({link}) and\n```text\n[a]({link})\n```\n[b]: {link}\n"

    changed = with_links(text, Path("/project") / page, Path("/project"), PAGES)

    assert changed == f"[a]({there}) and\n```text\n[a]({link})\n```\n[b]: {there}\n"


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="here">')
    (tmp_path / "index.html").write_text(
        '<a href="other.html#here"><a href="other.html#gone"><a href="gone.html"><img src="gone.svg"><a href="#gone">'
    )

    assert list(broken_links(tmp_path)) == [
        "index.html: other.html#gone: the page has no such heading",
        "index.html: gone.html: there is no such page",
        "index.html: gone.svg: there is no such page",
        "index.html: #gone: the page has no such heading",
    ]

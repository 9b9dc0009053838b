"""The table of losses in docs/convert.md agrees with conversion."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.conversion.losses import TOPICS
from tests.conversion.richest import lost
from tests.docs.commands import commands_of
from tests.docs.markdown import ROOT
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "convert.md"
NEVER = {"the standard server"}
"""Topics that conversion always preserves; the loss has a name in case it does not."""


def letters() -> dict[str, str]:
    """The letter of each topic on the page."""
    return {
        topic: letter
        for letter, topic in re.findall(r"^\| \*\*(\w)\*\* \| ([^|]+?) \|", PAGE.read_text(), re.MULTILINE)
    }


def table() -> list[str]:
    words = letters()
    rows = []
    for source in GENERATIONS:
        cells = [
            "" if source == target else "".join(sorted(words[topic] for topic in lost(source, target))) or "-"
            for target in GENERATIONS
        ]
        rows.append(f"| {short(source)} | {' | '.join(cells)} |".replace("|  |", "| |"))
    return rows


def short(name: str) -> str:
    group, _, version = name.partition("/")
    return "mlkube" if group == "mlkube.io" else version


def test_the_table_on_the_page_is_up_to_date() -> None:
    _, _, rest = PAGE.read_text().partition("<!-- the table of losses -->\n")
    written = rest.partition("<!-- its end -->")[0].strip().splitlines()

    assert written[0] == f"| | {' | '.join(map(short, GENERATIONS))} |"
    assert written[2:] == table()


def test_every_loss_has_a_letter_on_the_page() -> None:
    assert set(letters()) == set(TOPICS) - NEVER


def test_the_page_names_every_generation() -> None:
    assert all(f"| `{name}` |" in PAGE.read_text() for name in GENERATIONS)


def test_the_commands_on_the_page_do_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "TARRAGON_HOME": str(tmp_path / "home"), "PATH": path}

    with Shell(tmp_path, environment) as shell:
        codes = [shell.run(command.text, timeout=60).exit_code for command in commands_of(PAGE)]

    assert codes == [0, 0, 0, 1]

"""The tables of losses in docs/convert.md agree with conversion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tarragon.frameworks.mpi.conversion import generations as mpi_generations
from tarragon.frameworks.mpi.conversion import losses as mpi_losses
from tarragon.frameworks.tensorflow.conversion import generations as tensorflow_generations
from tarragon.frameworks.tensorflow.conversion import losses as tensorflow_losses
from tests.conversion import richest, richest_mpijobs
from tests.docs.commands import commands_of
from tests.docs.markdown import ROOT
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "convert.md"
TFJOBS, _, MPIJOBS = PAGE.read_text().partition("\n## MPIJobs\n")


@dataclass(frozen=True, kw_only=True)
class Section:
    """The part of the page about one kind."""

    text: str
    generations: Sequence[str]
    topics: Collection[str]
    lost: Callable[[str, str], set[str]]
    never: Collection[str] = ()
    """Topics that conversion always preserves; the loss has a name in case it does not."""

    @property
    def letters(self) -> dict[str, str]:
        """The letter of each topic."""
        found = re.findall(r"^\| \*\*(\w)\*\* \| ([^|]+?) \|", self.text, re.MULTILINE)
        return {topic: letter for letter, topic in found}

    @property
    def rows(self) -> list[str]:
        rows = [f"| {short(source)} | {' | '.join(self._cells(source))} |" for source in self.generations]
        return [row.replace("|  |", "| |") for row in rows]

    def _cells(self, source: str) -> Iterator[str]:
        for target in self.generations:
            found = "".join(sorted(self.letters[topic] for topic in self.lost(source, target)))
            yield "" if source == target else found or "-"


SECTIONS = {
    "TFJob": Section(
        text=TFJOBS,
        generations=tuple(tensorflow_generations.GENERATIONS),
        topics=tensorflow_losses.TOPICS,
        lost=richest.lost,
        never={"the standard server"},
    ),
    "MPIJob": Section(
        text=MPIJOBS,
        generations=tuple(mpi_generations.GENERATIONS),
        topics=mpi_losses.TOPICS,
        lost=richest_mpijobs.lost,
    ),
}
by_kind = pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)


def short(name: str) -> str:
    group, _, version = name.partition("/")
    return "mlkube" if group == "mlkube.io" else version


@by_kind
def test_the_table_on_the_page_is_up_to_date(section: Section) -> None:
    _, _, rest = section.text.partition("<!-- the table of losses -->\n")
    written = rest.partition("<!-- its end -->")[0].strip().splitlines()

    assert written[0] == f"| | {' | '.join(map(short, section.generations))} |"
    assert written[2:] == section.rows


@by_kind
def test_every_loss_has_a_letter_on_the_page(section: Section) -> None:
    assert set(section.letters) == set(section.topics) - set(section.never)


@by_kind
def test_the_page_names_every_generation(section: Section) -> None:
    assert all(f"| `{name}` |" in section.text for name in section.generations)


def test_the_commands_on_the_page_do_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "TARRAGON_HOME": str(tmp_path / "home"), "PATH": path}

    with Shell(tmp_path, environment) as shell:
        codes = [shell.run(command.text, timeout=60).exit_code for command in commands_of(PAGE)]

    assert codes == [0, 0, 0, 1]

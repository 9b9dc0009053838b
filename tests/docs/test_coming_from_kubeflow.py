"""The page for those who come from Kubeflow leaves no generation out, and promises no annotation that nobody reads."""

from __future__ import annotations

import re

import pytest

from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "coming-from-kubeflow.md").read_text()
HEADINGS = {
    "kubeflow.org/v1-flat": "v1 with policies in spec (flat)",
    "kubeflow.org/v1-dragon": "v1 of DRAGON",
    "kubeflow.org/v1": "v1 with runPolicy (nested)",
}
KINDS = ("same", "fixed")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_each_generation_has_a_table_of_what_is_the_same_and_what_was_fixed(generation: str) -> None:
    heading = HEADINGS.get(generation, generation.removeprefix("kubeflow.org/"))

    _, _, section = PAGE.partition(f"\n## {heading}\n")

    kinds = re.findall(r"^\| (.+?) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert set(KINDS) <= set(kinds), heading


def test_the_annotations_that_it_names_are_read_somewhere() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "tarragon").rglob("*.py"))

    for name in set(re.findall(r"tarragon\.dev/[a-z-]+", PAGE)):
        assert f'"{name}"' in code, name

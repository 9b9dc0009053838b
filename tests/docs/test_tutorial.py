from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "tutorial.md"


@pytest.mark.parametrize(("language", "name"), [("yaml", "hello.yaml"), ("python", "hello.py")])
def test_the_files_beside_the_tutorial_are_those_that_it_shows(language: str, name: str) -> None:
    shown = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)

    assert shown == [(ROOT / "docs" / "tutorial" / name).read_text()]


def test_the_how_to_about_python_shows_its_program() -> None:
    [shown] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "howto" / "python.md").read_text(), re.DOTALL)

    assert shown in (ROOT / "docs" / "howto" / "sdk.py").read_text()

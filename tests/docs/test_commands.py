from __future__ import annotations

import re

import pytest

from tests.docs.commands import ELSEWHERE, commands_in, commands_of
from tests.docs.markdown import ROOT, pages

KIND_AND_NAMED = re.compile(r"[a-z.]+(,[a-z.]+)*,[a-z.]+/[a-z-]+")
PAGE = """
```console
$ tarragon run job.yaml   # with a comment
Succeeded
$ tarragon logs \\
    ps
```
```sh
# A comment.
make demo
$ make test
```
```yaml
$ not: a command
```
    $ neither this
"""


def test_commands_are_found_with_and_without_a_prompt_and_over_several_lines() -> None:
    found = commands_in(PAGE, "page.md")

    assert [(command.line, command.text) for command in found] == [
        (3, "tarragon run job.yaml   # with a comment"),
        (5, "tarragon logs \\\n    ps"),
        (10, "make demo"),
        (11, "make test"),
    ]
    assert str(found[0]) == "page.md:3: tarragon run job.yaml   # with a comment"


@pytest.mark.parametrize(("command", "where"), ELSEWHERE.items())
def test_a_command_that_is_run_elsewhere_stands_there_word_for_word(command: str, where: str) -> None:
    path, _, test = where.partition("::")
    text = (ROOT / path).read_text()

    assert command in text
    assert not test or f"def {test}(" in text


def test_no_command_is_said_to_be_run_elsewhere_that_no_page_has() -> None:
    commands: set[str] = {command.text for page in pages() for command in commands_of(page)}

    assert set(ELSEWHERE) - commands == set()


def test_kubectl_gets_several_kinds_or_one_name() -> None:
    """`get pods,lease/tarragon` always fails: a resource with a name must stand alone."""
    words = {(str(command), word) for page in pages() for command in commands_of(page) for word in command.text.split()}

    assert [where for where, word in sorted(words) if KIND_AND_NAMED.fullmatch(word) and "kubectl" in where] == []

"""The commands that the docs tell a reader to type, so that tests can run them word for word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.docs.markdown import ROOT, lines

PROMPT = "$ "
SHELLS = frozenset({"sh", "bash", "shell"})

# Commands that the story of a page (test_story.py) does not run, and who does: a file in which the command stands
# word for word, or `file::test` where the test runs it. The keys are the commands as the reader sees them.
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "make test": ".ci/run",
        "make check": ".ci/run",
    }
)

# Commands that are meant to fail, with the exit code that the page promises.
ENDS_WITH: Mapping[str, int] = MappingProxyType(
    {
        "sed s/replicas/replcas/ hello.yaml | tarragon validate -": 2,
        "tarragon run broken.py --workers 3": 100,
        "tarragon run resume.py -e CRASH_AFTER=3 -- /tmp/tarragon-resume": 100,
        "tarragon run gpu.yaml": 105,
        "kubectl auth can-i create tfjobs --namespace team --as=system:serviceaccount:team:looker": 1,
        "kubectl delete tfjob hello --namespace team --as=system:serviceaccount:team:looker": 1,
        "tarragon run spread.yaml --set spec.tfReplicaSpecs.Worker.replicas=5": 105,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is typed at the prompt; a line that ends in a backslash goes on in the next."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def commands_in(text: str, page: str) -> tuple[Command, ...]:
    """Of a `console` block the lines after a prompt; of an `sh` block every line that is not a comment."""
    found: list[Command] = []
    goes_on = False
    for line in lines(text):
        if line.language is None:
            goes_on = False
        elif goes_on:
            last = found.pop()
            found.append(Command(page=page, line=last.line, text=f"{last.text}\n{line.text}"))
            goes_on = line.text.endswith("\\")
        elif typed := _typed(line.text, line.language):
            found.append(Command(page=page, line=line.number, text=typed))
            goes_on = typed.endswith("\\")
    return tuple(found)


def _typed(line: str, language: str) -> str:
    text = line.strip()
    if language == "console" or (language in SHELLS and text.startswith(PROMPT)):
        return text.removeprefix(PROMPT) if text.startswith(PROMPT) else ""
    return text if language in SHELLS and not text.startswith("#") else ""


def commands_of(page: Path) -> tuple[Command, ...]:
    return commands_in(page.read_text(), str(page.relative_to(ROOT)))


def story_of(page: Path) -> tuple[Command, ...]:
    """The commands of a page that are run one after another in one shell, from the project's folder."""
    return tuple(command for command in commands_of(page) if command.text not in ELSEWHERE)

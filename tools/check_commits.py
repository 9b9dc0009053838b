#!/usr/bin/env python3
"""Check the messages of new commits against CONTRIBUTING.md: a short imperative subject, a body that says why.

python tools/check_commits.py

Commits up to BASE are as they are. Without git, or in a clone too shallow to reach BASE, there is nothing to check.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

BASE = "35638aa6505c9dd9b3070259e19df416d4efdbb7"
LONGEST_SUBJECT = 72
LONGEST_LINE = 100
"""Of a body; longer words, such as addresses, are no problem."""

ROOT = Path(__file__).parent.parent
IMPERATIVES = {
    "address",
    "bring",
    "bypass",
    "embed",
    "exceed",
    "feed",
    "focus",
    "need",
    "pass",
    "press",
    "process",
    "seed",
    "speed",
    "string",
}
"""They end as other forms of a verb do."""


def problems(message: str) -> Iterator[str]:
    """What is wrong with a commit's message, in words; nothing for one that git wrote itself."""
    subject, *rest = message.rstrip("\n").split("\n")
    if not subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        yield from _of_subject(subject)
        yield from _of_body(rest)


def _of_subject(subject: str) -> Iterator[str]:
    if len(subject) > LONGEST_SUBJECT:
        yield f"the subject has {len(subject)} characters, {len(subject) - LONGEST_SUBJECT} too many"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    verb = subject.partition(" ")[0]
    if not verb[:1].isupper():
        yield "the subject does not begin with a capital letter"
    if verb.lower() not in IMPERATIVES and verb.endswith(("ed", "ing", "s")):
        yield f"the subject begins with {verb!r}; write it as an order: Add, Fix, Skip, Rename"


def _of_body(lines: Sequence[str]) -> Iterator[str]:
    body = [line for line in lines[1:] if line.strip()]
    if lines and lines[0].strip():
        yield "no blank line follows the subject"
    if not body:
        yield "there is no body; say why the change is made"
    if any(len(line) > LONGEST_LINE and " " in line.strip() for line in body):
        yield f"a line of the body has more than {LONGEST_LINE} characters"


def new_commits() -> Iterator[tuple[str, str]]:
    """Each commit after BASE, abbreviated, with its message."""
    log = _git("log", "--format=%h%x00%B%x01", f"{BASE}..HEAD")
    for entry in log.split("\x01"):
        commit, _, message = entry.strip("\n").partition("\x00")
        if commit:
            yield commit, message


def main() -> int:
    try:
        commits = list(new_commits())
    except (OSError, subprocess.CalledProcessError):
        print(f"check_commits.py: no git, or no commit {BASE[:9]} in this clone: no message is checked")
        return 0
    found = [(commit, problem) for commit, message in commits for problem in problems(message)]
    for commit, problem in found:
        print(f"{commit}: {problem}", file=sys.stderr)
    return 1 if found else 0


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Check the messages of new commits against CONTRIBUTING.md: a short imperative subject, a body that says why.

python tools/check_commits.py

Commits up to BASE are not checked. Without git, or in a shallow clone without BASE, no commit is checked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

BASE = "35638aa6505c9dd9b3070259e19df416d4efdbb7"
LONGEST_SUBJECT = 72
LONGEST_LINE = 100
"""The maximal length of a line of the body, unless it is a single word such as a URL."""

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
"""Imperatives that end in -ed, -ing or -s, as other forms of a verb do."""


def problems(message: str) -> Iterator[str]:
    """The problems of a commit message. Messages that git generates have none."""
    subject, *rest = message.rstrip("\n").split("\n")
    if not subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        yield from _subject_problems(subject)
        yield from _body_problems(rest)


def _subject_problems(subject: str) -> Iterator[str]:
    if len(subject) > LONGEST_SUBJECT:
        yield f"the subject has {len(subject)} characters, {len(subject) - LONGEST_SUBJECT} too many"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    verb = subject.partition(" ")[0]
    if not verb[:1].isupper():
        yield "the subject does not begin with a capital letter"
    if verb.lower() not in IMPERATIVES and verb.endswith(("ed", "ing", "s")):
        yield f"the subject begins with {verb!r}; use the imperative: Add, Fix, Skip, Rename"


def _body_problems(lines: Sequence[str]) -> Iterator[str]:
    body = [line for line in lines[1:] if line.strip()]
    if lines and lines[0].strip():
        yield "no blank line follows the subject"
    if not body:
        yield "there is no body that says why the change is made"
    if any(len(line) > LONGEST_LINE and " " in line.strip() for line in body):
        yield f"a line of the body has more than {LONGEST_LINE} characters"


def new_commits() -> Iterator[tuple[str, str]]:
    """The abbreviated hash and the message of each commit after BASE."""
    log = _git("log", "--format=%h%x00%B%x01", f"{BASE}..HEAD")
    for entry in log.split("\x01"):
        commit, _, message = entry.strip("\n").partition("\x00")
        if commit:
            yield commit, message


def main() -> int:
    try:
        commits = list(new_commits())
    except (OSError, subprocess.CalledProcessError):
        print(f"check_commits.py: no git, or no commit {BASE[:9]} in this clone; no message was checked")
        return 0
    found = [(commit, problem) for commit, message in commits for problem in problems(message)]
    for commit, problem in found:
        print(f"{commit}: {problem}", file=sys.stderr)
    return 1 if found else 0


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())

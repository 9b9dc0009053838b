"""The rules for commit messages, each with a message that breaks it and nothing else."""

from __future__ import annotations

import pytest

from tools.check_commits import problems

WHY = "\n\nPods that are being deleted counted as restarts.\n"


@pytest.mark.parametrize(
    "message",
    [
        "Skip terminating pods when counting restarts" + WHY,
        "Process one key at a time" + WHY,
        "Pass the clock to the informer" + WHY,
        'Revert "Skip terminating pods when counting restarts"',
        "Merge branch 'main'",
        "Link the advisory\n\nhttps://example.com/" + "a" * 120,
    ],
)
def test_a_valid_message_has_no_problems(message: str) -> None:
    assert list(problems(message)) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Skip " + "very " * 14 + WHY, "characters"),
        ("Skip terminating pods." + WHY, "full stop"),
        ("skip terminating pods" + WHY, "capital letter"),
        ("Skipped terminating pods" + WHY, "imperative"),
        ("Skipping terminating pods" + WHY, "imperative"),
        ("Skips terminating pods" + WHY, "imperative"),
        ("Skip terminating pods", "says why"),
        ("Skip terminating pods\nThey counted.\n\nThey did.", "blank line"),
        ("Skip terminating pods\n\n" + "They counted. " * 10, "line of the body"),
    ],
)
def test_the_problem_names_the_broken_rule(message: str, problem: str) -> None:
    (found,) = problems(message)

    assert problem in found

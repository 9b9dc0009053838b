"""What tarragon answers to the commands of other tools, and to misspelled ones."""

from __future__ import annotations

import re

import pytest

from tarragon.cli.options.command_tree import COMMANDS
from tarragon.cli.options.foreign_names import FOREIGN_NAMES, meant_command
from tests.cli.conftest import Shell


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ls", "type `tarragon list`"),
        ("ps", "type `tarragon list`"),
        ("status", "type `tarragon list`"),
        ("jobs", "type `tarragon list`"),
        ("cancel", "type `tarragon delete JOB`"),
        ("rm", "type `tarragon delete JOB`"),
        ("kill", "type `tarragon delete JOB`, or `tarragon suspend JOB` to continue it later"),
        ("stop", "type `tarragon delete JOB` for a job, `tarragon down` for the local cluster"),
        ("apply", "type `tarragon submit FILE`"),
        ("create", "type `tarragon submit FILE`"),
        ("start", "type `tarragon run FILE`"),
        ("train", "type `tarragon run FILE`"),
        ("log", "type `tarragon logs JOB`"),
        ("ui", "type `tarragon top`"),
        ("exec", "type `KUBECONFIG=$(tarragon kubeconfig) kubectl exec -it JOB-worker-0 -- sh`"),
    ],
)
def test_the_words_of_other_tools_lead_to_what_to_type(word: str, meant: str) -> None:
    assert meant_command(word, COMMANDS, is_local=True) == meant


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lst", "did you mean `list`?"),
        ("LIST", "did you mean `list`?"),
        ("desc", "did you mean `describe`?"),
        ("sim", "did you mean `simulate`?"),
        ("valdate", "did you mean `validate`?"),
        ("cancle", "type `tarragon delete JOB`"),
        ("expalin", "type `tarragon why JOB`"),
        ("frobnicate", ""),
        ("zz", ""),
    ],
)
def test_a_misspelled_command_leads_to_the_nearest_or_to_none(word: str, meant: str) -> None:
    assert meant_command(word, COMMANDS, is_local=True) == meant


def test_on_a_cluster_kubectl_has_its_kubeconfig_already() -> None:
    assert meant_command("exec", COMMANDS, is_local=False) == "type `kubectl exec -it JOB-worker-0 -- sh`"


def test_no_foreign_name_is_a_command_and_every_use_is_one() -> None:
    assert not FOREIGN_NAMES.keys() & COMMANDS.keys()
    uses = re.findall(r"`(\w+) ([\w-]+)", " ".join(FOREIGN_NAMES.values()))
    assert {command for program, command in uses if program == "tarragon"} <= COMMANDS.keys()
    assert {program for program, _ in uses} == {"tarragon", "kubectl"}


def test_an_unknown_command_is_an_error_that_says_what_to_type(shell: Shell) -> None:
    ended = shell("exec", "digits-worker-0", "--", "sh")

    assert ended.code == 2
    wanted = "type `KUBECONFIG=$(tarragon kubeconfig) kubectl exec -it JOB-worker-0 -- sh`"
    assert ended.err.splitlines()[-1] == f"Error: unknown command exec; {wanted}"


def test_help_prints_the_help_of_a_command_of_a_command_and_of_all(shell: Shell) -> None:
    assert shell("help").out == shell("--help").out
    assert shell("help", "list").out == shell("list", "--help").out
    assert shell("help", "config", "set").out == shell("config", "set", "--help").out


def test_help_of_what_is_no_command_leads_to_the_nearest(shell: Shell) -> None:
    assert shell("help", "lst").err.splitlines()[-1] == "Error: unknown command lst; did you mean `list`?"
    assert "tarragon list has no commands" in shell("help", "list", "jobs").err

"""Rules 5 and 16: results for programs in a schema that holds, one line what, why and what to do; and 2, exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon import __version__
from tests.cli.conftest import Shell
from tests.cli.manifests import worker
from tests.cli.tty import Tty

pytestmark = pytest.mark.timeout(300)

GOLDEN = Path(__file__).parent / "golden" / "cli.tarragon.dev-v1.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli-output.md"


def shape(value: Any) -> Any:
    """Of a document: names and types, whatever the values."""
    if isinstance(value, Mapping):
        return {name: shape(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        shapes = [shape(each) for each in value]
        return [merged(shapes)] if shapes else []
    return type(value).__name__


def merged(shapes: list[Any]) -> Any:
    """Elements of a list may lack what others have."""
    if all(isinstance(each, Mapping) for each in shapes):
        return {name: each[name] for each in shapes for name in each}
    return shapes[0]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """One of each kind, of a job that has failed."""
    folder = tmp_path_factory.mktemp("output")
    (folder / "work").mkdir()
    shell = Shell(folder=folder / "work", home=folder / "home")
    shell("run", shell.file("a.yaml", worker("digits", "raise SystemExit(3)")))
    shell("config", "set", "namespace", "default")
    asked = {
        "Job": ("why", "digits"),
        "Waited": ("wait", "digits"),
        "WhatIf": ("simulate", "--from-cluster", "--submit", "a.yaml"),
        "Check": ("check",),
        "Validation": ("validate", "a.yaml"),
        "Version": ("version",),
        "Config": ("config", "view"),
    }
    try:
        return {kind: json.loads(shell(*words, "-o", "json").out) for kind, words in asked.items()}
    finally:
        shell("down")


def test_rule_5_the_schema_of_every_output_is_the_one_that_was_promised(documents: Mapping[str, Any]) -> None:
    """Change the golden file with the version, or with a field that comes: scripts count on the rest."""
    found = {kind: shape(document) for kind, document in documents.items()}
    found["Job"]["replicas"] = found["Job"]["wished"] = "map of str to int"

    assert found == json.loads(GOLDEN.read_text())


def test_every_output_says_its_version_and_kind_and_the_page_has_every_field(documents: Mapping[str, Any]) -> None:
    page = PAGE.read_text()

    for kind, document in documents.items():
        assert (document["apiVersion"], document["kind"]) == ("cli.tarragon.dev/v1", kind)
        assert f"## {kind}" in page
        assert [name for name in document if f"`{name}`" not in page] == []


def test_rule_5_objects_are_those_of_kubernetes_and_other_languages_are_jqs(shell: Shell) -> None:
    shell("submit", shell.file("a.yaml", worker("digits", "import time; time.sleep(600)")))

    as_json, as_yaml = shell("get", "digits", "-o", "json"), shell("get", "digits", "-o", "yaml")
    listing = json.loads(shell("list", "-o", "json").out)

    assert json.loads(as_json.out)["spec"] == yaml.safe_load(as_yaml.out)["spec"] == listing["items"][0]["spec"]
    assert "managedFields" not in as_json.out + as_yaml.out + json.dumps(listing)
    for asked in (("get", "digits"), ("list",)):
        assert "managedFields" in shell(*asked, "-o", "yaml", "--show-managed-fields").out
    assert shell("get", "digits", "-o", "name").out == "tfjob/digits\n"
    assert json.loads(shell("describe", "digits", "-o", "json").out)["state"] in {"Waiting", "Starting", "Running"}
    refused = shell("get", "digits", "-o", "jsonpath={.spec}")
    assert refused.code == 2
    assert "'json'" in refused.err


def test_several_files_and_folders_are_validated_at_once(shell: Shell) -> None:
    shell.file("good.yaml", worker("good", "print(1)"))
    (shell.folder / "jobs" / "deep").mkdir(parents=True)
    shell.file("jobs/bad.yaml", worker("bad", "print(1)").replace("replicas", "replcas"))
    shell.file("jobs/other.yml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    shell.file("jobs/notes.txt", "no manifest")
    shell.file("jobs/deep/more.yaml", worker("more", "print(1)"))

    ended = shell("validate", "good.yaml", "-f", "jobs")
    deep = shell("validate", "-R", "jobs", "-o", "json")

    assert ended.code == 2
    assert ended.out == "good.yaml: TFJob good (kubeflow.org/v1) is valid\n"
    assert "Error: jobs/bad.yaml: 1 problem" in ended.err
    found = json.loads(deep.out)
    assert deep.code == 2
    assert found["isValid"] is False
    assert [each["file"] for each in found["files"]] == ["jobs/bad.yaml", "jobs/deep/more.yaml", "jobs/other.yml"]
    assert [bool(each["problems"]) for each in found["files"]] == [True, False, False]
    assert shell("validate").code == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("lst",), 2),
        (("get", "nope"), 102),
        (("wait", "nope"), 102),
        (("run", "nowhere.yaml"), 2),
        (("run", "bad.yaml"), 2),
        (("--context", "nope", "list"), 1),
        (("suspend", "pod/x"), 102),
    ],
)
def test_rules_2_and_16_errors_are_a_line_what_and_what_to_do_and_have_their_exit_codes(
    shell: Shell, words: tuple[str, ...], code: int
) -> None:
    shell.file("bad.yaml", worker("bad", "print(1)").replace("replicas", "replcas"))
    outside = replace(shell, variables={"KUBECONFIG": "/nowhere"})

    ended, with_trace = outside(*words), outside(*words, "-v")

    assert (ended.code, ended.out) == (code, "")
    assert "Traceback" not in ended.err
    what = next(line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert what[-1] != "."
    if words[0] not in {"lst", "suspend"}:
        assert "Traceback" in with_trace.err


def test_rule_13_the_same_commands_are_about_this_machine_and_about_any_cluster(shell: Shell) -> None:
    shell("submit", shell.file("a.yaml", worker("digits", "import time; time.sleep(600)")))
    there = ("--kubeconfig", str(shell.home / "kubeconfig"))

    assert shell("list", *there, "-o", "name").out == shell("list", "-o", "name").out == "tfjob/digits\n"
    assert shell("wait", "digits", "--for", "running", "--timeout", "60", *there).code == 0
    deleted = shell("delete", "digits", *there)
    assert (deleted.code, deleted.out) == (0, "tfjob/digits deleted\n")
    assert "on context " in deleted.err


def test_a_quiet_command_prints_results_and_errors_and_nothing_else(shell: Shell) -> None:
    file = shell.file("a.yaml", worker("digits", "print('trained')"))

    assert shell("list", "-q").err == ""
    ended = shell("run", "-q", file)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == "[worker-0] trained"
    assert ended.out.splitlines()[-1].startswith("Succeeded  digits in ")
    waited = shell("-q", "wait", "digits")
    assert (waited.out[:17], waited.err) == ("Succeeded  digits", "")
    deleted = shell("delete", "digits", "-q")
    assert (deleted.out, deleted.err) == ("tfjob/digits deleted\n", "")
    submitted = shell("submit", "--quiet", file)
    assert (submitted.out, submitted.err) == ("tfjob/digits\n", "")
    assert 'Error: job "nope" not found' in shell("get", "nope", "-q").err


def test_no_color_is_never_color(shell: Shell) -> None:
    shell("run", shell.file("a.yaml", worker("digits", "pass")))

    assert "\x1b[32mSucceeded" in shell("list", "--color", "always").out
    assert "\x1b" not in shell("list", "--color", "always", "--no-color").out
    assert "\x1b" not in replace(shell, variables={"TARRAGON_COLOR": "always"})("--no-color", "list").out


def test_the_version_is_an_option_too_that_no_variable_sets(shell: Shell) -> None:
    assert shell("--version").out == f"tarragon {__version__}\n"
    assert shell("-V").out == shell("--version").out
    assert replace(shell, variables={"TARRAGON_VERSION": "1"})("config", "path").out.endswith("config.yaml\n")


def test_a_usage_error_breaks_between_words_on_a_terminal(shell: Shell) -> None:
    with Tty(shell.command("list", "-o", "tables"), shell.folder, shell.environment()) as tty:
        assert tty.ended() == 2
        assert "is not one of 'table',\n    'wide', 'name', 'json', 'yaml'." in tty.text


def rows_at(shell: Shell, columns: int, *words: str, code: int) -> list[str]:
    with Tty(shell.command(*words), shell.folder, shell.environment(), columns=columns) as tty:
        assert tty.ended() == code
    return tty.raw.decode().replace("\r\n", "\n").split("\n")


def test_usage_is_wrapped_once_on_a_narrow_terminal(shell: Shell) -> None:
    assert rows_at(shell, 40, "run", "train.py", "-w", code=2)[:4] == [
        "Usage: tarragon run",
        "           [OPTIONS] FILE [-- ARGS]",
        "Try 'tarragon run --help' for help.",
        "",
    ]
    assert rows_at(shell, 40, "list", "--nope", code=2)[0] == "Usage: tarragon list [OPTIONS]"


@pytest.mark.parametrize("words", [("list", "--help"), ("help", "list")])
def test_help_fits_a_narrow_terminal(shell: Shell, words: tuple[str, ...]) -> None:
    rows = rows_at(shell, 40, *words, code=0)
    at = rows.index("  -l, --selector LABELS")

    assert rows[0] == "Usage: tarragon list [OPTIONS]"
    assert rows[at + 1 : at + 3] == [
        "            only jobs with these",
        "            labels:",
    ]
    assert all(len(row) <= 40 for row in rows if not row.startswith(("  tarragon ", "  -o", "  --sort-by")))

"""Rule 15: flag before variable before file before default, for every flag; and the file itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from tarragon.cli.main import root_command, run_command
from tarragon.cli.options.config_keys import all_options
from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(300)

FLAGS = dict(all_options(root_command))


def configured(shell: Shell, text: str) -> Path:
    path = shell.folder / ".config" / "tarragon" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_rule_15_the_flag_goes_before_the_variable_before_the_file_before_the_default(shell: Shell) -> None:
    assert shell("version").out.startswith("tarragon ")
    configured(shell, "version: {output: json}\n")
    assert shell("version").out.startswith("{")
    named = replace(shell, variables={"TARRAGON_VERSION_OUTPUT": "yaml"})
    assert named("version").out.startswith("apiVersion")
    assert named("version", "-o", "json").out.startswith("{")


@pytest.mark.parametrize("key", FLAGS)
def test_rule_15_every_flag_is_read_from_the_file(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By click itself, on the command's own parser, with a value that the flag can have."""
    option = FLAGS[key]
    section, _, flag = key.rpartition(".")
    file = tmp_path / "config.yaml"
    value = sample(option)
    file.write_text(json.dumps({section: {flag: value}} if section else {flag: value}))
    monkeypatch.setenv("TARRAGON_CONFIG", str(file))
    command = root_command.get_command(click.Context(root_command), section) if section else root_command
    assert command is not None
    seen: dict[str, object] = {}
    monkeypatch.setattr(option, "callback", lambda _, __, found: seen.setdefault("value", found))
    required = ["--to=kubeflow.org/v1"] if key != "convert.to" and section == "convert" else []
    arguments = [
        __file__ if isinstance(param.type, click.Path) and param.type.exists else "x"
        for param in command.params
        if isinstance(param, click.Argument)
    ]
    with command.make_context(section or "tarragon", [*required, *arguments], auto_envvar_prefix="TARRAGON"):
        pass
    assert seen["value"] not in (None, (), False, ""), (key, seen)


def sample(option: click.Option) -> object:
    if option.is_flag:
        return True
    if isinstance(option.type, click.Choice):
        return option.type.choices[0]
    words = {
        "duration": "5m",
        "assignment": "a=b",
        "variable": "a=b",
        "env_source": "secret/a",
        "folder_mapping": "a=/tmp",
        "_memory": "1Gi",
        "api_generation": "kubeflow.org/v1",
        "parse_node": "name=a,cpu=1,memory=1Gi",
        "replica_count": "ps=2",
        "states": "running,failed",
        "taint": "a=b:NoSchedule",
        "timestamp": "2026-11-21T12:00:00Z",
        "file": __file__,
        "path": __file__,
    }
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return 3
    return words.get(option.type.name) or ("127.0.0.1" if "IP" in str(option.metavar) else "1")


def test_rule_15_the_origin_of_each_value_is_shown(shell: Shell) -> None:
    path = configured(shell, "namespace: ml\nrun: {timeout: 2h, set: [a=1]}\n")
    named = replace(shell, variables={"TARRAGON_NAMESPACE": "vision"})

    rows = [line.split() for line in named("config", "view", "--show-origin").out.splitlines()]
    document = json.loads(named("config", "view", "-o", "json").out)

    assert rows == [
        ["KEY", "VALUE", "ORIGIN"],
        ["namespace", "vision", "TARRAGON_NAMESPACE"],
        ["run.timeout", "2h", str(path)],
        ["run.set", "a=1", str(path)],
    ]
    assert (document["apiVersion"], document["kind"]) == ("cli.tarragon.dev/v1", "Config")
    assert shell("config", "path").out == f"{path}\n"
    assert "color" in shell("config", "view", "--all").out


def test_settings_are_kept_and_taken_out_and_comments_are_not_lost_without_a_word(shell: Shell) -> None:
    assert shell("config", "set", "run.timeout", "2h").code == 0
    assert shell("config", "set", "namespace", "ml").code == 0
    path = Path(shell("config", "path").out.strip())
    assert path.read_text() == "run:\n  timeout: 2h\nnamespace: ml\n"
    path.write_text(f"# mine\n{path.read_text()}")

    unset = shell("config", "unset", "namespace")

    assert path.read_text() == "run:\n  timeout: 2h\n"
    assert "comments were removed; the previous file is saved as" in unset.err
    assert path.with_name("config.yaml.before").read_text().startswith("# mine\n")
    assert "unknown setting namespace" in shell("config", "unset", "namespace").err


def test_what_can_not_be_set_is_told_with_the_nearest_name(shell: Shell) -> None:
    unknown = shell("config", "set", "run.timeot", "2h")
    wrong = shell("config", "set", "run.timeout", "soon")

    assert (unknown.code, wrong.code) == (2, 2)
    assert unknown.err.splitlines()[-1] == "  did you mean run.timeout?"
    assert "is not a duration" in wrong.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("list: {outptu: wide}\n", "did you mean list.output?"),
        ("lst: {output: wide}\n", "did you mean list.output?"),
        ("namespac: ml\n", "did you mean namespace?"),
        ("a: [\n", "is not YAML"),
        (f"a: {'[' * 2_000}{']' * 2_000}\n", "is not YAML"),
        ("a: 2026-01-99\n", "is not YAML"),
        ("[a]\n", "contains no settings"),
        ("list: {output: pink}\n", "config.yaml)"),
        ("namespace: {a: {b: c}}\n", "invalid value for namespace.a"),
    ],
)
def test_a_bad_file_is_told_in_words_and_keeps_nobody_from_help(shell: Shell, text: str, message: str) -> None:
    configured(shell, text)

    ended = shell("list")

    assert ended.code == 2
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert shell("list", "--help").code == 0
    assert shell("config", "path").code == 0


def test_kubectls_plugin_takes_the_cluster_from_kubectl_not_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tarragon.cli.options.settings import GlobalOptions

    (tmp_path / "config.yaml").write_text("context: prod\n")
    monkeypatch.setenv("TARRAGON_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("KUBECONFIG", "/nowhere")

    run_command(["list"], GlobalOptions(is_plugin=True))
    as_plugin = capsys.readouterr().err
    run_command(["list"])

    assert "prod" not in as_plugin
    assert "prod" in capsys.readouterr().err or "no cluster is configured" in as_plugin

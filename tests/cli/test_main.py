from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import NoReturn

import click
import pytest

from tarragon.cli.jobs import selection
from tarragon.cli.main import root_command
from tarragon.cli.options.arguments import timestamp
from tarragon.cli.options.command_tree import COMMANDS, help_page
from tarragon.cli.options.example_lines import continued
from tarragon.cli.options.settings import GlobalOptions
from tests.cli.conftest import Shell
from tests.cli.manifests import worker
from tests.conftest import others_can_reach

OF_JOBS = ("get", "describe", "logs", "wait", "why", "delete", "suspend", "resume", "scale")
"""Commands that complete the names of jobs."""
LIGHT = (*OF_JOBS, "config", "check")
"""Commands of which the help, too, is there at once."""
MOST_MODULES = 410
"""That Tab may import; a Python that does nothing has about 60 already, and the four kinds of jobs have about 100."""
HEAVY = ("aiohttp", "rich", "structlog", "numpy", "msgspec", "yaml", "asyncio", "cryptography", "uvloop", "sqlite3")

_WITH_HOOK = "import sys\nfrom tarragon.cli.options.error_output import report_bug\nsys.excepthook = report_bug\n"


def test_the_first_page_names_every_command_and_nothing_else() -> None:
    table = help_page("tarragon", "tarragon").partition("\n\n")[2].partition("\n\n")[0]
    titles = {"Train", "Look", "Change", "Local", "Cluster", "Files", "Plan", "More"}
    words = re.compile(r"(run|submit|validate|init|wait|logs|why|top) {2,}\S.*?(?= {4,}|$)", re.MULTILINE)
    explained = words.sub(r"\1", table)

    assert set(re.findall(r"[\w-]+", explained)) - titles == set(COMMANDS)


def test_the_first_page_fits_a_small_terminal() -> None:
    assert all(max(map(len, help_page(name, name).splitlines())) <= 80 for name in ("tarragon", "kubectl tarragon"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help_and_examples_of_no_flag_without_words(name: str) -> None:
    context = click.Context(root_command, obj=GlobalOptions())
    command = root_command.get_command(context, name)

    assert command is not None
    assert command.name == name
    assert command.help
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert all(option.help for option in options)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_fits_a_small_terminal(name: str) -> None:
    command = root_command.get_command(click.Context(root_command), name)
    assert command is not None
    root = click.Context(root_command, info_name="tarragon", obj=GlobalOptions())
    above = click.Context(command, parent=root, info_name=name)
    below = command.commands if isinstance(command, click.Group) else {}

    pages = [above, *(click.Context(each, parent=above, info_name=called) for called, each in below.items())]

    assert [row for page in pages for row in page.get_help().splitlines() if len(row) > 80] == []


def test_a_long_example_is_one_command_for_a_shell() -> None:
    line = "tarragon up --node name=a,cpu=8 --node name=b"

    assert [*continued(line, 36)] == ["tarragon up --node name=a,cpu=8 \\", "    --node name=b"]
    assert [*continued(line, 80)] == [line]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["version"],
        ["completion", "bash"],
        ["-h"],
        ["config", "path"],
        *([name, "--help"] for name in LIGHT),
    ],
)
def test_rule_20_what_needs_no_cluster_imports_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from tarragon.cli.main import run_command\n"
        f"run_command({words!r})\n"
        f"print('imported:', [name for name in {HEAVY!r} if name in sys.modules])"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout.splitlines()[-1] == "imported: []"


def test_rule_20_no_help_waits_for_what_only_deciding_and_serving_need() -> None:
    program = (
        "import sys\n"
        "from tarragon.cli.main import run_command\n"
        f"for name in {tuple(COMMANDS)!r}:\n"
        "    run_command([name, '--help'])\n"
        "print('imported:', [name for name in ('numpy', 'aiohttp', 'uvloop', 'rich') if name in sys.modules])"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout.splitlines()[-1] == "imported: []"


def test_the_embedded_server_is_imported_without_the_operator_which_may_follow_when_clients_can_connect() -> None:
    program = (
        "import sys\n"
        "import tarragon.cli.commands.up, tarragon.cli.targets.crds, tarragon.localcluster.daemon.serving\n"
        "slow = ['numpy', 'cryptography', 'tarragon.operator.manager', 'tarragon.scheduling.cycle']\n"
        "print([each for each in slow if each in sys.modules])"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("name", OF_JOBS)
def test_rule_20_tab_behind_a_command_imports_no_more_than_the_names_of_jobs_need(name: str, shell: Shell) -> None:
    program = (
        "import sys\n"
        "from tarragon.cli.main import print_completions\n"
        "from tarragon.cli.options.settings import GlobalOptions\n"
        f"print_completions([{name!r}, ''], GlobalOptions())\n"
        "slow = ['aiohttp', 'yaml', 'tarragon.client.http.client', 'tarragon.client.informer.informer']\n"
        "slow += ['tarragon.cli.jobview.jobs']\n"
        "print(len(sys.modules), [each for each in slow if each in sys.modules])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], env=shell.environment(), capture_output=True, text=True, check=True
    )

    number, _, imported = ended.stdout.splitlines()[-1].partition(" ")
    assert imported == "[]"
    assert int(number) < MOST_MODULES


def test_without_a_command_it_says_what_there_is(shell: Shell) -> None:
    ended = shell()

    assert ended.code == 0
    assert "First: " in ended.out
    assert "-m tarragon examples" in ended.out


def test_a_misspelled_command_is_told_the_nearest(shell: Shell) -> None:
    ended = shell("lst")

    assert ended.code == 2
    assert ended.err.splitlines()[-1] == "Error: unknown command lst; did you mean `list`?"


@pytest.mark.parametrize(
    ("login_shell", "words"),
    [
        (
            "/usr/bin/fish",
            ["  yours is fish, as SHELL says", "  type `tarragon completion fish | source`; in ~/.config/"],
        ),
        ("/bin/tcsh", ["  type `tarragon completion SHELL` with one of bash, zsh, fish, powershell"]),
    ],
)
def test_completion_without_a_shell_says_what_to_type_in_this_one(
    shell: Shell, login_shell: str, words: list[str]
) -> None:
    ended = replace(shell, variables={"SHELL": login_shell})("completion")

    assert ended.code == 2
    said = ended.err.splitlines()
    assert said[0] == "Error: which shell?"
    assert [line[: len(start)] for line, start in zip(said[1:], words, strict=True)] == words


@pytest.mark.parametrize("command", ["why", "logs", "get", "describe"])
def test_a_command_without_its_job_names_those_that_there_are(shell: Shell, command: str) -> None:
    none = shell(command)
    shell("submit", shell.file("a.yaml", worker("digits", "print(1)")))
    one = shell(command)
    shell("submit", shell.file("b.yaml", worker("mnist", "print(1)")))
    several = shell(command)

    assert {none.code, one.code, several.code} == {2}
    choice = rf"  type `.*tarragon {command} JOB`, or `.*tarragon {command} @latest` for the newest"
    for ended, there, example in (
        (none, [], choice),
        (one, ["  there is digits"], rf"  type `.*tarragon {command} digits`"),
        (several, ["  there are digits and mnist"], choice),
    ):
        lines = ended.err.splitlines()
        assert lines[:-1] == ["Error: which job?", *there]
        assert re.fullmatch(example, lines[-1])


def test_the_example_for_a_missing_job_is_of_the_same_namespace(shell: Shell) -> None:
    ended = shell("why", "-n", "research")

    assert re.search(r"type `.*tarragon -n research why JOB`", ended.err)


def test_completion_does_not_look_for_the_jobs_that_an_error_would_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> NoReturn:
        raise AssertionError("asked for the jobs")

    monkeypatch.setattr(selection, "job_names", fails)
    command = click.Command("why", params=[selection.JobArgument(["name"])])

    context = command.make_context("why", [], resilient_parsing=True)

    assert context.params == {"name": None}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("list", "train"), "`get train` shows one job, `describe train` all about it"),
        (("top", "train"), "`get train` shows one job"),
        (("logs", "wide", "worker-1"), "`logs wide --replica worker-1`"),
    ],
)
def test_an_argument_too_many_says_what_to_type_instead(shell: Shell, words: tuple[str, ...], hint: str) -> None:
    ended = shell(*words)

    assert ended.code == 2
    assert f"unexpected argument {words[-1]}; " in ended.err
    assert hint in ended.err


def test_a_misspelled_option_is_told_the_nearest(shell: Shell) -> None:
    ended = shell("logs", "digits", "--folow")

    assert ended.code == 2
    assert "--follow" in ended.err.splitlines()[-1]


@pytest.mark.parametrize("flag", ["-d", "--detach", "--background"])
def test_who_wants_a_cluster_in_the_background_is_told_what_starts_one(shell: Shell, flag: str) -> None:
    ended = shell("up", flag)

    assert ended.code == 2
    assert f"no such option: {flag}; every other command starts the cluster in the background" in ended.err


def test_every_flag_has_a_variable(shell: Shell) -> None:
    result = replace(shell, variables={"TARRAGON_CONTEXT": "prod", "KUBECONFIG": "none"})("list")
    as_json = replace(shell, variables={"TARRAGON_VERSION_OUTPUT": "json"})("version")

    assert result.code == 1
    assert "there is no context 'prod'" in result.err
    assert as_json.out.startswith("{")


@pytest.mark.parametrize(
    ("name", "flag", "variable"),
    [
        ("run", "--timeout", "TARRAGON_RUN_TIMEOUT"),
        ("run", "--cpu-only", "TARRAGON_RUN_CPU_ONLY"),
        ("submit", "--set", "TARRAGON_SUBMIT_SET"),
        ("list", "--all-namespaces", "TARRAGON_LIST_ALL_NAMESPACES"),
        ("list", "--output", "TARRAGON_LIST_OUTPUT"),
        ("logs", "--follow", "TARRAGON_LOGS_FOLLOW"),
        ("up", "--node", "TARRAGON_UP_NODE"),
        ("version", "-o", "TARRAGON_VERSION_OUTPUT"),
    ],
)
def test_the_variable_of_a_flag_is_called_after_it(name: str, flag: str, variable: str) -> None:
    command = root_command.get_command(click.Context(root_command), name)

    assert command is not None
    options = [param for param in command.params if flag in param.opts]
    assert [option.envvar for option in options] == [variable]


def test_the_local_cluster_has_a_name_too(shell: Shell) -> None:
    assert shell("--context", "local", "list").code == 0


def test_global_options_stand_before_or_behind_the_command(shell: Shell) -> None:
    assert shell("-n", "research", "list").err == shell("list", "-n", "research").err
    assert "namespace research" in shell("list", "-n", "research").err


def test_a_traceback_is_shown_only_to_whoever_asks(shell: Shell) -> None:
    assert "Traceback" not in shell("get", "digits").err
    assert "Traceback" in shell("get", "digits", "-v").err


def test_what_nobody_foresaw_is_called_a_bug_and_its_trace_is_kept(shell: Shell) -> None:
    program = f"{_WITH_HOOK}raise KeyError('no such thing')"

    ended = subprocess.run(
        [sys.executable, "-c", program], env=shell.environment(), capture_output=True, text=True, check=False
    )

    assert ended.returncode == 3
    lines = ended.stderr.splitlines()
    assert lines[0] == "Error: this is a bug in tarragon: KeyError: 'no such thing'"
    saved = next((shell.home / "crashes").iterdir())
    assert str(saved) in lines[1]
    assert "KeyError: 'no such thing'" in saved.read_text()
    assert len(lines) == 2


def test_the_trace_of_a_bug_is_its_owners_alone(shell: Shell, open_umask: None) -> None:
    shell.home.mkdir(mode=0o755)
    program = f"{_WITH_HOOK}raise KeyError('my secret')"

    subprocess.run([sys.executable, "-c", program], env=shell.environment(), capture_output=True, check=False)

    assert "my secret" in next((shell.home / "crashes").iterdir()).read_text()
    assert others_can_reach(shell.home) == []


@pytest.mark.parametrize("text", ["yesterday", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_what_is_no_time_is_a_bad_parameter(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        timestamp(text)


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    ended = subprocess.run(
        shell.command("version"), env=shell.environment(), stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("name", ["run", "submit"])
def test_the_file_is_named_by_an_option_too_as_kubectl_has_it(shell: Shell, name: str) -> None:
    assert "file nowhere.yaml not found" in shell(name, "-f", "nowhere.yaml").err
    assert shell(name).code == 2
    assert "give exactly one FILE" in shell(name, "a.yaml", "-f", "b.yaml").err


def test_the_help_of_run_tells_every_exit_code_and_an_option_as_a_variable_that_works(shell: Shell) -> None:
    page = " ".join(shell("run", "--help").out.split())

    for code in (0, 1, 2, 100, 101, 103, 104, 130, 141):
        assert re.search(rf"[ ,]{code} [a-z]", page), code
    assert "TARRAGON_NAMESPACE=ml tarragon list" in page
    named = replace(shell, variables={"TARRAGON_NAMESPACE": "ml"})
    assert "in namespace ml" in named("get", "digits").err

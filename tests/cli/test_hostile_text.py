"""Whatever others have written into a manifest, a status, a log or the name of a file: a terminal shows it as text."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tarragon.cli.options.formats import json_text, yaml_text
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import EVENTS, PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, python
from tests.cli.tty import Tty

pytestmark = pytest.mark.timeout(300)

FOREIGN = "99m"
"""A colour that is none of ours."""
EVIL = f"\x1b]0;title\x07\x1b[{FOREIGN}\x1b]52;c;cHduCg==\x07\x1b[2J\x9b2J\x90q\x9c\x7f\u202etxet\u2066\u200f\u2028end"
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
OURS = re.compile(r"\x1b(?:\[(?:[0-9;]*[mAHJKG]|\?[0-9]+[hl]))")
"""Colours, and what moves the rows of `run` and `top`."""
ANYTHING = st.recursive(
    st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
)


def at_terminal(shell: Shell, *words: str, code: int | None = 0) -> str:
    """What the terminal gets, once all is taken out that we may say to it."""
    environment = {name: value for name, value in shell.environment().items() if name not in {"CI", "NO_COLOR"}}
    with Tty(shell.command(*words), shell.folder, environment, columns=200) as tty:
        ended = tty.ended()
    text = tty.raw.decode().replace("\r\n", "\n")
    assert code in {None, ended}, text
    assert UNSEEN.findall(OURS.sub("", text)) == [], text
    assert f"\x1b[{FOREIGN}" not in text
    return text


def hostile(**metadata: Any) -> str:
    body = json.loads(job("digits", Worker=group(python("print(1)"))))
    body["metadata"] |= metadata
    return json.dumps(body)


@given(ANYTHING)
@example("\xa0")
def test_json_and_yaml_lose_nothing_and_have_no_control_characters(value: Any) -> None:
    for text, read in ((json_text({"value": value}), json.loads), (yaml_text({"value": value}), yaml.safe_load)):
        assert UNSEEN.search(text) is None
        assert read(text) == {"value": value}


@pytest.mark.parametrize("words", [["validate"], ["convert", "--to", "kubeflow.org/v1beta2"], ["diff"]])
def test_an_escape_sequence_in_a_name_is_shown(shell: Shell, words: Sequence[str]) -> None:
    file = shell.file("job.yaml", hostile(name=f"a{EVIL}", annotations={"a": EVIL}, labels={f"b{EVIL}": EVIL}))

    assert "u001b]0;title" in at_terminal(shell, *words, file, code=None)


@pytest.mark.parametrize(
    "words", [["validate"], ["convert", "--to", "v1"], ["submit", "--dry-run=client"], ["diff"], ["run"]]
)
def test_an_escape_sequence_in_the_name_of_a_file_is_shown(shell: Shell, words: Sequence[str]) -> None:
    name = EVIL.replace("/", "")
    bad = shell.file(f"{name}.yaml", hostile(name="UPPER"))

    assert "u001b]0;title" in at_terminal(shell, *words, bad, code=None)
    assert "u001b]0;title" in at_terminal(shell, *words, f"missing{name}", code=2)


def test_a_file_name_of_several_lines_forges_none(shell: Shell) -> None:
    file = shell.file("a\nother.yaml: digits is valid", hostile())

    ended = shell("validate", file)

    assert len(ended.out.splitlines()) == 1
    assert len(shell("validate", "not\nthere").err.splitlines()) == 2


def test_a_file_name_that_is_no_text_is_shown(shell: Shell) -> None:
    name = "\udcff\udc9b"
    shell.file(f"{name}.yaml", hostile())

    assert "\\udcff\\udc9b.yaml: TFJob digits" in at_terminal(shell, "validate", f"{name}.yaml")
    assert "\\udcff\\udc9b.yaml: TFJob digits" in shell("validate", f"{name}.yaml").out


def test_a_dry_run_and_a_conversion_keep_every_character_for_programs(shell: Shell) -> None:
    file = shell.file("job.yaml", hostile(annotations={"a": EVIL}))
    converted = ["convert", "--to", "kubeflow.org/v1beta2", file]

    outs = [
        json.loads(shell(*converted, "-o", "json").out),
        yaml.safe_load(shell(*converted).out),
        yaml.safe_load(at_terminal(shell, *converted).partition("\n")[2]),
    ]

    assert [body["metadata"]["annotations"]["a"] for body in outs] == [EVIL] * 3


def test_a_stream_in_ascii_is_no_way_around(shell: Shell) -> None:
    named = Shell(folder=shell.folder, home=shell.home, variables={"PYTHONIOENCODING": "ascii"})

    assert "\\u001b]0;title" in at_terminal(named, "validate", f"ü{EVIL}", code=2)


def test_a_bug_is_told_and_kept_without_escape_sequences(shell: Shell) -> None:
    code = (
        "import sys\nfrom tarragon.cli import main\nfrom tarragon.cli.options import error_output\n"
        "main.escape_output()\n"
        f"try: raise RuntimeError({EVIL!a} + chr(0xd800))\n"
        "except RuntimeError: error_output.report_bug(*sys.exc_info())"
    )
    with Tty([sys.executable, "-c", code], shell.folder, shell.environment(), columns=200) as tty:
        assert tty.ended() == 3

    (crash,) = (shell.home / "crashes").iterdir()
    for text in (tty.raw.decode().replace("\r\n", "\n"), crash.read_text()):
        assert "\\u001b]0;title" in text
        assert UNSEEN.search(text) is None


def a_status(**conditions: str) -> Mapping[str, Any]:
    moment = "2026-11-21T12:00:00Z"
    return {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": f"Evil{EVIL}",
                "message": message,
                "lastUpdateTime": moment,
                "lastTransitionTime": moment,
            }
            for kind, message in conditions.items()
        ],
        "replicaStatuses": {"Worker": {"failed": 1}},
        "tarragon": {
            "admission": {"queued": moment, "wait": {"code": f"Evil{EVIL}", "message": EVIL}},
            "failure": {
                "replica": {"type": "Worker", "index": 0},
                "at": moment,
                "exitCode": 1,
                "reason": f"Error{EVIL}",
                "message": f"progress 1%\rprogress 100%\n{EVIL}",
            },
        },
    }


async def fill(home: Home) -> None:
    """A job whose status, pod and events say what no operator and no kubelet would."""
    server = read_server(home)
    assert server is not None
    resource = FRAMEWORKS[0].resource
    address = RestConfig(url=server.url, ca_data=home.ca.read_bytes(), token=home.read_token())
    async with HttpClient(address, random.Random(1)) as cluster:
        for name, status in (("broken", a_status(Failed=EVIL)), ("digits", a_status(Created=EVIL))):
            body = json.loads(hostile(name=name, annotations={"a": EVIL}))
            made = await cluster.create(
                resource.with_model(dict), {**body, "metadata": {**body["metadata"], "namespace": "default"}}
            )
            await cluster.patch(
                resource.with_model(dict), Key("default", name), {"status": status}, subresource="status"
            )
            uid = made["metadata"]["uid"]
            await cluster.create(PODS.with_model(dict), a_pod(name, uid))
            message = [
                {
                    "name": "tensorflow",
                    "restartCount": 0,
                    "ready": False,
                    "image": "i",
                    "imageID": EVIL,
                    "state": {"waiting": {"reason": f"R{EVIL}", "message": EVIL}},
                }
            ]
            pod = Key("default", f"{name}-worker-0")
            await cluster.patch(
                PODS.with_model(dict),
                pod,
                {"status": {"phase": "Pending", "containerStatuses": message}},
                subresource="status",
            )
            await cluster.create(
                EVENTS.with_model(dict),
                {
                    "metadata": {"name": f"{name}.1", "namespace": "default"},
                    "involvedObject": {"kind": "TFJob", "namespace": "default", "name": name, "uid": uid},
                    "type": "Warning",
                    "reason": f"Evil{EVIL}",
                    "message": EVIL,
                },
            )


def a_pod(name: str, uid: str) -> Mapping[str, Any]:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": name, "uid": uid, "controller": True}
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    return {
        "metadata": {"name": f"{name}-worker-0", "namespace": "default", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [python("print(1)")], "nodeName": "nowhere"},
    }


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Somebody who looks at what somebody else has written into the cluster."""
    folder = tmp_path_factory.mktemp("attacked")
    shell = Shell(folder=folder, home=folder / "home")
    going = shell.start("up", "--without-operator")
    going.until("ready")
    asyncio.run(fill(Home(shell.home)))
    yield shell
    shell("down")
    going.ended()


@pytest.mark.parametrize("name", ["digits", "broken"])
@pytest.mark.parametrize(
    "words",
    [
        ("describe",),
        ("describe", "-o", "yaml"),
        ("why",),
        ("why", "-o", "json"),
        ("get", "-o", "json"),
        ("get", "-o", "yaml"),
        ("logs",),
        ("wait", "--for", "running", "--timeout", "1s"),
    ],
)
def test_a_condition_and_a_container_message_are_shown_as_text(
    attacked: Shell, words: Sequence[str], name: str
) -> None:
    command, *options = words

    at_terminal(attacked, command, name, *options, code=None)


def test_what_is_shown_of_a_condition_is_all_of_it(attacked: Shell) -> None:
    shown = "\\u001b]0;title\\u0007\\u001b[99m"

    assert shown in at_terminal(attacked, "describe", "digits")
    assert shown in at_terminal(attacked, "list", "-o", "wide")
    assert shown in at_terminal(attacked, "why", "digits")
    elsewhere = ("--kubeconfig", str(Home(attacked.home).kubeconfig), "--context", "tarragon")
    assert shown in at_terminal(attacked, *elsewhere, "logs", "digits", code=None)
    for words in (("why",), (*elsewhere, "logs")):
        last_words = at_terminal(attacked, *words, "broken", code=None)
        assert "progress 100%" in last_words
        assert "progress 1%" not in last_words
    assert json.loads(attacked("get", "digits", "-o", "json").out)["status"]["conditions"][0]["message"] == EVIL


def test_top_shows_it_as_text(attacked: Shell) -> None:
    environment = {name: value for name, value in attacked.environment().items() if name not in {"CI", "NO_COLOR"}}
    with Tty(attacked.command("top"), attacked.folder, environment, columns=200) as tty:
        tty.until(lambda text: "digits" in text and "u001b]0" in text)
        tty.type("d")
        tty.until("Conditions:")
        tty.type("q")
        tty.type("e")
        tty.until("esc back")
        tty.type("qq")
        assert tty.ended() == 0

    text = tty.raw.decode()
    assert UNSEEN.findall(OURS.sub("", text).replace("\r", "")) == []
    assert f"\x1b[{FOREIGN}" not in text


def test_a_question_names_a_cluster_as_text(attacked: Shell) -> None:
    config = yaml.safe_load(Home(attacked.home).kubeconfig.read_text())
    config["contexts"][0]["name"] = EVIL
    attacked.file("config", json.dumps(config))
    file = attacked.file(
        "large.yaml", job("large", Worker=group(python("", resources={"limits": {"nvidia.com/gpu": 9}})))
    )
    words = ("--kubeconfig", "config", "--context", EVIL, "submit", file)
    with Tty(attacked.command(*words), attacked.folder, attacked.environment(), columns=200) as tty:
        tty.until("[y/N]")
        tty.type("n\n")
        assert tty.ended() == 130

    text = tty.raw.decode()
    assert "Submit this to" in text
    assert UNSEEN.findall(OURS.sub("", text).replace("\r", "")) == []


def test_logs_are_shown_with_their_colours_alone_and_stay_as_they_are_for_programs(shell: Shell) -> None:
    said = f"\x1b[32mgreen\x1b[0m {EVIL}"
    file = shell.file("job.yaml", job("digits", Worker=group(python(f"print({said!a})"))))

    ran = shell("run", file)
    piped = shell("logs", "digits").out
    shown = at_terminal_of_logs(shell)

    assert f"[worker-0] {said}\n" in ran.out
    assert piped == f"[worker-0] {said}\n"
    assert "\x1b[32mgreen\x1b[0m " in shown
    assert "title" not in shown
    assert "\\u202etxet\\u2066\\u200f\\u2028end" in shown


def at_terminal_of_logs(shell: Shell) -> str:
    environment = {name: value for name, value in shell.environment().items() if name not in {"CI", "NO_COLOR"}}
    with Tty(shell.command("logs", "digits"), shell.folder, environment, columns=200) as tty:
        assert tty.ended() == 0
    text = tty.raw.decode().replace("\r\n", "\n")
    assert UNSEEN.findall(OURS.sub("", text)) == []
    return text


def test_tab_offers_no_name_that_a_shell_would_not_take_as_it_is(shell: Shell) -> None:
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u"}}
        for name in ("good@a:b/c", "$(touch evil)", f"x{EVIL}", "a\nfile,b")
    ]
    shell.file("config", json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": contexts}))
    asked = {
        "_TARRAGON_COMPLETE": "bash_complete",
        "COMP_WORDS": "tarragon --context ",
        "COMP_CWORD": "2",
        "KUBECONFIG": str(shell.folder / "config"),
    }

    offered = Shell(folder=shell.folder, home=shell.home, variables=asked)().out.splitlines()

    assert sorted(offered) == ["plain,good@a:b/c", "plain,local"]

"""Logs of JSON as users, kubectl, jq and a collector see them; parameter servers and workers are real TensorFlow."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.manifests import group, job, python, worker
from tests.conftest import ROOT, rsyslogd
from tests.e2e.user import EXAMPLES, User, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Line = Mapping[str, Any]

COLLECTOR = """
module(load="imfile" mode="polling" PollingInterval="1")
module(load="mmjsonparse")
global(workDirectory="{folder}" maxMessageSize="64k")
template(name="line" type="list") {{
    property(name="$!severity") constant(value="|")
    property(name="$!replica_type") constant(value="|")
    property(name="$!replica_index") constant(value="|")
    property(name="$!job") constant(value="|")
    property(name="$!uid") constant(value="|")
    property(name="$!message" controlcharacters="escape") constant(value="\\n")
}}
ruleset(name="replica") {{
    action(type="mmjsonparse" cookie="")
    action(type="omfile" file="{folder}/collected" template="line")
}}
input(type="imfile" file="{folder}/pod.log" tag="replica" ruleset="replica" readTimeout="1")
"""


def kubectl(user: User, *words: str) -> str:
    config = user("kubeconfig").out.strip()
    command = ["kubectl", *words]
    environment = {**os.environ, "KUBECONFIG": config}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def lines_of(user: User, pod: str) -> Sequence[Line]:
    """Fails where one is no JSON."""
    return [json.loads(line) for line in kubectl(user, "logs", pod).splitlines()]


def talking(user: User, script: str, annotated: str = "json") -> str:
    """A job that is over when its worker is; `--keep-pods` lets its parameter server end, too."""
    made = json.loads(job("talk", PS=group(python(script)), Worker=group(python(script))))
    made["metadata"]["annotations"] = {"tarragon.dev/logs": annotated}
    return user.file("talk.yaml", json.dumps(made))


def log_of(user: User, pod: str, lines: int) -> str:
    """When it has so many."""
    return eventually(lambda: log if (log := kubectl(user, "logs", pod)).count("\n") >= lines else "")


def is_true(question: str, text: str) -> bool:
    asked = subprocess.run(["jq", "-es", question], input=text, capture_output=True, text=True, check=False, timeout=60)
    return (asked.returncode, asked.stdout) == (0, "true\n")


def collect(configuration: str, folder: Path) -> Sequence[str]:
    """What rsyslog makes of two lines, as any user, with nothing of this machine's own configuration."""
    (folder / "rsyslog.conf").write_text(configuration)
    collected = folder / "collected"
    program = rsyslogd()
    assert program is not None
    command = [program, "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "pid")]
    with (folder / "said").open("w") as said, subprocess.Popen(command, stdout=said, stderr=said) as collector:
        try:
            eventually(lambda: collected.exists() and collected.read_text().count("\n") >= 2)
        finally:
            collector.terminate()
    return collected.read_text().splitlines()


@pytest.mark.kubectl
@pytest.mark.jq
def test_kubectl_logs_of_a_parameter_server_are_all_of_a_parameter_server(user: User) -> None:
    assert user.run(talking(user, "import logging; print('a'); logging.warning('b')"), "--keep-pods").code == 0

    assert is_true('length>0 and all(.[]; .replica_type=="ps")', log_of(user, "talk-ps-0", 2))
    assert is_true('[.[].message] | sort == ["a", "b"]', kubectl(user, "logs", "talk-worker-0"))


@pytest.mark.kubectl
def test_plain_text_is_the_default_and_the_annotation_wins_over_the_setting(user: User) -> None:
    assert user.run(user.file("plain.yaml", worker("plain", "print('as it is')"))).code == 0
    assert kubectl(user, "logs", "plain-worker-0") == "as it is\n"
    assert user("down").code == 0

    usual = User(folder=user.folder, home=user.home, variables={"TARRAGON_LOGS": "json"})
    usual("delete", "plain")
    assert usual.run("plain.yaml").code == 0
    assert usual.run(talking(user, "print('as it is')", "text"), "--keep-pods").code == 0

    assert [line["message"] for line in lines_of(user, "plain-worker-0")] == ["as it is"]
    assert log_of(user, "talk-ps-0", 1) == "as it is\n"


def test_our_own_commands_show_messages_and_the_failure_its_last_lines(user: User) -> None:
    script = "import logging, sys; print('begun', flush=True); logging.error('lost'); sys.exit({'a': 1}['b'])"

    ended = user.run(talking(user, script), "--keep-pods")
    logs = user("logs", "talk").out
    status = json.loads(user("get", "talk", "-o", "json").out)["status"]["tarragon"]

    assert ended.code == 100
    for shown in (ended.out, logs):
        assert "] begun\n" in shown
        assert "] ERROR: lost\n" in shown
        assert "] KeyError: 'b'\n" in shown
        assert '"replica_type"' not in shown
    assert status["failure"]["message"].splitlines()[-1] == "KeyError: 'b'"
    assert "begun" in status["failure"]["message"].splitlines()


def test_a_replica_that_is_ended_has_its_grace_and_hears_of_it_once(user: User) -> None:
    script = (
        "import signal, sys, time\n"
        "def end(*_): print('saving', flush=True); time.sleep(0.5); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    assert user("submit", talking(user, script)).code == 0
    eventually(lambda: user("logs", "talk").out.count("ready") == 2)

    assert user("delete", "talk").code == 0

    eventually(lambda: user("logs", "talk").out.count("saved") == 2)
    assert user("logs", "talk").out.count("saving") == 2


@pytest.mark.kubectl
def test_a_replica_that_is_restarted_in_place_logs_on_with_the_exit_codes_that_it_had(user: User) -> None:
    script = (
        "import os, sys; first = not os.path.exists('f'); open('f', 'w').close(); print('run'); sys.exit(42 * first)"
    )
    made = json.loads(worker("talk", script))
    made["metadata"]["annotations"] = {"tarragon.dev/logs": "json"}
    made["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"

    ended = user.run(user.file("talk.yaml", json.dumps(made)))

    assert ended.code == 0
    assert user("logs", "talk").out.splitlines() == ["[worker-0] run"] * 2
    pod = json.loads(kubectl(user, "get", "pod", "talk-worker-0", "-o", "json"))["status"]["containerStatuses"][0]
    assert (pod["restartCount"], pod["state"]["terminated"]["exitCode"]) == (1, 0)
    assert pod["lastState"]["terminated"]["exitCode"] == 42
    assert pod["lastState"]["terminated"]["message"] == "run"


@pytest.mark.kubectl
@pytest.mark.tensorflow
def test_every_line_of_tensorflow_is_json_and_has_its_severity(user: User) -> None:
    # The example keeps TensorFlow quiet; here all of it is to be heard.
    quiet, loud = (f'TF_CPP_MIN_LOG_LEVEL, value: "{level}"' for level in (2, 0))
    text = (EXAMPLES / "ps.yaml").read_text().replace(quiet, loud).replace("PodPolicy: Running", "PodPolicy: None")
    text = text.replace('"--steps", "4000"', '"--steps", "300"')
    start = "kind: TFJob\nmetadata:\n"
    manifest = user.file("ps.yaml", text.replace(start, start + "  annotations: {tarragon.dev/logs: json}\n"))

    ended = user.run(manifest, "--keep-pods")

    assert ended.code == 0, ended.out + ended.err
    found = Counter[str]()
    for name in ("chief-0", "ps-0", "worker-0", "worker-1"):
        kind, _, index = name.partition("-")
        lines = lines_of(user, f"digits-ps-{name}")
        assert lines
        assert {(line["replica_type"], line["replica_index"]) for line in lines} == {(kind, int(index))}
        assert {line["job"] for line in lines} == {"digits-ps"}
        native = [line for line in lines if "logging.googleapis.com/sourceLocation" in line]
        found.update(line["severity"] for line in native)
        assert not [line["message"] for line in lines if re.match(r".{0,60}\.cc:\d+\] ", line["message"])]
    assert found["INFO"] > 0
    assert set(found) <= {"INFO", "WARNING", "ERROR"}


@pytest.mark.kubectl
@pytest.mark.rsyslog
def test_a_collector_reads_the_fields(user: User, tmp_path: Path) -> None:
    script = "import logging; print('plain, with | and \"quotes\"'); logging.getLogger('train').warning('two\\nlines')"
    assert user.run(talking(user, script), "--keep-pods").code == 0
    uid = json.loads(user("get", "talk", "-o", "json").out)["metadata"]["uid"]
    (tmp_path / "pod.log").write_text(log_of(user, "talk-ps-0", 2))

    collected = collect(COLLECTOR.format(folder=tmp_path), tmp_path)

    assert sorted(collected) == [
        f'INFO|ps|0|talk|{uid}|plain, with | and "quotes"',
        f"WARNING|ps|0|talk|{uid}|two#010lines",
    ]


@pytest.mark.rsyslog
def test_the_collector_s_configuration_in_the_docs_reads_the_files_of_a_node(user: User, tmp_path: Path) -> None:
    assert user.run(talking(user, "import logging; logging.warning('two\\nlines'); print('x')")).code == 0
    uid = json.loads(user("get", "talk", "-o", "json").out)["metadata"]["uid"]
    found = re.search(r"```rsyslog\n(.*?)```", (ROOT / "docs/logs.md").read_text(), re.DOTALL)
    assert found is not None
    there = {
        "/var/spool/rsyslog": str(tmp_path),
        "/var/log/replicas": f"{tmp_path}/collected",
        "/var/log/pods/*/tensorflow": f"{user.home}/node/local/logs/*/talk-worker-0/*/tensorflow",
    }
    configuration = found[1]
    for path, here in there.items():
        assert path in configuration
        configuration = configuration.replace(path, here)

    assert sorted(collect(configuration, tmp_path)) == [
        f"INFO|talk|{uid}|worker|0|x",
        f"WARNING|talk|{uid}|worker|0|two#010lines",
    ]

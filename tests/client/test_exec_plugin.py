from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import CredentialsError
from tarragon.client.http.credentials import ClientIdentity
from tarragon.client.http.exec_plugin import ExecPlugin, PluginEnvironment
from tarragon.client.http.kubeconfig import ExecConfig, ExecEnvVar

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
SECRET = "s3cr3t-t0ken"
ALONE = PluginEnvironment()
SCRIPT = """#!{python} -SE
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "runs").open("a") as runs:
    runs.write(json.dumps(dict(args=sys.argv[1:], info=os.environ["KUBERNETES_EXEC_INFO"], who=os.environ.get("WHO"),
                               home=os.environ.get("HOME"), tty=sys.stdin.isatty())) + "\\n")
{body}
answer = (folder / "answer").read_text()
sys.stdout.write(answer)
"""


class Program:
    """An executable that says what `says` was told last, and remembers how it was run."""

    def __init__(self, folder: Path, body: str = "") -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self.path.write_text(SCRIPT.format(python=sys.executable, folder=str(folder), body=body))
        self.path.chmod(0o755)
        self.clock = FakeClock()

    def says(self, version: str = V1, **status: Any) -> None:
        self.says_literally(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))

    def says_literally(self, answer: str) -> None:
        (self.folder / "answer").write_text(answer)

    @property
    def runs(self) -> list[dict[str, Any]]:
        path = self.folder / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def plugin(self, surroundings: PluginEnvironment = ALONE, **more: Any) -> ExecPlugin:
        spec = {"api_version": V1, "command": str(self.path), "interactive_mode": "Never", **more}
        return ExecPlugin(ExecConfig(**spec), surroundings, self.clock)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def test_the_program_is_run_with_its_arguments_and_told_about_the_cluster(program: Program) -> None:
    program.says(token="abc")
    surroundings = PluginEnvironment(
        environment={"HOME": "/home/ann", "WHO": "overridden", "PATH": os.environ["PATH"]},
        cluster={"server": "https://a", "config": {"any": ["thing"]}},
    )
    plugin = program.plugin(
        surroundings, args=("get", "token"), env=(ExecEnvVar(name="WHO", value="ann"),), provide_cluster_info=True
    )

    assert await plugin.identity() == ClientIdentity("Bearer abc")
    assert [{**run, "info": json.loads(run["info"])} for run in program.runs] == [
        {
            "args": ["get", "token"],
            "info": {
                "apiVersion": V1,
                "kind": "ExecCredential",
                "spec": {"interactive": False, "cluster": {"server": "https://a", "config": {"any": ["thing"]}}},
            },
            "who": "ann",
            "home": "/home/ann",
            "tty": False,
        }
    ]


async def test_who_does_not_ask_about_the_cluster_is_told_nothing_of_it(program: Program) -> None:
    program.says(V1BETA1, token="abc")
    await program.plugin(PluginEnvironment(cluster={"server": "https://a"}), api_version=V1BETA1).identity()

    assert json.loads(program.runs[0]["info"]) == {
        "apiVersion": V1BETA1,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }


async def test_a_token_holds_until_it_expires(program: Program) -> None:
    plugin = program.plugin()
    program.says(token="one", expirationTimestamp=(program.clock.now() + dt.timedelta(minutes=5)).isoformat())
    for _ in range(3):
        assert (await plugin.identity()).authorization == "Bearer one"
    assert len(program.runs) == 1

    program.says(token="two")
    program.clock.advance(299)
    assert (await plugin.identity()).authorization == "Bearer one"
    program.clock.advance(1)
    assert (await plugin.identity()).authorization == "Bearer two"
    program.clock.advance(1e6)
    await plugin.identity()
    assert len(program.runs) == 2


async def test_a_client_certificate_may_be_the_answer(program: Program) -> None:
    program.says(clientCertificateData="CERTIFICATE", clientKeyData="KEY")

    assert await program.plugin().identity() == ClientIdentity("", b"CERTIFICATE", b"KEY")


async def test_many_that_ask_at_once_wait_for_one_run(program: Program) -> None:
    program.says(token="abc")
    plugin = program.plugin()
    found = await asyncio.gather(*(plugin.identity() for _ in range(20)))

    assert set(found) == {ClientIdentity("Bearer abc")}
    assert len(program.runs) == 1


async def test_a_refused_token_is_asked_for_anew_once_however_many_were_refused(program: Program) -> None:
    plugin = program.plugin()
    program.says(token="one")
    old = await plugin.identity()
    program.says(token="two")
    found = await asyncio.gather(*(plugin.identity(old) for _ in range(20)))

    assert set(found) == {ClientIdentity("Bearer two")}
    assert len(program.runs) == 2


async def test_a_program_that_insists_on_what_was_refused_is_not_run_without_pause(program: Program) -> None:
    plugin = program.plugin()
    program.says(token="one")
    old = await plugin.identity()
    for _ in range(5):
        assert await plugin.identity(old) == old
    assert len(program.runs) == 2

    program.clock.advance(11)
    program.says(token="two")
    assert (await plugin.identity(old)).authorization == "Bearer two"


async def test_a_program_that_fails_is_not_run_without_pause(program: Program) -> None:
    plugin = program.plugin()
    program.says_literally("nonsense")
    failed = await asyncio.gather(*(plugin.identity() for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in failed} == {CredentialsError}
    assert len(program.runs) == 1

    program.says(token="one")
    program.clock.advance(11)
    assert (await plugin.identity()).authorization == "Bearer one"


async def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    program = Program(tmp_path, "sys.stderr.write('\\n'.join(f'line {n}' for n in range(9))); sys.exit(3)")

    with pytest.raises(CredentialsError) as caught:
        await program.plugin(args=("--client-secret=hush",)).identity()
    assert str(caught.value).splitlines() == [
        f"the exec plugin {program.path} failed: it ended with exit code 3",
        *(f"line {n}" for n in range(4, 9)),
        f"run {program.path} by hand, as in the kubeconfig; often a login has expired",
    ]


async def test_a_program_that_is_not_installed_is_told_with_its_install_hint(program: Program) -> None:
    with pytest.raises(CredentialsError, match=r"no-such-login is not installed\n.*\nget it from example\.com"):
        await program.plugin(command="no-such-login", install_hint="get it from example.com\n").identity()
    program.path.chmod(0o644)
    with pytest.raises(CredentialsError, match="can't be started\nPermission denied"):
        await program.plugin().identity()


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarragon.client.http.exec_plugin._TIMEOUT", 0.5)
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    body = f"import subprocess; subprocess.run(['sh', '-c', 'exec >{alive}; echo on; sleep 60'])"
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(CredentialsError, match="did not finish within"):
            await Program(tmp_path, body).plugin().identity()

        os.set_blocking(reader, True)
        async with asyncio.timeout(60):  # the end comes when nobody holds the other end any more
            while await asyncio.to_thread(os.read, reader, 100):
                pass
    finally:
        os.close(reader)


async def test_whoever_gives_up_waiting_leaves_no_program_behind(tmp_path: Path) -> None:
    program = Program(tmp_path, "(folder / 'pid').write_text(str(os.getpid())); import time; time.sleep(60)")
    plugin = program.plugin()
    waiting = asyncio.create_task(plugin.identity())
    async with asyncio.timeout(60):
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            await asyncio.to_thread(os.sched_yield)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


ANSWERS = {
    "nothing": ("", "not an ExecCredential in JSON"),
    "no JSON": (SECRET, "not an ExecCredential in JSON"),
    "another version": (
        json.dumps({"apiVersion": V1BETA1, "kind": "ExecCredential", "status": {"token": SECRET}}),
        f"it has {V1BETA1}, ExecCredential; the kubeconfig requires {V1}, ExecCredential",
    ),
    "another kind": (json.dumps({"apiVersion": V1, "kind": "Pod"}), "it has"),
    "no status": (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "neither a token nor"),
    "half a pair": (
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": SECRET}}),
        "must have both a client certificate and its key",
    ),
    "no time": (
        json.dumps(
            {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": SECRET, "expirationTimestamp": "soon"}}
        ),
        "is not a time",
    ),
    "a token of two lines": (
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": f"{SECRET}\nX: y"}}),
        "line breaks or other illegal characters",
    ),
    "a wrong type": (
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": [SECRET]}}),
        "not an ExecCredential in JSON",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_that_is_none_is_told_and_never_quoted(case: str, program: Program) -> None:
    answer, words = ANSWERS[case]
    program.says_literally(answer)

    with pytest.raises(CredentialsError) as caught:
        await program.plugin().identity()
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_program_that_must_ask_somebody_wants_a_terminal(program: Program) -> None:
    program.says(token="abc")

    with pytest.raises(CredentialsError, match="needs a terminal"):
        await program.plugin(interactive_mode="Always").identity()
    assert program.runs == []
    await program.plugin(interactive_mode="IfAvailable").identity()
    assert json.loads(program.runs[0]["info"])["spec"] == {"interactive": False}


async def test_at_a_terminal_a_program_may_ask(program: Program) -> None:
    """What it reads is what we would have read."""
    program.says(token="abc")
    surroundings = PluginEnvironment(has_terminal=True)
    for mode in ("IfAvailable", "Always", "Never"):
        await program.plugin(surroundings, interactive_mode=mode).identity()

    assert [json.loads(run["info"])["spec"]["interactive"] for run in program.runs] == [True, True, False]

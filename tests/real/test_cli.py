"""The command line against a real API server, with the operator as a process and nodes that run no processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from tarragon.cli.targets.crds import install_crds
from tarragon.client.errors import NotFound
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import Selector
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, NODES
from tarragon.kube.meta import Key, Resource
from tests.cli.conftest import CommandResult, RunningCommand, Shell
from tests.cli.tty import Tty
from tools.controlplane import API_SERVER, ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODE, REAL = "cli-0", "cli-real"
USERS = Path(__file__).parent.parent.parent / "deploy" / "users.yaml"
NAMESPACE = "cli"
PROGRAMS = Path(sys.executable).parent
EMPTY: Mapping[str, str] = MappingProxyType({})


def connect(config: Path) -> HttpClient:
    return HttpClient(load_kubeconfig({}, path=config).rest_config, random.Random(1))


def manifest(name: str, **annotations: str) -> str:
    """Two workers; how long they run and how they end is the hollow node's to read."""
    fate = {f"tarragon.dev/hollow-{key}".replace("_", "-"): value for key, value in annotations.items()}
    return on_node(name, NODE, ["train"], fate)


def on_node(name: str, node: str, command: Sequence[str], annotations: Mapping[str, str] = EMPTY) -> str:
    container = {"name": "tensorflow", "image": "registry.example.com/digits:1", "command": list(command)}
    template = {
        "metadata": {"annotations": dict(annotations)},
        "spec": {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}},
    }
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "Never", "template": template}}}
    return json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec})


@contextmanager
def program(config: Path, *words: str, until: str = "") -> Iterator[None]:
    """`tarragon …` beside the test, from when it has said that word."""
    command = [sys.executable, "-m", "tarragon", words[0], "--kubeconfig", str(config), *words[1:]]
    going = RunningCommand(command, Path.cwd(), os.environ)
    try:
        if until:
            going.until(until)
        yield
    finally:
        going.signal(signal.SIGTERM)
        going.ended()


@contextmanager
def trained(config: Path, *nodes: Sequence[str], renew_deadline: float = 10) -> Iterator[None]:
    """Our kinds, an operator and a namespace, and nodes that are gone afterwards; one whose pods only seem to run."""

    async def prepared() -> None:
        async with connect(config) as http:
            await install_crds(http)
            await http.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    async def cleaned() -> None:
        async with connect(config) as http:
            for each in (await http.list(NODES, Selector(label_selector="for=cli"))).items:
                await http.delete(NODES, each.metadata.key)

    asyncio.run(prepared())
    with ExitStack() as stack:
        lease = ("--lease-namespace", NAMESPACE, "--renew-deadline", f"{renew_deadline:g}")
        lasts = ("--lease-duration", f"{renew_deadline + 5:g}")
        stack.enter_context(program(config, "operator", *lease, *lasts, "--listen", "off"))
        for node in (("--name", "cli", "--hollow", "1"), *nodes):
            stack.enter_context(program(config, "node", "--label", "for=cli", *node, until="ready"))
        yield
    asyncio.run(cleaned())


@pytest.fixture(scope="module")
def training(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster that trains; of its nodes one runs pods as processes."""
    folder = str(tmp_path_factory.mktemp("node"))
    with trained(control_plane.kubeconfig, ("--name", REAL, "--cpu", "4", "--memory", "4Gi", "--folder", folder)):
        yield control_plane


def shell_of(folder: Path, config: Path) -> Shell:
    """Somebody whose kubeconfig has that cluster as its current context, `test`, with a namespace of their own."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    mine = yaml.safe_load(config.read_text())
    mine["contexts"][0]["context"]["namespace"] = NAMESPACE
    (folder / config.name).write_text(yaml.safe_dump(mine))
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    return Shell(folder=work, home=folder / "home", variables={"KUBECONFIG": str(folder / config.name), "PATH": path})


@pytest.fixture
def shell(training: ControlPlane, tmp_path: Path) -> Iterator[Shell]:
    """With TARRAGON_CONTEXT, so that every command is about the cluster."""
    made = shell_of(tmp_path, training.kubeconfig)
    yield replace(made, variables={**made.variables, "TARRAGON_CONTEXT": "test"})
    assert not (tmp_path / "home" / "node").exists()


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """The name of one that only this test makes."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name)[-30:].strip("-")


def run(shell: Shell, name: str, *words: str, **annotations: str) -> CommandResult:
    return shell("run", shell.file("job.yaml", manifest(name, **annotations)), *words)


def test_a_job_is_followed_to_its_end_and_every_change_names_the_cluster(
    shell: Shell, training: ControlPlane, job: str
) -> None:
    ended = run(shell, job, seconds="5")

    assert ended.code == 0, ended.err
    assert re.search(rf"^Succeeded  {job} in \d+\.\d s", ended.out, re.MULTILINE)
    assert f"tfjob/{job} created in cli on context test ({training.url})" in ended.err
    assert re.search(rf"^  clean up   .*tarragon --context test delete {job}$", ended.err, re.MULTILINE)
    assert "worker-0: Running" in ended.err


def test_a_job_that_fails_ends_with_100_and_says_who_was_first(shell: Shell, job: str) -> None:
    ended = run(shell, job, seconds="0.5", exit_code="3")

    assert ended.code == 100
    # Which was first is not known if both end within one second.
    said = r"^worker-[01] failed( first|, and worker-[01] in the same second)?: exit code 3: "
    assert re.search(said, ended.out, re.MULTILINE)
    assert shell("wait", job).code == 100


def test_a_log_that_cannot_be_had_is_said_once_a_replica(shell: Shell, job: str) -> None:
    ended = run(shell, job, seconds="3")
    asked = shell("logs", job)

    assert ended.err.count("the log of worker-0 can't be read") == 1
    assert (asked.code, asked.out) == (0, "")
    assert "the log of worker-0 can't be read" in asked.err


def test_what_replicas_say_is_followed_through_the_api_and_can_be_read_again(shell: Shell, job: str) -> None:
    program = (
        "import os, json; print('I am', json.loads(os.environ['TF_CONFIG'])['task']['index']); print('done: loss=0.9')"
    )

    text = on_node(job, REAL, ["python", "-c", program])

    # Without the policy, worker 1 may be ended with the job before it has said a word.
    ended = shell("run", shell.file("job.yaml", text), "--set", "spec.successPolicy=AllWorkers")
    again, last = shell("logs", job), shell("logs", job, "--replica", "worker-1", "--tail", "1", "--no-prefix")

    assert ended.code == 0, ended.err
    assert {"[worker-0] I am 0", "[worker-1] I am 1"} < set(ended.out.splitlines())
    assert re.search(rf"^Succeeded  {job} in \d+\.\d s  loss 0.9$", ended.out, re.MULTILINE)
    assert set(again.out.splitlines()) == {line for line in ended.out.splitlines() if line.startswith("[")}
    assert last.out == "done: loss=0.9\n"


def owners_of(config: Path, key: Key) -> set[str] | None:
    """The names of the owners of a ConfigMap; None if there is no such ConfigMap."""

    async def found() -> set[str] | None:
        async with connect(config) as cluster:
            try:
                metadata = (await cluster.get(CONFIG_MAPS, key)).metadata
            except NotFound:
                return None
            return {owner.name for owner in metadata.owner_references}

    return asyncio.run(found())


def test_a_script_travels_to_the_cluster_with_the_modules_and_packages_beside_it(
    shell: Shell, training: ControlPlane, job: str
) -> None:
    (shell.folder / "models").mkdir()
    shell.file("models/net.py", "import helper\nWHO = helper.WHO")
    shell.file("helper.py", "WHO = 'helped'")
    shell.file("train.py", "import models.net, sys; print(models.net.WHO, sys.argv[1:])")
    node = f"spec.tfReplicaSpecs.Worker.template.spec.nodeSelector={{kubernetes.io/hostname: {REAL}}}"

    ended = shell("run", "train.py", "--name", job, "--workers", "2", "--set", node, "--", "--epochs", "3")

    assert ended.code == 0, ended.err
    assert {f"[worker-{number}] helped ['--epochs', '3']" for number in (0, 1)} <= set(ended.out.splitlines())
    created = re.search(r"^configmap/(train-script-\w{10}) created in cli on context test", ended.err, re.MULTILINE)
    assert created is not None

    again = shell("run", "train.py", "--name", f"{job}-2", "--set", node, "--", "--epochs", "3")
    code = Key(NAMESPACE, created[1])
    assert again.code == 0, again.err
    assert f"configmap/{created[1]} unchanged" in again.err
    assert owners_of(training.kubeconfig, code) == {job, f"{job}-2"}
    first, second = shell("delete", job), shell("delete", f"{job}-2")
    assert "ConfigMap" not in first.err + second.err
    deadline = time.monotonic() + 60
    while owners_of(training.kubeconfig, code) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.2)  # noqa: TID251 - the garbage collector of Kubernetes tells nobody


def test_the_last_words_of_a_replica_that_failed_come_through_the_api(shell: Shell, job: str) -> None:
    ended = shell("run", shell.file("job.yaml", on_node(job, REAL, ["python", "-c", "import pandas_of_nobody"])))

    assert ended.code == 100
    assert "  │ ModuleNotFoundError: No module named 'pandas_of_nobody'" in ended.out
    assert "Probably: the module pandas_of_nobody is not installed" in ended.out


def test_what_is_there_can_be_listed_described_waited_for_and_deleted(shell: Shell, job: str) -> None:
    submitted = shell("submit", shell.file("job.yaml", manifest(job, seconds="1")))
    waited = shell("wait", job, "--timeout", "60")
    listed, got = shell("list"), shell("get", job, "-o", "json")
    all_of_them = json.loads(shell("list", "-o", "json").out)
    described = shell("describe", job)
    deleted = shell("delete", job)

    assert (submitted.code, submitted.out) == (0, f"tfjob/{job}\n")
    assert (waited.code, waited.out.split()[:2]) == (0, ["Succeeded", job])
    assert re.search(rf"^{job} +Succeeded +0/2 +- +- +0", listed.out, re.MULTILINE)
    assert json.loads(got.out) in all_of_them["items"]
    assert re.search(rf"worker-0 +Succeeded +0 +0 +{NODE} +{job}-worker-0.cli.svc:2222$", described.out, re.MULTILINE)
    assert "TFJobSucceeded" in described.out
    assert deleted.out == f"tfjob/{job} deleted\n"
    assert "logs" not in deleted.err
    assert shell("get", job).code == 102


def test_a_job_is_tried_submitted_twice_suspended_scaled_and_dumped_there(shell: Shell, job: str) -> None:
    file = shell.file("job.yaml", manifest(job, seconds="600"))

    tried = shell("submit", file, "--dry-run=server")
    nothing = shell("get", job)
    first, again = shell("submit", file), shell("submit", file)
    suspended = shell("suspend", job, "--wait", "--timeout", "60")
    scaled = shell("scale", job, "--workers", "1")
    resumed = shell("resume", job, "--wait", "--timeout", "60")
    in_vain = shell("scale", job, "--workers", "2")
    dumped = shell("debug-dump", job, "--output", "dump.tar.gz")

    pods = [body for body in yaml.safe_load_all(tried.out) if body["kind"] == "Pod"]
    assert [pod["spec"]["serviceAccountName"] for pod in pods] == ["default", "default"], tried.err
    assert nothing.code == 102
    assert (first.code, again.code) == (0, 0)
    assert "unchanged: it already exists in cli on context test" in again.err
    assert (suspended.code, suspended.out) == (0, f"tfjob/{job} suspended\n"), (
        suspended.err + shell("describe", job).out
    )
    assert (scaled.code, scaled.out) == (0, f"tfjob/{job} scaled to worker 1\n"), scaled.err
    assert (resumed.code, resumed.out) == (0, f"tfjob/{job} resumed\n")
    assert shell("get", job).out.splitlines()[1].split()[:3] == [job, "Running", "1/1"]
    assert in_vain.code == 1
    assert "it is not elastic" in in_vain.err
    assert dumped.code == 0, dumped.err
    assert shell("delete", job).code == 0


def test_a_job_that_has_ended_is_replaced_only_when_that_is_asked_for(shell: Shell, job: str) -> None:
    first = run(shell, job, seconds="0.2")
    before = json.loads(shell("get", job, "-o", "json").out)["metadata"]["uid"]
    refused = shell("run", "job.yaml")
    replaced = shell("run", "job.yaml", "--replace")
    after = json.loads(shell("get", job, "-o", "json").out)["metadata"]["uid"]

    assert (first.code, refused.code, replaced.code) == (0, 1, 0)
    assert f"Error: tfjob/{job} already exists: Succeeded" in refused.err
    assert "--replace" in refused.err
    assert "will be replaced in cli on context test" in replaced.err
    assert before != after


def test_ctrl_c_leaves_a_job_on_a_cluster_alone(shell: Shell, job: str) -> None:
    shell.file("job.yaml", manifest(job))
    going = shell.start("run", "job.yaml")
    both = {"worker-0: Running", "Running"}
    going.until_err(lambda text: both <= {line.partition("  ")[2] for line in text.splitlines()})
    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 101
    assert f"Detached from tfjob/{job}: it continues in cli on context test" in ended.err
    assert f"logs {job} --follow" in ended.err
    assert re.search(rf"^{job} +Running", shell("list").out, re.MULTILINE)
    again = shell("run", "job.yaml", "--replace")
    assert again.code == 1
    assert "already exists on context test" in again.err
    assert shell("wait", job, "--timeout", "0.5").code == 101
    assert shell("delete", job).code == 0


def test_a_namespace_that_is_not_there_is_not_made_on_a_cluster(shell: Shell) -> None:
    ended = shell("-n", "nowhere", "submit", shell.file("job.yaml", manifest("digits")))

    assert ended.code == 1
    assert "namespace nowhere not found on context test" in ended.err
    assert "kubectl create namespace nowhere" in ended.err


def test_nothing_of_this_machine_goes_to_a_cluster(shell: Shell, job: str) -> None:
    (shell.folder / "env").mkdir()
    shell.file("train.py", "")
    text = on_node(job, NODE, ["python", "train.py"]).replace("registry.example.com/digits:1", "python:3")

    ended = shell("submit", shell.file("job.yaml", text), "--image-env", "python=env", "--cpu-only")
    stored = json.loads(shell("get", job, "-o", "json").out)

    assert ended.code == 0
    assert "uses train.py, which exists on this machine" in ended.err
    assert "warning: --image-env works only on this machine: it is ignored on context test" in ended.err
    assert "warning: --cpu-only is meant for machines without GPUs" in ended.err
    assert str(shell.folder) not in json.dumps(stored)


def test_logs_of_a_job_that_has_not_begun_or_is_gone_say_what_is_known(shell: Shell, job: str) -> None:
    text = json.loads(manifest(job))
    container = text["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1000"}}
    shell("submit", shell.file("job.yaml", json.dumps(text)))
    shell("wait", job, "--for", "waiting", "--timeout", "60")

    waiting, gone, earlier = shell("logs", job), shell("logs", "nobody"), shell("logs", job, "--run", "1")

    assert (waiting.code, waiting.out) == (0, "")
    assert f"tfjob/{job} is Waiting" in waiting.err
    assert "no replica has started" in waiting.err
    assert gone.code == 102
    assert "context test" in gone.err
    assert earlier.code == 1
    assert "keeps no logs of earlier jobs" in earlier.err


@pytest.mark.kubectl
def test_kubectl_has_it_as_a_plugin_about_its_current_context(shell: Shell, training: ControlPlane, job: str) -> None:
    shell("submit", shell.file("job.yaml", manifest(job, seconds="0.2")))
    shell("wait", job)
    without = {name: value for name, value in shell.environment().items() if name != "TARRAGON_CONTEXT"}

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(shutil.which("kubectl")), "tarragon", *words]
        return subprocess.run(
            command, cwd=shell.folder, env=without, capture_output=True, text=True, timeout=60, check=False
        )

    listed, helped, failed = kubectl("list", "-o", "name"), kubectl("--help"), kubectl("get", "nobody")

    assert (listed.returncode, listed.stdout) == (0, shell("list", "-o", "name").out)
    assert f"tfjob/{job}\n" in listed.stdout
    assert helped.stdout.startswith("Usage: kubectl tarragon ")
    assert "First: kubectl tarragon examples" in helped.stdout
    assert failed.returncode == 102
    assert failed.stderr.splitlines()[0] == 'Error: job "nobody" not found in namespace cli'


def test_check_finds_a_cluster_that_trains(shell: Shell, training: ControlPlane) -> None:
    ended = shell("check", "--operator")

    assert ended.code == 0, ended.out
    assert f"ok       cluster     context test ({training.url}), Kubernetes v1.{training.minor}" in ended.out
    assert "ok       TFJob       the CRD matches this version of Tarragon: v1, v1beta2" in ended.out
    assert "ok       you         may create, get, list, watch, patch and delete tfjobs.kubeflow.org" in ended.out
    running = r"^ok +operator +\S+ is running: it renewed the Lease in cli \d+\.\d+ s ago$"
    assert re.search(running, ended.out, re.MULTILINE)
    assert "you may run it" in ended.out
    assert re.search(r"^ok +nodes +\d+ node", ended.out, re.MULTILINE)


def test_somebody_without_permissions_is_told_which_and_what_remains_impossible(
    training: ControlPlane, tmp_path: Path
) -> None:
    nobody = shell_of(tmp_path, training.user("cli-nobody"))

    listed = nobody("--context", "test", "list")
    checked = nobody("--context", "test", "check")

    assert listed.code == 1
    assert listed.err.splitlines()[0] == (
        f"Error: cli-nobody may not list tfjobs in namespace cli on context test ({training.url})"
    )
    assert checked.code == 1
    assert "error    you         may not create, get, list, watch, patch and delete tfjobs.kubeflow.org" in checked.out
    served = "ok       TFJob       served as kubeflow.org/v1; you may not read its CustomResourceDefinition"
    assert served in checked.out
    assert "you may not read Leases" in checked.out
    assert "Traceback" not in checked.err


def put(config: Path, *objects: Mapping[str, Any]) -> None:
    """With kubectl's own means where there are ours: no kubectl is needed."""

    async def made() -> None:
        async with connect(config) as http:
            for body in objects:
                kind, group = str(body["kind"]), "rbac.authorization.k8s.io"
                resource: Resource[Any] = Resource(
                    group=group, version="v1", plural=f"{kind.lower()}s", kind=kind, model=dict
                )
                await http.create(resource, body)

    asyncio.run(made())


def test_rule_11_why_a_job_waits_is_told_to_a_viewer_too(training: ControlPlane, tmp_path: Path) -> None:
    admin = shell_of(tmp_path, training.kubeconfig)
    viewer = shell_of(tmp_path, training.user("cli-viewer-of-waits"))
    api, rules = (
        "rbac.authorization.k8s.io",
        [{"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["get"]}],
    )
    role = {"metadata": {"name": "looks", "namespace": NAMESPACE}, "apiVersion": f"{api}/v1"}
    subjects = [{"apiGroup": api, "kind": "User", "name": "cli-viewer-of-waits"}]
    binding = {"roleRef": {"apiGroup": api, "kind": "Role", "name": "looks"}, "subjects": subjects}
    put(training.kubeconfig, {**role, "kind": "Role", "rules": rules}, {**role, "kind": "RoleBinding", **binding})

    admin("--context", "test", "submit", admin.file("job.yaml", on_node("nowhere", "no-such-node", ["train"])))
    admin("--context", "test", "wait", "nowhere", "--for", "waiting", "--timeout", "60s")
    told = viewer("--context", "test", "why", "nowhere")
    admin("--context", "test", "delete", "nowhere")

    assert told.code == 0, told.err
    assert told.out.startswith("nowhere is Waiting: NeverFits: "), told.out
    assert "correct the manifest, or make a node match the pods" in told.out


def test_the_role_view_is_enough_for_why_and_says_what_it_could_not_look_at(
    training: ControlPlane, tmp_path: Path
) -> None:
    """With the roles as they are installed, in one namespace."""
    api, user = "rbac.authorization.k8s.io", "cli-of-view"
    admin = shell_of(tmp_path, training.kubeconfig)
    viewer = shell_of(tmp_path, training.user(user))
    [view] = [each for each in yaml.safe_load_all(USERS.read_text()) if each["metadata"]["name"] == "tarragon-view"]
    subjects = [{"apiGroup": api, "kind": "User", "name": user}]
    binding = {"metadata": {"name": user, "namespace": NAMESPACE}, "subjects": subjects}
    role = {"apiGroup": api, "kind": "ClusterRole", "name": "view"}
    put(training.kubeconfig, view, {"apiVersion": f"{api}/v1", "kind": "RoleBinding", **binding, "roleRef": role})
    names = ("holder", "ahead", "crowded")
    for name, cpu in zip(names, ("1500m", "2", "2"), strict=True):
        wanted = json.loads(on_node(name, REAL, ["sleep", "600"]))
        [container] = wanted["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": cpu}}
        admin("--context", "test", "submit", admin.file("job.yaml", json.dumps(wanted)))
        state = "running" if name == "holder" else "waiting"
        admin("--context", "test", "wait", name, "--for", state, "--timeout", "60s")

    deadline = time.monotonic() + 60  # the controller that makes `view` of its parts takes its time
    while (told := viewer("--context", "test", "why", "crowded")).code and time.monotonic() < deadline:
        pass
    everything = admin("--context", "test", "why", "crowded")
    fields = json.loads(viewer("--context", "test", "why", "crowded", "-o", "json").out)
    for name in names:
        admin("--context", "test", "delete", name)

    assert told.code == 0, told.err
    assert re.search(r"in the queue for .+, at position 2 of 2 that you may see\n  ahead of it: ahead \(", told.out), (
        told.out
    )
    assert "not considered, because you may not list: jobs in other namespaces" in told.out
    assert (fields["unseen"], fields["wait"]["place"]) == (["jobs", "nodes", "pods"], 2)
    assert "short" not in fields
    assert f"node {REAL} has no room: 1 of 4 cpu free; held by holder (3 cpu)" in everything.out, everything.out
    assert "the job could start when holder ends" in everything.out
    assert "not considered" not in everything.out


def test_a_viewer_looks_and_is_refused_every_change_in_words(training: ControlPlane, tmp_path: Path) -> None:
    viewer = shell_of(tmp_path, training.user("cli-viewer"))
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["get", "list", "watch"]}]
    api = "rbac.authorization.k8s.io"
    put(
        training.kubeconfig,
        {
            "apiVersion": f"{api}/v1",
            "kind": "Role",
            "metadata": {"name": "viewer", "namespace": NAMESPACE},
            "rules": rules,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "viewer", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "viewer"},
            "subjects": [{"apiGroup": api, "kind": "User", "name": "cli-viewer"}],
        },
    )

    listed = viewer("--context", "test", "list")
    described = viewer("--context", "test", "describe", "nothing")
    submitted = viewer("--context", "test", "run", viewer.file("job.yaml", manifest("digits")))

    # The role says nothing of the kind of 2017, as those that were written before it was served.
    assert listed.code == 0
    assert described.code == 102
    assert submitted.code == 1
    assert "cli-viewer may not create tfjobs in namespace cli on context test" in submitted.err
    assert "tarragon --context test check` shows what you may do" in submitted.err
    with Tty(viewer.command("--context", "test", "top"), viewer.folder, viewer.environment()) as tty:
        page = tty.until("you may not list nodes")
        assert f"namespace {NAMESPACE}" in page
        tty.type("q")
        assert tty.ended() == 0


def test_top_shows_jobs_replicas_and_nodes_of_a_cluster(shell: Shell, job: str) -> None:
    assert shell("submit", shell.file("job.yaml", manifest(job, run="60s"))).code == 0

    with Tty(shell.command("top"), shell.folder, shell.environment(), columns=160) as tty:
        tty.until(lambda text: job in text and "worker-1      Running" in text)
        page = tty.until(lambda text: NODE in text and REAL in text)
        assert "context test" in page
        tty.type("e")
        tty.until("SuccessfulCreatePod")
        tty.type("q")
        tty.until("LAST LINE")
        tty.type("x")
        tty.until(f"Delete tfjob/{job} in namespace {NAMESPACE} and its pods? y/n")
        tty.type("y")
        tty.until(lambda text: "No jobs in namespace" in text or f"> {job}" not in text)
        tty.type("q")
        assert tty.ended() == 0


def test_a_cluster_without_our_kinds_and_one_that_does_not_know_us(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(own_control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "nobody"}
    stranger = tmp_path / "stranger"
    stranger.write_text(yaml.safe_dump(config))
    shell = shell_of(tmp_path, own_control_plane.kubeconfig)

    absent = "Error: the kinds TFJob, MPIJob, JAXJob and SharePod are not installed in this cluster"
    for words in (["list"], ["get", "x"], ["delete", "x"], ["submit", shell.file("job.yaml", manifest("digits"))]):
        missing = shell("--context", "test", *words)
        assert missing.code == 1, words
        assert missing.err.splitlines()[0] == absent, words
        assert "kubectl apply -k deploy" in missing.err
    checked = shell("--context", "test", "check")
    unknown = shell("--kubeconfig", str(stranger), "list")

    assert checked.code == 1
    assert "error    TFJob       the kind is not installed" in checked.out
    assert "error    operator    not running: its Lease does not exist" in checked.out
    assert unknown.code == 1
    assert unknown.err.splitlines()[0] == f"Error: you are not logged in to context test ({own_control_plane.url})"


def test_a_job_is_followed_across_a_restart_of_the_api_server(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    shell = shell_of(tmp_path, own_control_plane.kubeconfig)
    config = own_control_plane.kubeconfig
    # Its operator ends when the server is away for longer, and how long that takes is a matter of the machine.
    with trained(config, renew_deadline=120):
        going = shell.start("--context", "test", "run", shell.file("job.yaml", manifest("digits", seconds="8")))
        going.until_err("worker-0: Running")
        own_control_plane.kill(API_SERVER)
        going.until_err("does not answer")
        own_control_plane.restart(API_SERVER)
        ended = going.ended()

    assert ended.code == 0, ended.err
    assert ended.err.count("retrying.") == 1
    assert f"context test ({own_control_plane.url}) answers again." in ended.err
    assert ended.err.count("worker-0: Running") == 1

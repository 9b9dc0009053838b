"""MPIJobs of all generations on a real control plane: mpirun starts ranks in the workers, to their end."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.e2e.user import eventually
from tests.real.site import Site, a_site
from tests.virtualenvs import virtualenv
from tools.controlplane import ControlPlane

pytestmark = [
    pytest.mark.real,
    pytest.mark.mpi,
    pytest.mark.kubectl,
    pytest.mark.slow,
    pytest.mark.timeout(500),
]

Json = dict[str, Any]
PROGRAMS = ROOT / "tests" / "data" / "programs"
RANKS = str(PROGRAMS / "ranks.py")
GPU = "nvidia.com/gpu"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the level `restricted` of the Pod Security Standards asks of a container."""
SHORT = "mpijobs.v1alpha1.kubeflow.org"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Installed from deploy/, with one node of 16 GPUs, for all tests of this module."""
    folder = tmp_path_factory.mktemp("mpi")
    plane = ControlPlane.start(folder / "control-plane")
    try:
        with a_site(plane, folder) as site:
            site.install()
            site.installed_operator()
            site.node("--cpu", "64", "--memory", "256Gi", "--resource", f"{GPU}=16")
            yield site
    finally:
        plane.stop()


def container(name: str, *command: str, gpus: int = 0) -> Json:
    limits = {"resources": {"limits": {GPU: gpus}}} if gpus else {}
    return {"name": name, "image": "mpi", **({"command": list(command)} if command else {}), **limits}


def template(one: Json) -> Json:
    return {"spec": {"containers": [one]}}


def mpijob(version: str, name: str, go: Path, *, workers: int = 2, **spec: Any) -> Json:
    """A job whose ranks, two in each worker, wait for a file."""
    launcher = container("launcher", "mpirun", "python", RANKS, str(go))
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 2,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template(launcher)},
                "Worker": {"replicas": workers, "template": template(container("worker"))},
            },
            **spec,
        },
    }


def of_gpus(name: str, gpus: int, go: Path) -> Json:
    """A job of v1alpha1."""
    one = container("main", "mpirun", "python", RANKS, str(go))
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"GPUs": gpus, "template": template(one)},
    }


def tfjob(name: str, gpus: int, go: Path) -> Json:
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    worker = {"replicas": 1, "template": template(container("tensorflow", "python", "-c", waits, gpus=gpus))}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }


def create(site: Site, manifest: Json) -> None:
    site.kubectl("create", "-f", "-", given=yaml.safe_dump(manifest))


def pods_of(site: Site, name: str) -> set[str]:
    listed = site.kubectl("get", "pods", "-o", "name").split()
    return {pod.removeprefix("pod/") for pod in listed if pod.startswith(f"pod/{name}-")}


def conditions(status: Json) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status.get("conditions", [])}


def ranks(log: str) -> list[str]:
    return sorted(re.findall(r"^rank .*", log, re.MULTILINE), key=lambda line: int(line.split()[1]))


def all_ranks(count: int) -> list[str]:
    return [f"rank {rank} of {count}, sum {sum(range(count))}" for rank in range(count)]


@pytest.mark.parametrize(
    ("version", "policy"),
    [
        ("v1alpha2", {"cleanPodPolicy": "Running"}),
        ("v1", {"runPolicy": {"cleanPodPolicy": "Running"}}),
        ("v2beta1", {"runPolicy": {"cleanPodPolicy": "Running"}}),
    ],
)
def test_ranks_run_in_the_workers_and_the_workers_end_with_the_launcher(site: Site, version: str, policy: Json) -> None:
    name, go = f"pi-{version}", site.folder / f"go-{version}"

    create(site, mpijob(version, name, go, **policy))
    site.wait("mpijob", name, "condition=Running")
    running = site.read("mpijob", name)["status"]
    go.touch()
    site.wait("mpijob", name, "condition=Succeeded")
    ended = site.read("mpijob", name)["status"]

    assert (conditions(running)["Created"], conditions(running).get("Succeeded")) == ("True", None)
    assert running["replicaStatuses"]["Launcher"]["active"] == 1
    assert running["replicaStatuses"]["Worker"]["active"] == 2
    assert (conditions(ended)["Running"], conditions(ended)["Succeeded"]) == ("False", "True")
    assert ended["replicaStatuses"]["Launcher"] == {"active": 0, "failed": 0, "succeeded": 1}
    assert ended["startTime"] <= ended["completionTime"]
    assert ranks(site.kubectl("logs", f"{name}-launcher")) == all_ranks(4)
    assert eventually(lambda: pods_of(site, name) == {f"{name}-launcher"})


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_job_that_loses_a_worker_starts_its_ranks_again_and_does_not_claim_success(site: Site, version: str) -> None:
    """As `mpirun` of Open MPI 5 does, which exits with 0 when it loses a worker."""
    name, go = f"loses-{version}", site.folder / f"go-loses-{version}"
    create(site, mpijob(version, name, go))
    site.wait("mpijob", name, "condition=Running")
    assert eventually(lambda: "all are there" in site.kubectl("logs", f"{name}-launcher"))
    first = site.read("pod", f"{name}-launcher")["metadata"]["uid"]

    site.kubectl("delete", "pod", f"{name}-worker-1")
    assert eventually(lambda: {first} < launchers(site, name))
    go.touch()
    site.wait("mpijob", name, "condition=Succeeded")

    assert ranks(site.kubectl("logs", f"{name}-launcher")) == all_ranks(4)
    status = site.read("mpijob", name)["status"]
    assert status["tarragon"]["restarts"]["total"] >= 1
    assert status["replicaStatuses"]["Launcher"] == {"active": 0, "failed": 0, "succeeded": 1}
    site.kubectl("delete", "mpijob", name)


def launchers(site: Site, name: str) -> set[str]:
    """The UIDs of the launchers that there are and were, by the events of the API server."""
    listed = json.loads(site.kubectl("get", "events", "-o", "json"))["items"]
    seen = (each["involvedObject"] for each in listed)
    return {each["uid"] for each in seen if each["kind"] == "Pod" and each["name"] == f"{name}-launcher"}


@pytest.mark.parametrize("version", ["v1alpha2", "v1", "v2beta1"])
def test_the_pods_of_a_job_of_the_strictest_level_keep_to_it(site: Site, version: str) -> None:
    """What the operator adds to a pod, such as an init container, needs no more than the pod itself.

    Since 1.23 the API server refuses other pods in such a namespace.
    """
    name, team, go = f"strict-{version}", f"strict-{version}", site.folder / f"go-strict-{version}"
    site.kubectl("create", "namespace", team)
    site.kubectl("label", "namespace", team, "pod-security.kubernetes.io/enforce=restricted")
    job = mpijob(version, name, go)
    for group in job["spec"]["mpiReplicaSpecs"].values():
        group["template"]["spec"]["containers"][0]["securityContext"] = RESTRICTED
    job["metadata"]["namespace"] = team

    create(site, job)
    site.wait("mpijob", name, "condition=Running", team)
    pods = json.loads(site.kubectl("-n", team, "get", "pods", "-o", "json"))["items"]
    specs = [each["spec"] for each in pods]
    containers = [one for spec in specs for one in (*spec["containers"], *spec.get("initContainers", ()))]
    assert len(pods) == 3
    assert all(each.get("securityContext") == RESTRICTED for each in containers)
    go.touch()
    site.wait("mpijob", name, "condition=Succeeded", team)

    assert ranks(site.kubectl("-n", team, "logs", f"{name}-launcher")) == all_ranks(4)
    site.kubectl("delete", "namespace", team)


def test_workers_that_are_not_to_be_cleaned_up_stay(site: Site) -> None:
    go = site.folder / "go-stays"
    go.touch()

    create(site, mpijob("v2beta1", "stays", go, runPolicy={"cleanPodPolicy": "None"}))
    site.wait("mpijob", "stays", "condition=Succeeded")

    assert pods_of(site, "stays") == {"stays-launcher", "stays-worker-0", "stays-worker-1"}
    site.kubectl("delete", "mpijob", "stays")


def test_a_number_of_gpus_has_the_status_of_its_time(site: Site) -> None:
    go = site.folder / "go-short"

    create(site, of_gpus("short", 4, go))
    site.wait(SHORT, "short", "jsonpath={.status.launcherStatus}=Active")
    site.wait(SHORT, "short", "jsonpath={.status.workerReplicas}=4")
    running = site.read(SHORT, "short")
    go.touch()
    site.wait(SHORT, "short", "condition=Succeeded")
    ended = site.read(SHORT, "short")

    assert running["apiVersion"] == "kubeflow.org/v1alpha1"
    assert running["spec"]["GPUs"] == 4
    assert ended["status"]["launcherStatus"] == "Succeeded"
    assert not {"replicaStatuses"} & (running["status"].keys() | ended["status"].keys())
    assert ended["status"]["startTime"] <= ended["status"]["completionTime"]
    assert ranks(site.kubectl("logs", "short-launcher")) == all_ranks(4)
    assert eventually(lambda: pods_of(site, "short") == {"short-launcher"})
    site.wait(SHORT, "short", "jsonpath={.status.workerReplicas}=0")


def test_jobs_of_both_kinds_wait_for_each_others_gpus_in_one_queue(site: Site) -> None:
    first, second = site.folder / "go-first", site.folder / "go-second"

    create(site, tfjob("first", 12, first))
    site.wait("tfjob", "first", "condition=Running")
    create(site, of_gpus("second", 8, second))
    site.wait("mpijob", "second", "jsonpath={.status.tarragon.reason}=InsufficientResources")
    waiting = site.kubectl("get", "mpijob", "second", "-o", "wide")
    assert "nvidia.com/gpu" in waiting
    assert not pods_of(site, "second")

    first.touch()
    site.wait(SHORT, "second", "jsonpath={.status.launcherStatus}=Active")
    create(site, tfjob("third", 12, first))
    site.wait("tfjob", "third", "jsonpath={.status.tarragon.reason}=InsufficientResources")
    assert "nvidia.com/gpu" in site.kubectl("get", "tfjob", "third", "-o", "wide")

    second.touch()
    site.wait("mpijob", "second", "jsonpath={.status.tarragon.state}=Succeeded")
    site.wait("tfjob", "third", "condition=Succeeded")
    assert ranks(site.kubectl("logs", "second-launcher")) == all_ranks(8)


def test_kubectl_gets_scales_and_deletes(site: Site) -> None:
    manifest = mpijob("v2beta1", "scaled", site.folder, elasticPolicy={"minReplicas": 1, "maxReplicas": 2})
    # In the place of horovodrun: mpirun itself does not survive a change of its hosts.
    manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = template(container("launcher", "sleep", "1000"))
    create(site, manifest)
    site.wait("mpijob", "scaled", "condition=Running")

    for word in ("mj", "mpij", "mpijob", "mpijobs", "mpijobs.kubeflow.org"):
        head, row = site.kubectl("get", word, "scaled").splitlines()
        assert head.split() == ["NAME", "STATE", "READY", "RESTARTS", "AGE", "PROGRESS", "REASON"]
        assert row.split()[:4] == ["scaled", "Running", "3/3", "0"]

    site.kubectl("patch", "mpijob", "scaled", "--type=merge", "-p", '{"spec": {"elasticPolicy": {"maxReplicas": 3}}}')
    site.kubectl("scale", "mpijob/scaled", "--replicas=3")
    assert eventually(lambda: len(pods_of(site, "scaled")) == 4)
    assert eventually(lambda: hosts(site, "scaled") == [f"scaled-worker-{index}" for index in range(3)])
    site.kubectl("scale", "mpijob/scaled", "--replicas=1")
    assert eventually(lambda: pods_of(site, "scaled") == {"scaled-launcher", "scaled-worker-0"})
    assert eventually(lambda: hosts(site, "scaled") == ["scaled-worker-0"])

    site.kubectl("delete", "mpijob", "scaled")
    kinds = "mpijobs,pods,services,configmaps,secrets"
    assert eventually(lambda: "scaled" not in site.kubectl("get", kinds, "-o", "name"))


def test_kubectl_explains_the_fields(site: Site) -> None:
    assert "MPIJob" in site.kubectl("explain", "mpijob")

    explained = " ".join(site.kubectl("explain", "mpijob.spec.slotsPerWorker").split())
    assert "The number of ranks that mpirun starts on each worker; 1 by default" in explained


SSH_CONFIG = """\
Include {folder}/*.conf
Host *
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


@pytest.mark.sshd
def test_openssh_accepts_the_keys_of_the_job_in_its_server_and_its_client(site: Site) -> None:
    """On a node of containers, sshd is what a worker runs. Here a shell hides it, or the node would not start it."""
    go, shared = site.folder / "go-ssh", site.folder / "ssh"
    go.touch()
    shared.mkdir()
    (shared / "config").write_text(SSH_CONFIG.format(folder=shared))
    manifest = mpijob("v2beta1", "by-ssh", go, launcherCreationPolicy="WaitForWorkersReady")
    launcher, worker = (
        each["template"]["spec"]["containers"][0] for each in manifest["spec"]["mpiReplicaSpecs"].values()
    )
    agent = f"{shutil.which('ssh')} -F {shared}/config -i /root/.ssh/id_rsa"
    launcher["command"] = ["/bin/sh", "-c", f"exec mpirun $(command -v python) {RANKS} {go}"]
    launcher["env"] = [{"name": "PRTE_MCA_plm_ssh_agent", "value": agent}]
    worker["command"] = ["python", str(PROGRAMS / "sshd.py"), str(shared), "/root/.ssh"]
    is_there = ["/bin/sh", "-c", f"test -e {shared}/$HOSTNAME.conf"]
    worker["readinessProbe"] = {"exec": {"command": is_there}, "periodSeconds": 1}

    create(site, manifest)
    site.wait("mpijob", "by-ssh", "condition=Succeeded")

    assert ranks(site.kubectl("logs", "by-ssh-launcher")) == all_ranks(4)
    for index in range(2):
        assert "Accepted publickey for" in site.kubectl("logs", f"by-ssh-worker-{index}")
    secret = site.read("secret", "by-ssh-ssh")
    private, public = (base64.b64decode(secret["data"][f"ssh-{kind}key"]) for kind in ("private", "public"))
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    assert public.startswith(b"ecdsa-sha2-nistp521 ")
    site.kubectl("delete", "mpijob", "by-ssh")


SDK = ("kubeflow-training==1.9.*", "kubernetes==31.*")
"""With the official client of its time: 37 checks its arguments, and refuses the models of Kubeflow's client."""


@pytest.mark.parametrize(
    ("kind", "master"), [("MPIJob", "mpijob-of-python-launcher"), ("TFJob", "tfjob-of-python-worker-0")]
)
def test_kubeflows_own_client_creates_waits_for_reads_logs_of_and_deletes_a_job(
    site: Site, kind: str, master: str
) -> None:
    python = virtualenv(ROOT / ".tools" / "kubeflow-training-1.9", *SDK) / "bin" / "python"
    go = site.folder / "go-python"
    go.touch()
    rank = ["python", RANKS, str(go)]
    name = f"{kind.lower()}-of-python"
    site.kubectl("create", "namespace", name)

    client = [str(each) for each in (python, PROGRAMS / "kubeflow_client.py", site.plane.kubeconfig, kind)]
    ended = subprocess.run(
        [*client, *(["mpirun"] if kind == "MPIJob" else []), *rank], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr + site.logs()
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["listed"] == [name]
    assert {"Created", "Running", "Succeeded"} <= set(found["conditions"])
    assert (found["succeeded"], found["failed"]) == (True, False)
    assert found["masters"] == [master]
    assert ranks(found["logs"][master]) == all_ranks(4 if kind == "MPIJob" else 1)
    assert eventually(lambda: not site.kubectl("get", "-n", name, "pods", "-o", "name"))


def hosts(site: Site, name: str) -> list[str]:
    """The pods in the host file."""
    lines = site.read("configmap", f"{name}-config")["data"]["hostfile"].splitlines()
    return [line.partition(".")[0] for line in lines]

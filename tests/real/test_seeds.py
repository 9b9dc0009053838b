"""The manifests that Tarragon was begun for, unchanged, on a real control plane, to their end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.real.site import PATIENCE, Site, a_site, created_pods
from tools.controlplane import ControlPlane

pytestmark = [
    pytest.mark.real,
    pytest.mark.kubectl,
    pytest.mark.slow,
    pytest.mark.timeout(500),
]

DATA = ROOT / "tests" / "data"
IMAGES = ("gcr.io/tf-on-k8s-dogfood/*", "your_imagename")
# The two of DRAGON that load their program from a server of long ago train nothing, and end; all have one name.
SEEDS = {
    "001-tf_job.yaml": "first",
    "001-tf_smoke_gpu.yaml": "second",
    "002-dragon-cpu.yaml": "third",
    "002-dragon-nvidia-gpu.yaml": "fifth",
    "003-azurefile.yaml": "sixth",
    "004-tfjob.yaml": "kubeflow",
}
"""By file, the namespace that it goes to: of its own, or that it names."""
SHARES = ("002-dragon-kubeshare.yaml", "fourth")
"""It requests shares of GPUs."""
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: azurefile}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: ""}
"""


@pytest.mark.both_releases
def test_every_manifest_of_long_ago_runs_unchanged_to_its_end(site: Site) -> None:
    image = {"entrypoint": ["python", "acting.py"], "workdir": str(acting(site.folder / "programs"))}
    site.map_images(dict.fromkeys(IMAGES, image))
    for namespace in SEEDS.values():
        site.kubectl("create", "namespace", namespace)
    site.kubectl("create", "-n", SEEDS["003-azurefile.yaml"], "-f", "-", given=CLAIM)
    site.node("--cpu", "64", "--memory", "256Gi", "--resource", "nvidia.com/gpu=8")

    for file, namespace in SEEDS.items():
        site.kubectl("create", "-n", namespace, "-f", str(DATA / "manifests" / file))
    for namespace in SEEDS.values():
        site.kubectl(
            "wait", "-n", namespace, "tfjobs", "--all",
            "--for=jsonpath={.status.tarragon.state}=Succeeded", f"--timeout={PATIENCE:.0f}s",
        )  # fmt: skip

    pods = created_pods(site)
    assert set(pods.values()) == {1}
    master = next(name for name in pods if name.startswith("first/example-job-master-"))
    assert "master 0 has ended: loss 0.0" in site.kubectl("logs", "-n", "first", master.removeprefix("first/"))
    assert as_in_2017(site.read("tfjobs.v1alpha1.kubeflow.org", "example-job", "first"))


def test_the_one_that_shares_gpus_is_accepted_as_valid(site: Site) -> None:
    file, namespace = SHARES
    site.kubectl("create", "namespace", namespace)

    created = site.kubectl("create", "-n", namespace, "--dry-run=server", "-f", str(DATA / "manifests" / file))

    assert "tfjob.kubeflow.org/job1 created" in created


@pytest.mark.mpi
def test_the_commands_of_document_004_install_and_run_an_mpijob_of_16_gpus(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Word for word: `kubectl create -f deploy/`, `get crd`, the manifest, `get -o yaml mpijobs`; its TFJob, too."""
    with a_site(own_control_plane, tmp_path) as site:
        programs = acting(site.folder / "programs")
        ranks = ["mpirun", "python", str(DATA / "programs" / "ranks.py"), str(programs)]
        site.map_images(
            {
                "mpioperator/tensorflow-benchmarks": {"entrypoint": ranks},
                "your_imagename": {"entrypoint": ["python", "acting.py"], "workdir": str(programs)},
            }
        )

        assert "customresourcedefinition.apiextensions.k8s.io/mpijobs.kubeflow.org created" in site.install()
        assert "mpijobs.kubeflow.org" in site.kubectl("get", "crd")
        site.installed_operator()
        site.node("--cpu", "64", "--memory", "256Gi", "--resource", "nvidia.com/gpu=16")
        site.kubectl("create", "namespace", "kubeflow")
        site.kubectl("create", "-f", str(DATA / "manifests" / "004-tfjob.yaml"))
        site.kubectl("create", "-f", str(DATA / "manifests" / "004-mpijob.yaml"))
        site.wait("mpijobs", "tensorflow-benchmarks-16", "jsonpath={.status.tarragon.state}=Succeeded")

        (found,) = yaml.safe_load(site.kubectl("get", "-o", "yaml", "mpijobs"))["items"]
        assert found["spec"] == yaml.safe_load((DATA / "manifests" / "004-mpijob.yaml").read_text())["spec"]
        assert found["status"]["launcherStatus"] == "Succeeded"
        log = site.kubectl("logs", "tensorflow-benchmarks-16-launcher")
        assert log.count(f"of 16, sum {sum(range(16))}") == 16
        workers = [name for name in created_pods(site) if name.startswith("default/tensorflow-benchmarks-16-worker-")]
        assert len(workers) == 16
        (trained,) = site.kubectl("get", "-n", "kubeflow", "tfjobs", "-o", "name").split()
        site.wait("tfjob", trained.partition("/")[2], "condition=Succeeded", "kubeflow")


def acting(folder: Path) -> Path:
    """A folder with a program that only claims to train, under both names by which the manifests call theirs.

    That the manifests train is tested by tests/e2e/test_seeds.py; here they run unchanged.
    """
    (folder / "trainer").mkdir(parents=True)
    for place in (folder / "acting.py", folder / "trainer" / "task.py"):
        shutil.copy(DATA / "programs" / "acting.py", place)
    return folder


def as_in_2017(found: Mapping[str, Any]) -> bool:
    """In the shape that the README of v1alpha1 shows."""
    status = found["status"]
    assert found["apiVersion"] == "kubeflow.org/v1alpha1"
    assert len(found["spec"]["RuntimeId"]) == 4
    assert [spec["tfPort"] for spec in found["spec"]["replicaSpecs"]] == [2222, 2222, 2222]
    assert (status["phase"], status["state"], status["reason"]) == ("Done", "Succeeded", "")
    masters, *_ = status["replicaStatuses"]
    assert masters == {"tf_replica_type": "MASTER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}}
    return True

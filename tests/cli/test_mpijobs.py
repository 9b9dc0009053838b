"""The commands on an MPIJob. Its launcher prints something; tests/examples runs mpirun."""

from __future__ import annotations

import re

import pytest

from tarragon.cli.jobs.scaling import RequestedSize, scale_edit
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.framework import MPI
from tarragon.kube.codec import decode, encode
from tarragon.kube.meta import CustomObject
from tests.cli.conftest import Shell
from tests.cli.manifests import command, group, mpi_job
from tests.frameworks.mpi_jobs import Json, mpijob, template

pytestmark = pytest.mark.timeout(300)


def as_in_a_cluster(manifest: Json) -> ClusterJob:
    manifest["metadata"]["annotations"] = {"tarragon.dev/generation": manifest["apiVersion"]}
    return read_job(MPI, decode(encode(manifest), CustomObject))


def test_scaling_below_the_ranks_of_mpirun_warns_and_scales() -> None:
    command = {"Launcher": {"template": template(command=["mpirun", "-n", "4", "pi"])}}
    manifest = mpijob(workers=4, specs=command)
    edit = scale_edit(RequestedSize(replicas={WORKER: 2}))

    before, after = as_in_a_cluster(manifest), edit.edited_manifest(as_in_a_cluster(manifest), manifest)

    assert after["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    (*_, note) = edit.notes(before, as_in_a_cluster(dict(after)))
    assert note.startswith("warning: spec.mpiReplicaSpecs.Launcher.template.spec.containers: ")
    assert "mpirun will refuse to start 4 ranks, as there are only 2 slots" in note
    assert not any("warning" in note for note in edit.notes(before, before))


def test_an_mpijob_is_followed_and_looked_at_by_its_short_name(shell: Shell) -> None:
    launcher = group(command("sh", "-c", "cat /etc/mpi/hostfile"))
    ranks = {"name": "main", "image": "acme/mpi"}
    ended = shell("run", shell.file("job.yaml", mpi_job("pi", Launcher=launcher, Worker=group(ranks, 2))))
    described = shell("describe", "mj/pi").out

    assert ended.code == 0, ended.err
    assert "[launcher-0] pi-worker-1.pi.default.svc slots=1" in ended.out
    assert re.search(r"^Replicas: +launcher 1, worker 2$", described, re.MULTILINE)
    assert re.search(r"^ +REPLICA +STATE +EXIT +RESTARTS +NODE$", described, re.MULTILINE)
    assert {line.split("]")[0] for line in shell("logs", "mj/pi", "--replica", "launcher").out.splitlines()} == {
        "[launcher-0"
    }
    assert shell("delete", "mpij/pi").out == "mpijob/pi deleted\n"


def test_a_dry_run_by_the_server_has_all_that_an_mpijob_needs_and_hides_its_keys(shell: Shell) -> None:
    file = shell.file("job.yaml", mpi_job("pi", Launcher=group(command("true")), Worker=group(command("true"))))

    named = shell("submit", file, "--dry-run=server", "-o", "name")
    shown = shell("submit", file, "--dry-run=server", "-o", "yaml")

    assert (named.code, shown.code) == (0, 0), named.err
    assert {"secret/pi-ssh", "configmap/pi-config", "pod/pi-launcher"} <= set(named.out.splitlines())
    assert "PRIVATE KEY" not in shown.out


def test_a_worker_whose_own_command_has_ended_is_named_with_what_to_do(shell: Shell) -> None:
    launcher, worker = group(command("sleep", "600")), group(command("sh", "-c", "exit 3"), 2)
    manifest = mpi_job("pi", Launcher=launcher, Worker=worker).replace("v2beta1", "v1")

    ended = shell("run", shell.file("job.yaml", manifest))

    assert ended.code == 100, ended.err
    for found in (ended.out, shell("why", "mj/pi").out, shell("describe", "mj/pi").out):
        assert re.search(r"the command of worker-\d ended by itself, but mpirun needs its workers to the end", found)
        assert "remove the command, and the operator lets them wait with `sleep 365d`" in found

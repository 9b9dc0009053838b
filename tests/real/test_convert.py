"""One job, written for every generation by `convert`, on a real API server: accepted, run alike, compared alike."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.frameworks.mpi.conversion.convert import convert as convert_mpijob
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS as MPI_GENERATIONS
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.tensorflow.conversion.convert import convert
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS
from tests.cli.conftest import Shell
from tests.deploy.stage import Kubectl
from tests.frameworks.mpi_jobs import short_job, template
from tests.real.scene import Scene, a_scene, until_served
from tests.real.test_v1alpha1 import manifest
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

HOME = "kubeflow.org/v1alpha1"


@pytest.fixture
async def scene(emptied_control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with a_scene(emptied_control_plane) as scene:
        yield scene


@pytest.fixture
async def mpi_scene(own_control_plane: ControlPlane) -> AsyncIterator[Scene]:
    """With MPIJobs, which other tests do not expect on the control plane that they share."""
    async with a_scene(own_control_plane) as scene:
        await scene.http.create(CUSTOM_RESOURCE_DEFINITIONS, MPI.crd())
        await until_served(scene.http, MPI.resource)
        yield scene


@pytest.fixture
def kubectl(scene: Scene) -> Kubectl:
    return Kubectl(scene.plane.kubeconfig)


def written(generation: str) -> dict[str, Any]:
    """A master, two workers, and a parameter server that v1alpha1 leaves to its operator."""
    name = re.sub("[^a-z0-9]+", "-", generation)
    return dict(convert(manifest(name, seconds=1), HOME, generation).manifest)


def mpijob(generation: str) -> dict[str, Any]:
    """A launcher and two workers, of one template, as v1alpha1 wants it."""
    job = short_job(pod=template(command=["mpirun", "pi"]), replicas=2)
    job["metadata"] = {"name": re.sub("[^a-z0-9]+", "-", generation), "namespace": "default"}
    return dict(convert_mpijob(job, HOME, generation).manifest)


def kind_of(job: dict[str, Any]) -> str:
    group, _, version = job["apiVersion"].partition("/")
    return f"{job['kind'].lower()}s.{version}.{group}"


async def diff(scene: Scene, job: dict[str, Any], folder: Path) -> tuple[int, str]:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    shell = Shell(folder=folder, home=folder / "home")
    config = str(scene.plane.kubeconfig)
    ended = await asyncio.to_thread(shell, "diff", "--kubeconfig", config, "-n", "default", str(file))
    return ended.code, ended.out + ended.err


async def test_what_convert_writes_runs_as_the_first_manifest_does_and_differs_from_it_in_nothing(
    scene: Scene, kubectl: Kubectl, tmp_path: Path
) -> None:
    jobs = {generation: written(generation) for generation in GENERATIONS}
    for job in jobs.values():
        assert (await diff(scene, job, tmp_path))[0] == 1
        await kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    await scene.operator(None, "--no-leader-elect")

    for job in jobs.values():
        name, done = job["metadata"]["name"], "--for=jsonpath={.status.tarragon.state}=Succeeded"
        await kubectl("wait", kind_of(job), name, done, "--timeout=50s")
    made = scene.made()
    assert set(made.values()) == {1}
    kinds = Counter(kind for pod in made for kind in re.findall(r"\b(master|worker|ps)-", pod))
    assert kinds == {"master": 8, "worker": 16, "ps": 8}
    for generation, job in jobs.items():
        assert await diff(scene, job, tmp_path) == (0, ""), generation


async def test_an_mpijob_runs_in_every_generation_and_differs_from_its_file_in_nothing(
    mpi_scene: Scene, tmp_path: Path
) -> None:
    kubectl = Kubectl(mpi_scene.plane.kubeconfig)
    jobs = {generation: mpijob(generation) for generation in MPI_GENERATIONS}
    for job in jobs.values():
        assert (await diff(mpi_scene, job, tmp_path))[0] == 1
        await kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    await mpi_scene.operator(None, "--no-leader-elect")

    names = [job["metadata"]["name"] for job in jobs.values()]
    pods = {f"{name}-{replica}" for name in names for replica in ("launcher", "worker-0", "worker-1")}
    await mpi_scene.until(lambda: mpi_scene.uids().keys() == pods)
    for job in jobs.values():
        name, state = job["metadata"]["name"], "--for=jsonpath={.status.tarragon.state}"
        await kubectl("wait", kind_of(job), name, f"{state}=Running", "--timeout=50s")
        await kubectl("annotate", "pod", f"{name}-launcher", "tarragon.dev/hollow-seconds=0")
        await kubectl("wait", kind_of(job), name, f"{state}=Succeeded", "--timeout=50s")
    assert mpi_scene.made() == dict.fromkeys(pods, 1)
    secrets = (await kubectl("get", "secrets", "--field-selector=type=kubernetes.io/ssh-auth", "-o", "name")).split()
    assert secrets == ["secret/kubeflow-org-v2beta1-ssh"]
    for generation, job in jobs.items():
        assert await diff(mpi_scene, job, tmp_path) == (0, ""), generation

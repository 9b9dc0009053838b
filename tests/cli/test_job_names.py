"""Names of jobs as users type them, also where several jobs share one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarragon.cli.jobs.selection import JobSelection, select_jobs
from tarragon.cli.jobview.jobs import AmbiguousName, NoSuchJob, find_job
from tarragon.cli.jobview.target import ClusterReader
from tarragon.client.errors import Forbidden
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.frameworks.jax.framework import JAX
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS
from tarragon.kube.meta import Key, Resource
from tests.cli.conftest import Shell
from tests.cli.manifests import command, group, mpi_job
from tests.operator.stage import Stage, a_stage


class ReaderWithout:
    """Reads as somebody who may not read some kinds, given by their full names."""

    def __init__(self, reader: ClusterReader, forbidden: Sequence[str]) -> None:
        self._reader = reader
        self._forbidden = forbidden

    async def get(self, resource: Resource[Any], key: Key) -> Any:
        self._check(resource)
        return await self._reader.get(resource, key)

    async def list(self, resource: Resource[Any], selection: Selector = ALL_OBJECTS) -> ObjectList[Any]:
        self._check(resource)
        return await self._reader.list(resource, selection)

    def _check(self, resource: Resource[Any]) -> None:
        if resource.full_name in self._forbidden:
            raise Forbidden({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"})


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with a_stage(tmp_path) as made:
        for framework in (MLKUBE, MPI, JAX):
            await made.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, framework.crd())
        yield made


async def create(stage: Stage, framework: Framework, name: str) -> None:
    """A job of which these tests need the name alone."""
    resource = framework.resource.with_model(dict)
    metadata = {"name": name, "namespace": "default"}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": {}}
    await stage.world.client.create(resource, body)


async def test_a_name_of_one_job_needs_no_kind(stage: Stage) -> None:
    await create(stage, JAX, "digits")

    assert (await find_job(stage.world.client, "digits", "default")).name == "jaxjob/digits"


async def test_a_name_that_jobs_of_two_kinds_share_is_an_error_that_names_both(stage: Stage) -> None:
    await create(stage, MPI, "mypi")
    await create(stage, JAX, "mypi")

    with pytest.raises(AmbiguousName) as raised:
        await find_job(stage.world.client, "mypi", "default")

    assert raised.value.summary == "mypi is the name of 2 jobs in namespace default: mpijob/mypi and jaxjob/mypi"
    assert raised.value.remedy == "name the kind, as in mpijob/mypi"
    assert raised.value.exit_code == 2


async def test_the_kind_tells_jobs_of_one_name_apart(stage: Stage) -> None:
    await create(stage, MPI, "mypi")
    await create(stage, JAX, "mypi")

    assert (await find_job(stage.world.client, "mj/mypi", "default")).framework is MPI
    assert (await find_job(stage.world.client, "jaxjobs/mypi", "default")).framework is JAX


async def test_of_two_groups_with_a_kind_of_one_name_the_first_is_meant_as_in_kubectl(stage: Stage) -> None:
    await create(stage, TENSORFLOW, "digits")
    await create(stage, MLKUBE, "digits")

    with pytest.raises(AmbiguousName, match=r"tfjob/digits and tfjob\.mlkube\.io/digits"):
        await find_job(stage.world.client, "digits", "default")
    assert (await find_job(stage.world.client, "tfjob/digits", "default")).framework is TENSORFLOW
    assert (await find_job(stage.world.client, "tfjob.mlkube.io/digits", "default")).framework is MLKUBE


async def test_a_kind_that_the_user_may_not_read_hides_no_job_of_another(stage: Stage) -> None:
    await create(stage, TENSORFLOW, "digits")
    await create(stage, JAX, "mnist")
    reader = ReaderWithout(stage.world.client, ["mpijobs.kubeflow.org"])

    assert (await find_job(reader, "digits", "default")).framework is TENSORFLOW
    assert (await find_job(ReaderWithout(reader, ["tfjobs.kubeflow.org"]), "mnist", "default")).framework is JAX


async def test_a_job_that_may_be_of_a_forbidden_kind_is_not_said_to_be_absent(stage: Stage) -> None:
    with pytest.raises(Forbidden):
        await find_job(ReaderWithout(stage.world.client, ["tfjobs.kubeflow.org"]), "digits", "default")


async def test_several_jobs_are_not_selected_at_all_if_one_of_the_names_is_ambiguous(stage: Stage) -> None:
    await create(stage, MPI, "mypi")
    await create(stage, JAX, "mypi")
    await create(stage, JAX, "digits")

    with pytest.raises(AmbiguousName):
        await select_jobs(stage.world.client, JobSelection(names=["digits", "mypi"]), "default")


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("mj/mypi", "did you mean jaxjob/mypi?"),
        ("mj/mypy", "did you mean jaxjob/mypi?"),
        ("mypy", "did you mean mypi?"),
        ("jaxjob/digit", "did you mean mpijob/digits?"),
        ("digit", "did you mean mpijob/digits?"),
        ("nothing-like-it", "`list -A` lists the jobs of all namespaces"),
    ],
)
async def test_a_name_that_is_not_found_is_compared_with_those_of_all_kinds(
    stage: Stage, typed: str, remedy: str
) -> None:
    await create(stage, JAX, "mypi")
    await create(stage, MPI, "digits")
    await create(stage, TENSORFLOW, "digits")

    with pytest.raises(NoSuchJob) as raised:
        await find_job(stage.world.client, typed, "default")

    assert raised.value.remedy == remedy


@pytest.mark.timeout(300)
def test_no_command_takes_one_of_two_jobs_for_the_other_nor_their_logs_when_both_are_deleted(shell: Shell) -> None:
    prints = group(command("sh", "-c", "echo of MPI"))
    shell("run", shell.file("mpi.yaml", mpi_job("mypi", Launcher=prints)))
    jax = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "mypi"},
        "spec": {"jaxReplicaSpecs": {"Worker": group({**command("sh", "-c", "echo of JAX"), "name": "jax"})}},
    }
    shell("run", shell.file("jax.yaml", json.dumps(jax)))
    table = [line.split() for line in shell("list").out.splitlines()]
    assert [row[table[0].index("KIND")] for row in table] == ["KIND", "JAXJob", "MPIJob"]
    assert shell("list", "-o", "name").out == "jaxjob/mypi\nmpijob/mypi\n"
    both = "Error: mypi is the name of 2 jobs in namespace default: mpijob/mypi and jaxjob/mypi\n"

    for words in (["get"], ["describe"], ["why"], ["wait"], ["logs"], ["delete"], ["suspend"], ["debug-dump"]):
        ended = shell(*words, "mypi")
        assert (ended.code, both in ended.err, ended.out) == (2, True, ""), words
    assert shell("delete", "mpijob/mypi").code == 0
    assert "KIND" not in shell("list").out
    assert shell("logs", "mypi", "--no-prefix").out == "of JAX\n"
    assert shell("delete", "mypi").out == "jaxjob/mypi deleted\n"
    ended = shell("logs", "mypi")
    assert (ended.code, ended.out) == (2, "")
    assert "there are logs of deleted jobs of 2 kinds: jaxjob/mypi and mpijob/mypi" in ended.err
    assert shell("logs", "mj/mypi", "--no-prefix").out == "of MPI\n"

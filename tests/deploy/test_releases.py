"""Releases of the Helm chart on a real control plane, with helm 3 and helm 4."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HELM_4, helm_program
from tests.deploy.helm_program import CHART, NAMESPACE, Helm
from tests.deploy.leftovers import CRDS, KINDS, LEFT_BY_HELM, listed_objects, listing
from tests.deploy.stage import Stage, a_stage, group
from tests.deploy.test_progress import free_address, takes_reports
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.slow, pytest.mark.timeout(300)]

ARGUMENTS = "{.spec.template.spec.containers[0].args}"
LARGEST_RECORD = 256 * 1024
"""A quarter of what a Secret may have."""

Json = dict[str, Any]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Nothing is installed yet, and nobody else is there: releases are about whole clusters."""
    plane = ControlPlane.start(tmp_path / "plane")
    try:
        async with a_stage(plane) as stage:
            yield stage
    finally:
        plane.stop()


@pytest.fixture(params=[pytest.param("3", marks=pytest.mark.helm), pytest.param("4", marks=pytest.mark.helm4)])
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    program = HELM_4 if request.param == "4" else helm_program()
    assert program
    return Helm(program, tmp_path)


async def test_a_release_comes_changes_goes_back_and_goes_while_a_job_runs(
    stage: Stage, helm: Helm, tmp_path: Path
) -> None:
    release = partial(helm, "--namespace", NAMESPACE, kubeconfig=stage.plane.kubeconfig)
    before = await everything(stage)
    notes = release("install", "tarragon", str(older_chart(tmp_path)), "--create-namespace")
    assert f"kubectl -n {NAMESPACE} rollout status deployment/tarragon" in notes
    await stage.begin()
    await stage.node("n")
    operator = await stage.operator(await stage.token(), *takes_reports(free_address()))
    await stage.until(lambda: operator.is_leading)
    await stage.submit("a", PS=group(1), Worker=group(2))
    await stage.until(lambda: stage.runs_all("a-ps-0", "a-worker-0", "a-worker-1"))
    await stage.submit_mpi("m", "v2beta1", suspend=True)
    pods = replicas(stage)

    await changes_and_goes_back(stage, release)
    await operator.stop()
    release("uninstall", "tarragon")

    await leaves(stage, before, LEFT_BY_HELM)
    assert await get(stage, "tfjob", "a", "{.status.tarragon.ready}", "default") == "3/3"
    assert replicas(stage) == pods
    await stage.kubectl("delete", "tfjob,mpijob", "--all", "--wait=false")


async def changes_and_goes_back(stage: Stage, release: Callable[..., str]) -> None:
    """Also of the CRDs; and what the operator has written, and jobs of a kind that is switched off, stay."""
    authority = await get(stage, "secret", "tarragon-progress", "{.data}")
    assert "ca.key" in authority
    assert await short_names(stage) == ["older"]

    release("upgrade", "tarragon", str(CHART), "--set", "scheduling.policy=fifo,replicas=3")
    assert await short_names(stage) == ["shp"]
    assert "--policy=fifo" in await get(stage, "deployment", "tarragon", ARGUMENTS)
    release("rollback", "tarragon", "1")
    assert await short_names(stage) == ["older"]
    assert await get(stage, "deployment", "tarragon", "{.spec.replicas}") == "2"
    release("upgrade", "tarragon", str(CHART), "--set", "kinds.mpijobs=false")
    assert (await stage.kubectl("get", "mpijobs", "-o", "name")).strip() == "mpijob.kubeflow.org/m"

    assert await get(stage, "secret", "tarragon-progress", "{.data}") == authority
    assert [each["status"] for each in json.loads(release("history", "tarragon", "-o", "json"))] == [
        *("superseded", "superseded", "superseded", "deployed")
    ]
    record = await get(stage, "secret", "sh.helm.release.v1.tarragon.v4", "{.data.release}")
    assert len(record) < LARGEST_RECORD


async def test_what_kubectl_has_installed_becomes_a_release_without_a_new_pod(stage: Stage, helm: Helm) -> None:
    # As a server-side apply, which is the default of helm 4, each later change would conflict with kubectl's.
    is_helm_4 = helm.program == HELM_4
    take_ownership = ("--take-ownership", *(["--server-side=false"] if is_helm_4 else []))
    await stage.install("apply", "-k", "deploy")
    before = await get(stage, "deployment", "tarragon", "{.metadata.uid} {.spec.template}")
    release = partial(helm, "--namespace", NAMESPACE, kubeconfig=stage.plane.kubeconfig)

    refused = helm.fails("install", "tarragon", str(CHART), "-n", NAMESPACE, kubeconfig=stage.plane.kubeconfig)
    release("install", "tarragon", str(CHART), *take_ownership)
    after = await get(stage, "deployment", "tarragon", "{.metadata.uid} {.spec.template}")
    release("upgrade", "tarragon", str(CHART), "--set", "scheduling.policy=fifo")

    assert "invalid ownership metadata" in refused
    assert after == before
    assert "--policy=fifo" in await get(stage, "deployment", "tarragon", ARGUMENTS)
    release("uninstall", "tarragon")
    assert {f"CustomResourceDefinition {name}" for name in await names(stage, "crd")} == CRDS


def older_chart(folder: Path) -> Path:
    """A chart of an earlier version, whose CRD of SharePods has another short name."""
    older = folder / "older"
    shutil.copytree(CHART, older)
    crd = older / "templates" / "crd-sharepods.kubeshare.nthu.yaml"
    text = crd.read_text()
    assert "    - shp\n" in text
    crd.write_text(text.replace("    - shp\n", "    - older\n"))
    return older


async def short_names(stage: Stage) -> list[str]:
    found: list[str] = json.loads(await get(stage, "crd", "sharepods.kubeshare.nthu", "{.spec.names.shortNames}", ""))
    return found


async def get(stage: Stage, kind: str, name: str, path: str, namespace: str = NAMESPACE) -> str:
    where = ("--namespace", namespace) if namespace else ()
    return await stage.kubectl("get", kind, name, "-o", f"jsonpath={path}", *where)


async def names(stage: Stage, kind: str) -> list[str]:
    return [name.rpartition("/")[2] for name in (await stage.kubectl("get", kind, "-o", "name")).split()]


def replicas(stage: Stage) -> dict[str, str]:
    """The pods of jobs, by name."""
    return {key.name: pod.metadata.uid for key, pod in stage.pods.objects.items() if key.namespace == "default"}


async def everything(stage: Stage) -> set[str]:
    return listed_objects(await stage.kubectl(*listing(await stage.kubectl(*KINDS))))


async def leaves(stage: Stage, before: set[str], expected: AbstractSet[str]) -> None:
    """Return when that is all that is there and was not before: the garbage collector works on."""
    found: set[str] = set()
    try:
        async with stage.patience():
            while (found := await everything(stage) - before) != expected:
                await stage.clock.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"missing: {expected - found}; not expected: {found - expected}") from None

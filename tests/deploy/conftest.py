from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.deploy.stage import Stage, a_stage, unvalidated
from tests.real.gangs import start_with_gangs
from tools.controlplane import ControlPlane, Release

FORCED = ("--grace-period=0", "--force")


@pytest.fixture
async def empty(own_control_plane: ControlPlane) -> AsyncIterator[Stage]:
    """Nothing is installed yet."""
    async with a_stage(own_control_plane) as stage:
        yield stage


@pytest.fixture
async def with_gangs(tmp_path: Path) -> AsyncIterator[Stage]:
    """Nothing is installed yet; where Kubernetes has its own gangs, they are turned on."""
    plane = start_with_gangs(tmp_path / "plane")
    try:
        async with a_stage(plane) as stage:
            yield stage
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def installed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """As the documentation says, once for all tests that leave it as it is."""
    plane = ControlPlane.start(tmp_path_factory.mktemp("installed"), release)
    try:
        subprocess.run(
            ["kubectl", "create", "-f", "deploy/", *unvalidated(plane)],
            env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
        yield plane
    finally:
        plane.stop()


@pytest.fixture
async def stage(installed: ControlPlane) -> AsyncIterator[Stage]:
    """With a node; no operator runs yet, and no job is there."""
    async with a_stage(installed) as stage:
        await stage.begin()
        await stage.node("n")
        yield stage
        await stage.kubectl("delete", "tfjobs", "--all", "--all-namespaces", "--wait=false")
        await stage.kubectl("delete", "pods,services", "--all", "--namespace=default", *FORCED)


@pytest.fixture
async def strict(release: Release, tmp_path: Path) -> AsyncIterator[Stage]:
    """An API server that asks who names whom as an owner."""
    flags = ["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    plane = ControlPlane.start(tmp_path / "strict", release, arguments=flags)
    try:
        async with a_stage(plane) as stage:
            yield stage
    finally:
        plane.stop()

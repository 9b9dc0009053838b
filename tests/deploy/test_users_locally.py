"""The roles for users that deploy/ brings, on the embedded cluster with roles in force: who may do what with jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.cli.targets.crds import install
from tarragon.client.port import EVERYTHING, Cluster
from tarragon.localcluster.auth.authorizers import Authorization
from tarragon.localcluster.controllers.aggregation import CLUSTER_ROLES
from tarragon.localcluster.daemon.cluster import LocalCluster, Settings
from tarragon.localcluster.daemon.kubeconfig import kubeconfig
from tarragon.localcluster.home.home import Home
from tests.deploy.stage import Kubectl

pytestmark = [pytest.mark.kubectl, pytest.mark.timeout(120)]

ROOT = Path(__file__).parent.parent.parent
JOB = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist, namespace: team}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers: [{name: tensorflow, image: train}]
"""
ACCOUNTS = {"looker": "view", "trainer": "edit", "keeper": "admin"}


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """With the roles of deploy/users.yaml and, in the namespace `team`, an account for each of view, edit and admin."""
    home = Home(tmp_path / "home")
    home.prepare()
    settings = Settings(home=home, prepare=install, authorization=Authorization.RBAC)
    cluster = await LocalCluster.start(settings, SystemClock())
    try:
        config = tmp_path / "kubeconfig"
        config.write_bytes(kubeconfig(cluster.url, home.ca.read_bytes(), home.read_token()))
        made = Kubectl(config)
        await made("create", "-f", str(ROOT / "deploy/users.yaml"))
        await made("create", "namespace", "team")
        for account, role in ACCOUNTS.items():
            await made("create", "serviceaccount", account, "-n", "team")
            subject = f"--serviceaccount=team:{account}"
            await made("create", "rolebinding", account, f"--clusterrole={role}", subject, "-n", "team")
        await aggregated(cluster.client)
        yield made
    finally:
        await cluster.stop()


async def aggregated(cluster: Cluster) -> None:
    """Return when a controller has made the roles of users.yaml part of admin, edit and view."""
    waiting = set(ACCOUNTS.values())
    async with asyncio.timeout(60):
        async for event in cluster.watch(CLUSTER_ROLES, EVERYTHING, "0"):
            role = event.object
            if role and any(rule.get("apiGroups") == ["mlkube.io"] for rule in role.rules or ()):
                waiting.discard(role.metadata.name)
            if not waiting:
                return


async def as_account(kubectl: Kubectl, account: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
    return await kubectl.run(*arguments, f"--as=system:serviceaccount:team:{account}", stdin=stdin)


async def test_who_edits_submits_looks_at_changes_and_removes_jobs_in_their_namespace(kubectl: Kubectl) -> None:
    trainer = "trainer"
    made = await as_account(kubectl, trainer, "create", "-f", "-", stdin=JOB)
    listed = await as_account(kubectl, trainer, "get", "tfjobs", "-n", "team", "-o", "name")
    scaled = await as_account(kubectl, trainer, "scale", "tfjob/mnist", "--replicas=2", "-n", "team")
    status = '{"status":{"startTime":"2026-01-01T00:00:00Z"}}'
    mended = await as_account(
        kubectl, trainer, "patch", "tfjob/mnist", "-n", "team", "--subresource=status", "--type=merge", "-p", status
    )
    elsewhere = await as_account(kubectl, trainer, "get", "tfjobs", "-n", "default")
    nodes = await as_account(kubectl, trainer, "get", "nodes")
    removed = await as_account(kubectl, trainer, "delete", "tfjob/mnist", "-n", "team")

    assert made == (0, "tfjob.kubeflow.org/mnist created\n")
    assert listed == (0, "tfjob.kubeflow.org/mnist\n")
    assert scaled[0] == removed[0] == 0, (scaled, removed)
    cannot = 'User "system:serviceaccount:team:trainer" cannot'
    assert f'{cannot} patch resource "tfjobs/status" in API group "kubeflow.org" in the namespace "team"' in mended[1]
    assert f'{cannot} list resource "tfjobs" in API group "kubeflow.org" in the namespace "default"' in elsewhere[1]
    assert f'{cannot} list resource "nodes" in API group "" at the cluster scope' in nodes[1]


async def test_who_views_sees_jobs_and_changes_none(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)

    seen = await as_account(kubectl, "looker", "get", "tfjob/mnist", "-n", "team", "-o", "jsonpath={.metadata.name}")
    made = await as_account(kubectl, "looker", "create", "-f", "-", stdin=JOB.replace("mnist", "other"))
    removed = await as_account(kubectl, "looker", "delete", "tfjob/mnist", "-n", "team")
    secrets = await as_account(kubectl, "looker", "get", "secrets", "-n", "team")

    assert seen == (0, "mnist")
    for code, words in (made, removed, secrets):
        assert (code, "is forbidden" in words) == (1, True), words


async def patch_status(kubectl: Kubectl, account: str) -> tuple[int, str]:
    status = '{"status":{"tarragon":{"admission":{"queued":"2026-01-01T00:00:00Z"}}}}'
    merge = ("--subresource=status", "--type=merge", "-p", status)
    return await as_account(kubectl, account, "patch", "tfjob/mnist", "-n", "team", *merge)


async def test_who_administers_a_namespace_writes_no_status_and_gives_no_more_than_they_have(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)

    refused = await patch_status(kubectl, "keeper")
    given = await as_account(
        kubectl, "keeper", "create", "rolebinding", "more", "--clusterrole=edit", "--user=ann", "-n", "team"
    )
    too_much = [
        await as_account(
            kubectl, "keeper", "create", "rolebinding", role, f"--clusterrole={role}", "--user=ann", "-n", "team"
        )
        for role in ("cluster-admin", "tarragon-status-editor")
    ]

    assert refused[0] == 1
    assert 'cannot patch resource "tfjobs/status"' in refused[1]
    assert given[0] == 0, given
    for _, words in too_much:
        assert "is attempting to grant RBAC permissions not currently held" in words


async def test_who_is_a_status_editor_mends_a_status(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)
    subject = "--serviceaccount=team:looker"
    await kubectl("create", "rolebinding", "mends", "--clusterrole=tarragon-status-editor", subject, "-n", "team")

    mended = await patch_status(kubectl, "looker")

    assert mended[0] == 0, mended


async def test_the_former_role_of_administrators_gives_nothing_any_more(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)
    subject = "--serviceaccount=team:looker"
    await kubectl("create", "rolebinding", "former", "--clusterrole=tarragon-admin", subject, "-n", "team")

    refused = await patch_status(kubectl, "looker")

    assert refused[0] == 1
    assert 'cannot patch resource "tfjobs/status"' in refused[1]

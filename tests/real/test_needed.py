"""What a job names and is not there, looked for on a real control plane by somebody who may not read Secrets."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tarragon.cli.manifest.dependencies import missing_dependencies
from tarragon.client.errors import Forbidden
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES
from tarragon.kube.meta import Key, Resource
from tests.cli.test_dependencies import wanting
from tools.controlplane import ControlPlane

RBAC = "rbac.authorization.k8s.io"
BINDINGS = Resource(group=RBAC, version="v1", plural="rolebindings", kind="RoleBinding", model=dict[str, Any])

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NAMESPACE, USER = "needed", "viewer-of-needs"


def connect(config: Path) -> HttpClient:
    return HttpClient(load_kubeconfig({}, path=config).rest_config, random.Random(1))


async def test_who_may_not_read_secrets_is_told_of_all_else(control_plane: ControlPlane) -> None:
    metadata = {"namespace": NAMESPACE, "name": USER}
    role: dict[str, Any] = {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": USER}]
    job = wanting()
    job["metadata"]["namespace"] = NAMESPACE
    async with connect(control_plane.kubeconfig) as admin:
        await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await admin.create(BINDINGS, {"metadata": metadata, "subjects": subjects, **role})
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": "code"}}
        await admin.create(CONFIG_MAPS, code)
        of_admin = await missing_dependencies(admin, job, ())
    async with connect(control_plane.user(USER)) as viewer, asyncio.timeout(60):
        while True:
            try:  # the authorizer hears of a binding in a moment
                await viewer.get(CONFIG_MAPS, Key(NAMESPACE, "code"))
            except Forbidden:
                continue
            break
        of_viewer = await missing_dependencies(viewer, job, ())

    told = [
        f"{kind} not found in namespace {NAMESPACE}" for kind in ("ServiceAccount robot", "PersistentVolumeClaim data")
    ]
    told += [
        f"{name} not found in namespace {NAMESPACE}" for name in ("Secret keys", "ConfigMap settings", "Secret token")
    ]
    assert [each.message for each in of_admin] == told
    assert [each.message for each in of_viewer] == [each for each in told if "Secret" not in each]

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tarragon.client.errors import Forbidden
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.kube.core import NAMESPACES
from tarragon.kube.meta import Key
from tools.controlplane import API_SERVER, ControlPlane

pytestmark = pytest.mark.real


def client(path: Path) -> HttpClient:
    return HttpClient(load_kubeconfig({}, path=path).rest_config, random.Random(1))


async def test_the_administrator_may_look_and_a_new_user_may_not(control_plane: ControlPlane) -> None:
    async with client(control_plane.kubeconfig) as admin, client(control_plane.user("nobody-yet")) as user:
        found = await admin.get(NAMESPACES, Key("", "kube-system"))
        with pytest.raises(Forbidden, match="nobody-yet"):
            await user.get(NAMESPACES, Key("", "kube-system"))

    assert found.metadata.name == "kube-system"


async def test_what_was_asked_stands_in_the_audit_log(control_plane: ControlPlane) -> None:
    async with client(control_plane.user("remembered")) as user:
        with pytest.raises(Forbidden):
            await user.get(NAMESPACES, Key("", "default"))

    asked = [event for event in control_plane.audit_events() if event["user"]["username"] == "remembered"]
    assert [(event["verb"], event["responseStatus"]["code"]) for event in asked] == [("get", 403)]


@pytest.mark.both_releases
def test_a_killed_api_server_comes_back_at_its_address_with_everything(own_control_plane: ControlPlane) -> None:
    before = json.loads(own_control_plane.get("/api/v1/namespaces/default"))["metadata"]["uid"]

    own_control_plane.kill(API_SERVER)
    gone = own_control_plane.get("/api/v1/namespaces/default")
    own_control_plane.restart(API_SERVER)

    assert gone == b""
    assert json.loads(own_control_plane.get("/api/v1/namespaces/default"))["metadata"]["uid"] == before


def test_compaction_forgets_what_was(own_control_plane: ControlPlane) -> None:
    version = json.loads(own_control_plane.get("/api/v1/namespaces"))["metadata"]["resourceVersion"]
    own_control_plane.compact()
    # It keeps former lists itself, since Kubernetes 1.34.
    own_control_plane.kill(API_SERVER)
    own_control_plane.restart(API_SERVER)

    old = f"/api/v1/namespaces?resourceVersion={max(1, int(version) - 100)}&resourceVersionMatch=Exact&limit=1"
    assert own_control_plane.get(old) == b""

"""Who submits a job that names what is not there is warned, with the path, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tarragon.cli.manifest.dependencies import dependencies_of, missing_dependencies
from tarragon.cli.manifest.local_images import VOLUMES as FOLDERS
from tarragon.cli.manifest.unbindable_claims import unbindable_claims
from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUMES, SECRETS, STORAGE_CLASSES
from tarragon.kube.meta import Key, Resource
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, python
from tests.operator.stage import a_stage

VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "keys", "secret": {"secretName": "keys"}},
    {"name": "code", "configMap": {"name": "code"}},
    {"name": "more", "projected": {"sources": [{"secret": {"name": "keys"}}, {"configMap": {"name": "settings"}}]}},
    {"name": "spare", "configMap": {"name": "spare", "optional": True}},
    {"name": "scratch", "emptyDir": {}},
]
VARIABLES: dict[str, Any] = {
    "env": [
        {"name": "A", "value": "a"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "token", "key": "b"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "spare", "key": "c", "optional": True}}},
    ],
    "envFrom": [{"configMapRef": {"name": "code"}}],
}
AT = "spec.tfReplicaSpecs.Worker.template.spec"
WAITS = "pods that use it do not start until it exists: create it, or add it to FILE"


def wanting(program: str = "print(1)") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(job("digits", Worker=group(python(program, **VARIABLES), 2, VOLUMES)))
    body["metadata"]["namespace"] = "default"
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "robot"
    return body


class Counting(DelegatingClient):
    """Counts what is asked for; of secrets nobody is told."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.asked: list[str] = []

    async def get(self, resource: Resource[Any], key: Key) -> Any:
        self.asked.append(f"{resource.plural}/{key}")
        if resource.plural == SECRETS.plural:
            raise Forbidden({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"})
        return await super().get(resource, key)


def test_what_may_be_absent_is_no_need_and_a_folder_of_this_machine_stands_for_a_volume() -> None:
    body = wanting()
    template = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {"tarragon.dev/volumes": json.dumps({"data": "/data", "more": "/more"})}}

    found = [f"{need.resource.plural}/{need.name}" for need in dependencies_of(body)]

    assert found == ["serviceaccounts/robot", "secrets/keys", "configmaps/code", "secrets/token", "configmaps/code"]


async def test_each_object_is_asked_for_once_and_silence_is_kept_of_what_may_not_be_read(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.world.create(CONFIG_MAPS, "code")
        looker = Counting(stage.world.client)
        found = [str(problem) for problem in await missing_dependencies(looker, wanting(), {("ConfigMap", "settings")})]

    assert sorted(looker.asked) == [
        "configmaps/default/code",
        "persistentvolumeclaims/default/data",
        "secrets/default/keys",
        "secrets/default/token",
        "serviceaccounts/default/robot",
    ]
    path = f"{AT}.volumes[0].persistentVolumeClaim.claimName"
    refused = "no pod can be created until it exists: create it, or add it to FILE"
    assert found == [
        f"{AT}.serviceAccountName: ServiceAccount robot not found in namespace default; {refused}",
        f"{path}: PersistentVolumeClaim data not found in namespace default; {WAITS}",
    ]


async def test_what_every_namespace_gets_of_itself_is_not_warned_of(tmp_path: Path) -> None:
    body = wanting()
    body["metadata"]["namespace"] = "just-made"
    spec = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec |= {"serviceAccountName": "default", "volumes": [{"name": "ca", "configMap": {"name": "kube-root-ca.crt"}}]}
    spec["containers"][0] |= {"env": [], "envFrom": []}

    async with a_stage(tmp_path) as stage:
        assert not await missing_dependencies(stage.world.client, body, ())


CLASSLESS = "it names no StorageClass, none is the default, and no PersistentVolume fits"


@pytest.mark.parametrize(
    ("claim", "storage_class", "volume", "why"),
    [
        ({}, None, None, CLASSLESS),
        ({}, {"provisioner": "csi"}, None, CLASSLESS),
        ({}, {"provisioner": "csi", "default": "true"}, None, ""),
        ({"storageClassName": "fast"}, {"provisioner": "csi"}, None, ""),
        (
            {"storageClassName": "fast"},
            {"provisioner": "kubernetes.io/no-provisioner"},
            None,
            "StorageClass fast creates no volumes, and none fits",
        ),
        ({"storageClassName": "fast"}, None, None, "there is no StorageClass fast, and no PersistentVolume fits"),
        ({"storageClassName": "fast"}, None, "fast", ""),
        ({"storageClassName": ""}, None, "fast", 'storageClassName "" asks for a PersistentVolume, and none fits'),
        ({"volumeName": "mine"}, None, None, ""),
    ],
)
async def test_a_claim_that_nothing_can_bind_is_warned_of(
    tmp_path: Path, claim: dict[str, str], storage_class: dict[str, str] | None, volume: str | None, why: str
) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **claim}
    brought = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": wanted}
    async with a_stage(tmp_path) as stage:
        if storage_class:
            marks = {"storageclass.kubernetes.io/is-default-class": storage_class.get("default", "false")}
            body = {"metadata": {"name": "fast", "annotations": marks}, "provisioner": storage_class["provisioner"]}
            await stage.world.client.create(STORAGE_CLASSES, body)
        if volume:
            spec = {"storageClassName": volume, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}
            body = {"metadata": {"name": "v"}, "spec": {**spec, "hostPath": {"path": "/v"}}}
            await stage.world.client.create(PERSISTENT_VOLUMES, body)
            available = {"status": {"phase": "Available"}}
            await stage.world.client.patch(PERSISTENT_VOLUMES, Key("", "v"), available, subresource="status")
        found = [each.message for each in await unbindable_claims(stage.world.client, wanting(), [brought])]

    assert found == ([f"PersistentVolumeClaim data can't be bound: {why}"] if why else [])


@pytest.mark.parametrize("said", ["3", "[[1]]", "[", 3])
def test_an_annotation_that_makes_no_sense_gives_no_folders(said: Any) -> None:
    """The kubelet says what is wrong with it; a job that was just made does not end in a bug of ours."""
    body = wanting()
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": {FOLDERS: said}}

    assert ("PersistentVolumeClaim", "data") in {need.id for need in dependencies_of(body)}


def test_submit_and_its_trial_by_the_server_warn_and_what_is_in_file_is_there(shell: Shell) -> None:
    brought = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    text = f"{json.dumps(brought)}\n---\n{json.dumps(wanting())}"
    file = shell.file("job.yaml", text)

    tried = shell("submit", file, "--dry-run=server", "-o", "name")
    submitted = shell("submit", file)
    again = shell("submit", file)

    for ended in (tried, submitted):
        lines = [line for line in ended.err.splitlines() if " not found in " in line]
        assert ended.code == 0
        path = f"{AT}.volumes[0].persistentVolumeClaim.claimName"
        claim = f"{path}: PersistentVolumeClaim data not found in namespace default"
        assert lines[1] == f"warning: {claim}; {WAITS}"
        kinds = [line.partition(" not found in ")[0].rpartition(": ")[2] for line in lines]
        assert kinds == [
            "ServiceAccount robot",
            "PersistentVolumeClaim data",
            "ConfigMap code",
            "ConfigMap settings",
            "Secret token",
        ]
    assert "not found" not in again.err


def test_of_a_scripts_missing_secret_the_command_is_named_that_creates_it(shell: Shell) -> None:
    script = shell.file("train.py", "print(1)")
    wanted = ("--env-from", "secret/tracker", "--env-from", "configmap/rates")

    tried = shell("submit", script, *wanted, "--dry-run=server", "-o", "name")
    submitted = shell("submit", script, *wanted)

    waits = "not found in namespace default; pods that use it do not start until it exists; create it: kubectl"
    for ended in (tried, submitted):
        assert [line for line in ended.err.splitlines() if " not found in " in line] == [
            f"warning: Secret tracker {waits} -n default create secret generic tracker --from-literal KEY=VALUE",
            f"warning: ConfigMap rates {waits} -n default create configmap rates --from-file FILE",
        ]

"""Objects that a kind of job needs beside its pods: some are made once, some follow the job."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.owned_objects import Generated, OwnedContent, OwnedObject, Upkeep
from tarragon.frameworks.plugin import JobObservation
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CONFIG_MAPS, SECRETS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tests.operator.stage import TFJOBS, Stage, group

Json = dict[str, Any]

HOSTS = CONFIG_MAPS.with_model(OwnedContent)
CONTENT = CONFIG_MAPS.with_model(dict)
KEYS = SECRETS.with_model(dict)


def hosts_and_key(seen: JobObservation) -> Iterator[OwnedObject]:
    """A list of the workers, with those that run, and a key."""
    name, workers = seen.job.key.name, range(seen.size.get(WORKER, 0))
    running = sorted(str(replica) for replica, member in seen.replica_states.items() if member.is_running)
    data = {"hosts": "\n".join(f"worker-{index}" for index in workers), "running": "\n".join(running)}
    yield OwnedObject(
        resource=HOSTS, body={"metadata": {"name": f"{name}-config"}, "data": data}, upkeep=Upkeep.KEEP_CURRENT
    )
    yield OwnedObject(
        resource=SECRETS,
        body={"metadata": {"name": f"{name}-ssh"}, "type": "kubernetes.io/ssh-auth"},
        upkeep=Upkeep.CREATE_ONCE,
        generated=Generated.SSH_KEY_PAIR,
    )


WITH_HOSTS = replace(TENSORFLOW, owned_objects=hosts_and_key, kept_current=(HOSTS,))


@pytest.fixture
async def hosts(stage: Stage) -> Stage:
    await stage.world.follow(CONFIG_MAPS)
    await stage.world.follow(SECRETS)
    await stage.node("n")
    options = OperatorOptions(seed=1, frameworks=(WITH_HOSTS,))
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())
    return stage


def data(stage: Stage) -> Json:
    found = stage.world.objects.get("configmaps/default/j-config") or {}
    content: Json = found.get("data", {})
    return content


async def until_data(stage: Stage, **content: str) -> None:
    await stage.world.until(lambda: data(stage) == content)


async def test_what_follows_the_job_is_there_before_its_pods_and_changes_with_them(hosts: Stage) -> None:
    await hosts.submit("j", Worker=group(2))
    await hosts.until_pods("j-worker-0", "j-worker-1")
    await until_data(hosts, hosts="worker-0\nworker-1", running="")

    await hosts.all_run("j-worker-0", "j-worker-1")
    await until_data(hosts, hosts="worker-0\nworker-1", running="worker-0\nworker-1")
    (owner,) = hosts.world.objects["configmaps/default/j-config"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("TFJob", "j", True)


async def test_it_comes_back_as_it_was_when_somebody_deletes_or_changes_it(hosts: Stage) -> None:
    await hosts.submit("j", Worker=group(1))
    await until_data(hosts, hosts="worker-0", running="")

    await hosts.world.client.delete(CONFIG_MAPS, Key("default", "j-config"))
    await until_data(hosts, hosts="worker-0", running="")

    await hosts.world.client.patch(CONTENT, Key("default", "j-config"), {"data": {"hosts": "elsewhere"}})
    await until_data(hosts, hosts="worker-0", running="")


async def test_one_of_the_job_that_another_operator_left_is_taken_over(hosts: Stage) -> None:
    suspended, resumed = {"runPolicy": {"suspend": True}}, {"runPolicy": {"suspend": False}}
    await hosts.submit("j", Worker=group(1), **suspended)
    uid = hosts.job("j")["metadata"]["uid"]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "j", "uid": uid, "controller": True}
    metadata = {"name": "j-config", "namespace": "default", "ownerReferences": [owner]}
    await hosts.world.client.create(CONTENT, {"metadata": metadata, "data": {"hosts": "x"}})

    await hosts.world.client.patch(TFJOBS, Key("default", "j"), {"spec": resumed})

    await until_data(hosts, hosts="worker-0", running="")
    await hosts.until_pods("j-worker-0")


async def test_one_of_somebody_else_is_never_overwritten_and_the_job_says_what_it_waits_for(hosts: Stage) -> None:
    foreign = {"metadata": {"name": "j-config", "namespace": "default"}, "data": {"mine": "1"}}
    await hosts.world.client.create(CONTENT, foreign)
    await hosts.submit("j", Worker=group(1))

    await hosts.world.until(lambda: bool(hosts.events("FailedCreateConfigMap")))
    assert "configmaps j-config already exists" in hosts.events("FailedCreateConfigMap")[0]
    assert data(hosts) == {"mine": "1"}
    assert not hosts.pods()

    await hosts.world.client.delete(CONFIG_MAPS, Key("default", "j-config"))
    await hosts.until_pods("j-worker-0")


async def test_a_key_is_made_once_for_the_life_of_the_job(hosts: Stage) -> None:
    await hosts.submit("j", Worker=group(1, policy="OnFailure"))
    await hosts.until_pods("j-worker-0")
    first = await hosts.world.client.get(KEYS, Key("default", "j-ssh"))

    await hosts.plays("j-worker-0", "Failed", exit_code=1)
    await hosts.world.until(lambda: hosts.made().count("j-worker-0") == 2)

    assert await hosts.world.client.get(KEYS, Key("default", "j-ssh")) == first
    private = load_pem_private_key(base64.b64decode(first["data"]["ssh-privatekey"]), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.curve.name == "secp521r1"
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert base64.b64decode(first["data"]["ssh-publickey"]) == public + b"\n"
    assert first["type"] == "kubernetes.io/ssh-auth"

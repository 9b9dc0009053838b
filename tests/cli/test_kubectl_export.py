"""Submitting what `kubectl get -o yaml` printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarragon.cli.manifest.kubectl_export import as_new_job, as_new_object
from tarragon.frameworks.plugin import Dialect
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.cli.conftest import Shell
from tests.cli.manifests import group, python, worker

CLAIM = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
)
BY_SERVERS = {
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-11-21T12:00:00Z",
    "managedFields": [],
}


def dumped(dialect: Dialect) -> dict[str, Any]:
    """A job that could be of several generations: only its mark tells."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "digits", "annotations": {"tarragon.dev/generation": dialect.name}, **BY_SERVERS},
        "spec": {"tfReplicaSpecs": {"Worker": group(python("pass"))}},
        "status": {"conditions": []},
    }


OF_MAPS = [
    dialect for dialect in FRAMEWORKS[0].dialects if not decode_and_validate(FRAMEWORKS[0], dumped(dialect)).problems
]


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_a_job_and_its_claim_are_submitted_anew_from_what_get_printed(shell: Shell, verb: str) -> None:
    shell("run", shell.file("job.yaml", f"{CLAIM}\n---\n{worker('digits', 'print(1)')}"))
    whole = shell("get", "digits", "-o", "yaml")
    assert "resourceVersion" in whole.out

    again = shell(verb, shell.file("whole.yaml", f"{CLAIM}\n---\n{whole.out}"))

    assert again.code == 0, again.err
    assert "will be replaced" in again.err


@pytest.mark.parametrize("dialect", OF_MAPS, ids=lambda dialect: dialect.name)
def test_it_stays_of_the_generation_that_its_mark_said(dialect: Dialect) -> None:
    body = dumped(dialect)
    anew = as_new_job(FRAMEWORKS[0], body, dialect)

    assert decode_and_validate(FRAMEWORKS[0], anew).dialect is dialect
    assert not anew["metadata"].keys() & BY_SERVERS.keys()
    assert "status" not in anew


def test_what_nobody_has_dumped_stays_as_it_is() -> None:
    plain = json.loads(CLAIM)

    assert as_new_object(plain) is plain


def test_a_claim_does_not_ask_for_the_volume_that_was_found_for_the_former_one() -> None:
    claim = json.loads(CLAIM)
    bound = {"pv.kubernetes.io/bound-by-controller": "yes", "pv.kubernetes.io/bind-completed": "yes"}
    claim["metadata"] = {"name": "data", "annotations": bound, **BY_SERVERS}
    claim["spec"]["volumeName"] = "pvc-1"
    claim["status"] = {"phase": "Bound"}

    assert as_new_object(claim) == json.loads(CLAIM)


def test_a_service_keeps_that_it_has_no_address_and_loses_the_one_it_was_given() -> None:
    def service(address: str) -> dict[str, Any]:
        spec = {"clusterIP": address, "clusterIPs": [address]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", **BY_SERVERS}, "spec": spec}

    assert as_new_object(service("None"))["spec"]["clusterIP"] == "None"
    assert as_new_object(service("10.0.0.7"))["spec"] == {}

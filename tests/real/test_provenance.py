"""What a job was made of, recomputed from the file that its user has."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from tarragon import __version__
from tests.real.environment import TFJOBS, an_environment, group, job
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

Json = dict[str, Any]

LISTED: Json = {
    "apiVersion": "kubeflow.org/v1alpha1",
    "kind": "TFJob",
    "metadata": {"name": "old"},
    "spec": {
        "replicaSpecs": [
            {
                "tfReplicaType": "MASTER",
                "template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}},
            }
        ]
    },
}


@pytest.mark.parametrize("submitted", [job("new", Worker=group(1)), LISTED], ids=["v1", "v1alpha1"])
async def test_the_digest_on_the_job_is_that_of_the_file(control_plane: ControlPlane, submitted: Json) -> None:
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not installed")
    name = submitted["metadata"]["name"]
    async with an_environment(control_plane, f"made-{name}") as env:
        await env.node("n")
        env.start_operator()
        version = submitted["apiVersion"].rpartition("/")[2]
        body = {**submitted, "metadata": {"name": name, "namespace": env.namespace}}
        await env.http.create(replace(TFJOBS.with_model(dict), version=version), body)
        await env.until(lambda: env.is_there(name) and env.status(name).provenance is not None)

        spec = json.dumps(submitted["spec"]).encode()
        canonical = subprocess.run([jq, "-cjS", "."], input=spec, capture_output=True, check=True).stdout  # noqa: ASYNC221
        provenance = env.status(name).provenance
        assert provenance is not None
        assert provenance.manifest_digest == f"sha256:{hashlib.sha256(canonical).hexdigest()}"
        assert provenance.operator_version == __version__

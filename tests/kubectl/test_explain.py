from __future__ import annotations

import pytest

from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.manifest import field_descriptions as mpi
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.tensorflow import field_descriptions as tensorflow
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tests.kubectl.conftest import Kubectl
from tests.localcluster.apiserver.embedded import Embedded

pytestmark = pytest.mark.kubectl

DESCRIPTIONS = {TENSORFLOW.kind: tensorflow.DESCRIPTIONS, MPI.kind: mpi.DESCRIPTIONS}


@pytest.mark.parametrize(
    ("kind", "field", "type_"),
    [
        (TENSORFLOW, "spec.tfReplicaSpecs", "<map[string]Object>"),
        (TENSORFLOW, "spec.replicaSpecs.tfPort", "<integer>"),
        (TENSORFLOW, "spec.runPolicy.backoffLimit", "<integer>"),
        (TENSORFLOW, "spec.successPolicy", "<string>"),
        (MPI, "spec.mpiReplicaSpecs", "<map[string]Object>"),
        (MPI, "spec.slotsPerWorker", "<integer>"),
        (MPI, "spec.gpus", "<integer>"),
    ],
)
async def test_explain_says_what_a_field_of_a_job_means(
    cluster: Embedded, kubectl: Kubectl, kind: Framework, field: str, type_: str
) -> None:
    definitions = cluster.api.target(("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    await cluster.api.create(definitions, kind.crd())

    page = await kubectl("explain", f"{kind.resource.plural}.{field}")

    assert f"FIELD: {field.rpartition('.')[2]} {type_}" in page
    assert DESCRIPTIONS[kind.kind][field.rpartition(".")[2]] in " ".join(page.split())

from __future__ import annotations

import pytest

from tarragon.frameworks.tensorflow.crd import crd
from tarragon.frameworks.tensorflow.field_descriptions import DESCRIPTIONS
from tests.kubectl.conftest import Kubectl
from tests.localcluster.apiserver.embedded import Embedded

pytestmark = pytest.mark.kubectl


@pytest.mark.parametrize(
    ("field", "type_"),
    [
        ("spec.tfReplicaSpecs", "<map[string]Object>"),
        ("spec.replicaSpecs.tfPort", "<integer>"),
        ("spec.runPolicy.backoffLimit", "<integer>"),
        ("spec.successPolicy", "<string>"),
    ],
)
async def test_explain_says_what_a_field_of_a_job_means(
    cluster: Embedded, kubectl: Kubectl, field: str, type_: str
) -> None:
    await cluster.api.create(cluster.api.target(("apiextensions.k8s.io", "v1", "customresourcedefinitions")), crd())

    page = await kubectl("explain", f"tfjobs.{field}")

    assert f"FIELD: {field.rpartition('.')[2]} {type_}" in page
    assert DESCRIPTIONS[field.rpartition(".")[2]] in " ".join(page.split())

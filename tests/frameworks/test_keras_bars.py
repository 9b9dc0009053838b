"""Of which jobs the bars of Keras show sums over the workers."""

from __future__ import annotations

import pytest

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.plan.input.decode_and_validate import decode_and_validate

CONTAINER = {"name": "tensorflow", "image": "i", "command": ["train"]}


def manifest(sizes: dict[str, int]) -> dict[str, object]:
    specs = {
        kind: {"replicas": number, "template": {"spec": {"containers": [CONTAINER]}}} for kind, number in sizes.items()
    }
    metadata = {"name": "a", "namespace": "default"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"tfReplicaSpecs": specs},
    }


@pytest.mark.parametrize(
    ("sizes", "may_be_sums"),
    [
        ({"Worker": 2}, True),
        ({"Chief": 1, "Worker": 1}, True),
        ({"Worker": 1}, False),
        ({"Worker": 1, "Evaluator": 1}, False),
        ({"Worker": 2, "PS": 1}, False),
    ],
)
def test_bars_of_several_workers_without_parameter_servers_may_show_sums(
    sizes: dict[str, int],
    may_be_sums: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    job = decode_and_validate(TENSORFLOW, manifest(sizes)).job

    assert job is not None
    assert TENSORFLOW.bars_sum_metrics(job) is may_be_sums

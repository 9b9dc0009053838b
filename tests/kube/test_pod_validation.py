from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tarragon.kube.field_reader import CollectedProblems, FieldReader
from tarragon.kube.pod_validation import main_container, type_schemas, validated

ROOT = Path(__file__).parent.parent.parent


def check(value: Any) -> tuple[Any, CollectedProblems]:
    notes = CollectedProblems()
    return validated(FieldReader(value, "template", notes)), notes


def test_the_table_is_what_kubernetes_says() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_pod_schema.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_knows_every_type_that_it_names() -> None:
    for definition in type_schemas().values():
        kinds = {kind.lstrip("[{") for kind in definition.fields.values()}
        assert all(kind in type_schemas() or kind[0].islower() for kind in kinds)


def test_a_sound_template_comes_back_without_its_nulls() -> None:
    template = {
        "metadata": {"creationTimestamp": None, "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "args": None, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]},
    }

    value, notes = check(template)

    assert value == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]},
    }
    assert notes == CollectedProblems()


def test_what_is_of_a_wrong_type_is_left_out_and_told() -> None:
    value, notes = check({"spec": {"containers": [3, {"name": "c", "args": ["a", 1]}], "volumes": "x"}})

    assert value == {"spec": {"containers": [{}, {"name": "c", "args": ["a"]}], "volumes": []}}
    assert [problem.path for problem in notes.problems] == [
        "template.spec.containers[0]",
        "template.spec.containers[1].args[1]",
        "template.spec.volumes",
    ]


def test_an_unknown_field_is_kept_for_a_newer_kubernetes() -> None:
    value, notes = check({"spec": {"containers": [{"name": "c"}], "warpDrive": {"factor": None, "on": True}}})

    assert value["spec"]["warpDrive"] == {"factor": None, "on": True}
    assert [str(field) for field in notes.unknown] == ["template.spec.warpDrive: unknown field"]


def test_the_main_container_is_the_named_one_or_else_the_first() -> None:
    both = {"spec": {"containers": [{"name": "a"}, {"name": "tensorflow"}]}}

    assert main_container(both, "tensorflow") == {"name": "tensorflow"}
    assert main_container(both, "mpi") == {"name": "a"}
    assert main_container({}, "mpi") is None

"""The reference says of each field what the code says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarragon.frameworks.kubeflow.field_descriptions import CONDITION_DESCRIPTIONS
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.field_descriptions import DESCRIPTIONS, RECOGNITION_DESCRIPTIONS
from tarragon.frameworks.tensorflow.schema import schema
from tarragon.job import conditions


def described(found: dict[str, Any]) -> Iterator[str]:
    """What is written beside each field."""
    yield found["description"]
    for name, field in found.get("properties", {}).items():
        if name != "metadata":  # the server's own
            yield from described(field)
    for below in (found.get("items"), found.get("additionalProperties")):
        if isinstance(below, dict) and "properties" in below:
            yield from described(below)


def test_every_field_of_the_schema_has_a_meaning_and_every_meaning_a_field() -> None:
    assert set(described(schema())) == set(DESCRIPTIONS.values())


def test_every_generation_is_introduced() -> None:
    assert RECOGNITION_DESCRIPTIONS.keys() == GENERATIONS.keys()


def test_every_condition_is_explained() -> None:
    reasons = {conditions.RESUMED, conditions.INVALID, *conditions.LIMIT_EXCEEDED_REASONS}
    named = {value for name, value in vars(conditions).items() if name.isupper() and isinstance(value, str)}

    assert CONDITION_DESCRIPTIONS.keys() == named - reasons

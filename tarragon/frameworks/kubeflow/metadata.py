"""Decodes the metadata of a job."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from tarragon.job.annotations import with_supported_values
from tarragon.kube.codec import parse_time
from tarragon.kube.field_reader import CollectedProblems, FieldReader
from tarragon.kube.pod_validation import validated

TOP_LEVEL_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
GENERATED_SUFFIX = "xxxxx"
"""Stands for the suffix that the API server appends to metadata.generateName, so that derived lengths are right."""


def check_metadata(metadata: FieldReader) -> None:
    """Note the problems of the metadata, and of the values of Tarragon's annotations."""
    found = CollectedProblems()
    validated(FieldReader(metadata.value, metadata.name, found, metadata.parent), "ObjectMeta")
    metadata.notes.add(replace(found, problems=[with_supported_values(problem) for problem in found.problems]))


def decode_name(quiet: FieldReader, metadata: FieldReader) -> str:
    name = quiet.field("name").string()
    if name:
        return name
    generated = quiet.field("generateName").string()
    if generated:
        return generated + GENERATED_SUFFIX
    if metadata.field("name").is_missing:
        metadata.field("name").add_problem("is missing", "give the job a name")
    else:
        metadata.field("name").add_problem("is empty", "give the job a name")
    return ""


def decode_time(found: FieldReader) -> dt.datetime | None:
    try:
        return parse_time(found.string())
    except (ValueError, OverflowError):
        return None

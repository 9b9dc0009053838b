"""What a kind supplies so that its jobs can be converted and compared: its generations, and a form common to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from tarragon.frameworks.kubeflow.conversion.losses import LossFinder
from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.manifest_metadata import as_manifest
from tarragon.frameworks.plugin import Dialect, Manifest
from tarragon.job.model import CleanPodPolicy, TrainingJob
from tarragon.kube.meta import Json, JsonObject

NormalizedSpec = dict[str, Json]
"""A spec in a form in which generations can be compared. The keys are the kind's, but for two that all have:

    generation  the name of the generation, which defines the defaults
    notes       the annotations that replace fields of other generations
"""

NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiGeneration:
    """A generation by the name of its dialect. A kind adds what distinguishes its generations."""

    name: str
    api_version: str
    kind: str
    clean_pods: CleanPodPolicy
    """The default of cleanPodPolicy."""
    policies: frozenset[str] = frozenset()
    """The policies that have an effect, wherever they are in the spec."""

    @property
    def extra_annotation(self) -> str:
        """The annotation with which manifests of other generations keep the fields that only this one has."""
        group, _, version = self.name.partition("/")
        return f"tarragon.dev/{version if group == GROUP else group.partition('.')[0]}-extra"


GenerationT = TypeVar("GenerationT", bound=ApiGeneration)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindConversion(Generic[GenerationT]):
    """The conversion of a kind. `denormalize` returns exactly what `normalize` was given."""

    generations: Mapping[str, GenerationT]
    """The generations by name, oldest first."""
    dialects: Mapping[str, Dialect]
    main_container: str
    normalize: Callable[[JsonObject, GenerationT, Mapping[str, str]], NormalizedSpec]
    """The normalized form of a valid spec and of the annotations that belong to it."""
    denormalize: Callable[[NormalizedSpec, GenerationT], dict[str, Json]]
    write_spec: Callable[[NormalizedSpec, TrainingJob, GenerationT, GenerationT], NormalizedSpec]
    """The normalized form of the new manifest. The job is the old manifest as decoded by the source generation."""
    loss_topics: Mapping[str, LossFinder]
    """What can be lost, by its name in the docs."""
    with_defaults: Callable[[NormalizedSpec, GenerationT], NormalizedSpec]
    """Add the defaults of the generation that its dialect does not list in `default_fields`."""
    with_spelling_of: Callable[[NormalizedSpec, NormalizedSpec], NormalizedSpec]
    """The first spec with the second's spelling of what may be spelled in several ways."""
    field_annotations: tuple[str, ...] = ()
    """The annotations that replace fields of other generations."""
    as_manifest: Callable[[Manifest], dict[str, Json]] = as_manifest
    """The job as a user could submit it again."""

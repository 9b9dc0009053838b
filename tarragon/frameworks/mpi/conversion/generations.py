"""The fields and defaults of each generation of MPIJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.frameworks.kubeflow.conversion.kind_conversion import ApiGeneration
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, RUN_POLICY, PolicyField
from tarragon.frameworks.mpi.fields import KIND, V1, V1ALPHA1, V1ALPHA2, V2_ONLY, V2BETA1, SpecField, V1Alpha1Field
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.options import Transport
from tarragon.job.model import CleanPodPolicy, RestartPolicy

BATCH_JOB_POLICIES = frozenset({RestartPolicy.NEVER, RestartPolicy.ON_FAILURE})
"""The restart policies that the pods of a batch Job can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MPIJobGeneration(ApiGeneration):
    """A generation of MPIJob. `fields` are those of spec other than templates, replicas and policies."""

    kind: str = KIND
    policies: frozenset[str] = frozenset(PolicyField)
    fields: frozenset[str]
    flat_policies: frozenset[str] = frozenset()
    """The policies that the original API has directly in spec, and not in runPolicy."""
    effective_flat_policies: frozenset[str] = frozenset()
    """All policies that have an effect there."""
    transport: Transport
    engine: LauncherEngine
    launcher_restarts: RestartPolicy
    """The default restartPolicy of the launcher."""
    worker_restarts: RestartPolicy
    valid_restarts: frozenset[RestartPolicy] = frozenset(RestartPolicy)
    least_workers: int = 0
    """The least number of replicas of a Worker that is in the manifest."""
    has_one_template: bool = False
    """Whether launcher and workers have the same template, and there is a number of GPUs instead of replica specs."""

    @property
    def has_nested_policies(self) -> bool:
        return not self.flat_policies


_COMMON = frozenset({SpecField.SLOTS, SpecField.ELASTIC_POLICY})
_LIMITS = frozenset({PolicyField.BACKOFF_LIMIT, PolicyField.ACTIVE_DEADLINE})

_ALL = (
    MPIJobGeneration(
        name=V1ALPHA1,
        api_version=V1ALPHA1,
        clean_pods=CleanPodPolicy.ALL,
        fields=_COMMON | frozenset(V1Alpha1Field) - {V1Alpha1Field.TEMPLATE, V1Alpha1Field.WORKERS},
        flat_policies=_LIMITS,
        effective_flat_policies=FLAT_POLICIES,
        transport=Transport.EXEC,
        engine=LauncherEngine.BATCH_JOB,
        launcher_restarts=RestartPolicy.ON_FAILURE,
        worker_restarts=RestartPolicy.ALWAYS,
        has_one_template=True,
    ),
    MPIJobGeneration(
        name=V1ALPHA2,
        api_version=V1ALPHA2,
        clean_pods=CleanPodPolicy.NONE,
        fields=_COMMON | {SpecField.MAIN_CONTAINER},
        flat_policies=_LIMITS | {PolicyField.CLEAN_POD_POLICY},
        effective_flat_policies=_LIMITS | {PolicyField.CLEAN_POD_POLICY},
        transport=Transport.EXEC,
        engine=LauncherEngine.BATCH_JOB,
        launcher_restarts=RestartPolicy.NEVER,
        worker_restarts=RestartPolicy.ALWAYS,
    ),
    MPIJobGeneration(
        name=V1,
        api_version=V1,
        clean_pods=CleanPodPolicy.NONE,
        fields=_COMMON | {SpecField.MAIN_CONTAINER},
        effective_flat_policies=frozenset({PolicyField.CLEAN_POD_POLICY}),
        transport=Transport.EXEC,
        engine=LauncherEngine.POD,
        launcher_restarts=RestartPolicy.NEVER,
        worker_restarts=RestartPolicy.NEVER,
    ),
    MPIJobGeneration(
        name=V2BETA1,
        api_version=V2BETA1,
        clean_pods=CleanPodPolicy.NONE,
        fields=_COMMON | V2_ONLY,
        transport=Transport.SSH,
        engine=LauncherEngine.BATCH_JOB,
        launcher_restarts=RestartPolicy.ON_FAILURE,
        worker_restarts=RestartPolicy.NEVER,
        valid_restarts=BATCH_JOB_POLICIES,
        least_workers=1,
    ),
)

GENERATIONS: Mapping[str, MPIJobGeneration] = MappingProxyType({generation.name: generation for generation in _ALL})
"""The generations by name, oldest first."""

NEWEST = V2BETA1

FIELDS: frozenset[str] = frozenset().union(*(generation.fields for generation in _ALL))
"""The fields of all generations. Any other field is unknown and is kept unchanged."""

KNOWN_FIELDS = FIELDS | {*PolicyField} | {SpecField.REPLICAS.value, RUN_POLICY, *V1Alpha1Field}

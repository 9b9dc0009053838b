"""What makes MPIJobs equal that are written differently: defaults, and the spellings of a name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import RUN_POLICY, PolicyField
from tarragon.frameworks.mpi.conversion.generations import MPIJobGeneration
from tarragon.frameworks.mpi.conversion.normalized_spec import LAUNCHER, WORKER
from tarragon.frameworks.mpi.fields import SpecField, V1Alpha1Field
from tarragon.frameworks.mpi.manifest.decoding import BACKOFF_LIMIT
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.manifest.v1alpha1_decoding import GPU
from tarragon.frameworks.mpi.options import SSH_PATH, Implementation, LauncherCreation
from tarragon.kube.meta import Json

_DEFAULTS: Mapping[str, Json] = MappingProxyType(
    {
        SpecField.SSH_PATH.value: SSH_PATH,
        SpecField.IMPLEMENTATION.value: Implementation.OPEN_MPI.value,
        SpecField.CREATION.value: LauncherCreation.AT_STARTUP.value,
        SpecField.LAUNCHER_WORKS.value: False,
        V1Alpha1Field.GPUS_PER_NODE.value: 1,
        V1Alpha1Field.UNITS_PER_NODE.value: 1,
        V1Alpha1Field.RESOURCE.value: GPU,
        V1Alpha1Field.ON_MASTER.value: False,
    }
)


def with_defaults(found: NormalizedSpec, generation: MPIJobGeneration) -> NormalizedSpec:
    is_limited = generation.engine is LauncherEngine.BATCH_JOB
    policy = {
        PolicyField.CLEAN_POD_POLICY.value: generation.clean_pods.value,
        PolicyField.SUSPEND.value: False,
        **({PolicyField.BACKOFF_LIMIT.value: BACKOFF_LIMIT} if is_limited else {}),
        **found["policy"],
    }
    own = {name: value for name, value in _DEFAULTS.items() if name in generation.fields}
    rest = dict(found["rest"])
    if not generation.has_nested_policies:
        rest[RUN_POLICY] = {PolicyField.SUSPEND.value: False, **rest.get(RUN_POLICY, {})}
    groups: Mapping[str, Json] = found["groups"]
    if not generation.has_one_template:
        own[SpecField.SLOTS.value] = 1
        defaults = {
            LAUNCHER: {"replicas": 1, "restartPolicy": generation.launcher_restarts.value},
            WORKER: {"replicas": 0, "restartPolicy": generation.worker_restarts.value},
        }
        groups = {role: {**defaults[role], **group} for role, group in groups.items()}
    return {**found, "groups": groups, "policy": policy, "rest": {**own, **rest}}


def with_spelling_of(found: NormalizedSpec, like: NormalizedSpec) -> NormalizedSpec:
    """Use the spelling of the other spec: `worker` and `Worker`, `GPUs` and `gpus` are the same."""
    groups = {
        role: {**group, "word": like["groups"][role]["word"]} if "word" in like["groups"].get(role, {}) else group
        for role, group in found["groups"].items()
    }
    return {**found, "words": like["words"], "groups": groups}

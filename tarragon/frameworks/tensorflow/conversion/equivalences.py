"""What makes TFJobs equal that are written differently: defaults, and the spellings of a name."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import PolicyField
from tarragon.frameworks.tensorflow.conversion.generations import TFJobGeneration
from tarragon.frameworks.tensorflow.conversion.normalized_spec import CHIEF
from tarragon.frameworks.tensorflow.fields import DEFAULT_PORT, SpecField
from tarragon.job.model import RestartPolicy
from tarragon.kube.meta import Json, JsonObject


def with_defaults(found: NormalizedSpec, generation: TFJobGeneration) -> NormalizedSpec:
    groups = {role: {**_of_group(role, generation), **group} for role, group in found["groups"].items()}
    policy = {PolicyField.CLEAN_POD_POLICY.value: generation.clean_pods.value, PolicyField.SUSPEND.value: False}
    rest = {SpecField.SUCCESS_POLICY.value: "", SpecField.DYNAMIC_WORKER.value: False}
    return {**found, "groups": groups, "policy": {**policy, **found["policy"]}, "rest": {**rest, **found["rest"]}}


def with_spelling_of(found: NormalizedSpec, like: NormalizedSpec) -> NormalizedSpec:
    """Use the spelling of the other spec: `worker` and `Worker`, `tf_port` and `tfPort` are the same."""
    groups = {role: _spelled(group, like["groups"].get(role, {})) for role, group in found["groups"].items()}
    alike = {**found, "words": like["words"], "groups": groups}
    if "order" in like and sorted(found.get("order", ())) == sorted(like["order"]):
        alike["order"] = like["order"]
    return alike


def _spelled(group: JsonObject, twin: JsonObject) -> dict[str, Json]:
    spelled = {name: value for name, value in group.items() if name != "words"}
    if "words" in twin:
        spelled["words"] = twin["words"]
    if str(twin.get("word", "")).lower() == str(group.get("word", "")).lower():
        spelled["word"] = twin.get("word", group.get("word"))
    return spelled


def _of_group(role: str, generation: TFJobGeneration) -> dict[str, Json]:
    if not generation.is_list:
        return {"replicas": 1, "restartPolicy": RestartPolicy.NEVER.value}
    return {"replicas": 1, "tfPort": DEFAULT_PORT, **({"word": "MASTER"} if role == CHIEF else {})}

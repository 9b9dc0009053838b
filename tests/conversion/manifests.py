"""Hypothesis strategies for valid TFJobs of every generation, most of them with unusual fields."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS, SpecLayout, TFJobGeneration

Manifest = dict[str, Any]

RESTARTS = ("Always", "OnFailure", "Never")
NAMES = tuple(GENERATIONS)

_coin = st.booleans()
_texts = st.sampled_from(["a", "b 1", "ö", "x\ny"])


def maybe(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(st.just({}), values.map(lambda value: {name: value}))


@st.composite
def merged(draw: st.DrawFn, *parts: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in draw(part).items()}


_ports = st.lists(
    st.sampled_from(
        [
            {"name": "tfjob-port", "containerPort": 2222},
            {"name": "tfjob-port", "containerPort": 3333, "protocol": "TCP"},
            {"name": "http", "containerPort": 80},
        ]
    ),
    max_size=2,
    unique_by=lambda port: port["name"],
)

_main = merged(
    st.just({"name": "tensorflow"}),
    st.sampled_from([{"image": "train"}, {"image": "registry/train:2"}]),
    maybe("command", st.lists(_texts, min_size=1, max_size=2)),
    maybe("ports", _ports),
    maybe("env", st.just([{"name": "A", "value": "1"}])),
    maybe("resources", st.just({"limits": {"cpu": "1", "nvidia.com/gpu": 1}})),
    maybe("volumeMounts", st.just([{"name": "data", "mountPath": "/data", "subPath": "run"}])),
)

_sidecar = st.just({"name": "proxy", "image": "proxy"})


@st.composite
def templates(draw: st.DrawFn, *, policies: bool, main: bool = True) -> dict[str, Any]:
    """A pod template. With `policies` it has its own restartPolicy, as before v1alpha2."""
    containers = [*([draw(_main)] if main else []), *draw(st.lists(_sidecar, min_size=not main, max_size=1))]
    pod = draw(
        merged(
            st.just({"containers": containers}),
            maybe("restartPolicy", st.sampled_from(RESTARTS)) if policies else st.just({}),
            maybe("schedulerName", st.sampled_from(["default-scheduler", "volcano"])),
            maybe("nodeSelector", st.just({"zone": "a"})),
            st.just({"volumes": [{"name": "data", "emptyDir": {}}]}),
        )
    )
    metadata = draw(maybe("metadata", st.just({"labels": {"team": "vision"}, "annotations": {"note": "kept"}})))
    return {**metadata, "spec": pod}


_policies = {
    "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
    "ttlSecondsAfterFinished": st.integers(0, 100),
    "activeDeadlineSeconds": st.integers(1, 100),
    "backoffLimit": st.integers(0, 5),
    "suspend": st.booleans(),
    "managedBy": st.sampled_from(["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"]),
    "schedulingPolicy": st.just({"queue": "night", "minAvailable": 1, "priorityClass": "low"}),
}


@st.composite
def policies(draw: st.DrawFn, generation: TFJobGeneration) -> dict[str, Any]:
    return draw(merged(*(maybe(name, _policies[name]) for name in sorted(map(str, generation.policies)))))


@st.composite
def items(draw: st.DrawFn, generation: TFJobGeneration) -> list[dict[str, Any]]:
    """The items of a list of replicas. Parameter servers may have no template."""
    choices = [["MASTER"], ["MASTER", "WORKER"], ["PS", "WORKER", "MASTER"], ["WORKER", "PS"]]
    types = draw(st.sampled_from(choices if "terminationPolicy" in generation.fields else choices[:-1]))
    return [draw(_item(kind)) for kind in types]


@st.composite
def _item(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    replicas = st.just(1) if kind == "MASTER" else st.integers(1, 3)
    said = maybe("tfReplicaType", st.just(kind)) if kind == "MASTER" else st.just({"tfReplicaType": kind})
    template = templates(policies=True).map(lambda found: {"template": found})
    if kind == "PS":
        partial = templates(policies=True, main=False).map(lambda found: {"template": found})
        template = st.one_of(template, st.just({}), partial)
    return draw(merged(maybe("replicas", replicas), said, template, maybe("tfPort", st.sampled_from([2222, 3333]))))


_tensorboards = merged(
    st.sampled_from([{"logDir": "/logs"}, {"logDir": "/data/run"}]),
    maybe("serviceType", st.sampled_from(["ClusterIP", "NodePort"])),
    st.sampled_from(
        [
            {},
            {
                "volumes": [{"name": "logs", "hostPath": {"path": "/x"}}],
                "volumeMounts": [{"name": "logs", "mountPath": "/"}],
            },
            {"volumes": [{"name": "all", "emptyDir": {}}], "volumeMounts": [{"name": "all", "mountPath": "/data"}]},
        ]
    ),
)

_annotations = merged(
    maybe("note", st.just("kept")),
    maybe("tarragon.dev/tensorboard", st.just("/logs")),
    maybe("tarragon.dev/tensorboard-image", st.just("board")),
)


@st.composite
def list_spec(draw: st.DrawFn, generation: TFJobGeneration) -> dict[str, Any]:
    found = draw(items(generation))
    types = [item.get("tfReplicaType", "MASTER") for item in found]
    parts = [maybe("RuntimeId", st.just("ab12")), maybe("tfImage", st.just("tensorflow/tensorflow:2.5.0"))]
    if "tensorboard" in generation.fields:
        parts.append(maybe("tensorboard", _tensorboards))
    if "schedulerName" in generation.fields:
        parts.append(maybe("schedulerName", st.just("kube-batch")))
    if "WORKER" in types:
        parts.append(maybe("tfReplicaSpecs", st.just({"Worker": {"replicas": 2}})))
    spec = draw(merged(*parts))
    run_policy, is_stated = draw(policies(generation)), draw(_coin)
    if run_policy or is_stated:
        spec["runPolicy"] = run_policy
    if "terminationPolicy" in generation.fields and ("MASTER" not in types or draw(_coin)):
        named = draw(st.sampled_from(types)) if "MASTER" in types else "WORKER"
        spec["terminationPolicy"] = {"chief": {"replicaName": named, "replicaIndex": 0}}
    if generation.name == NAMES[0] and draw(_coin):
        return {**spec, "replica_specs": [_older_spelling(item) for item in found]}
    return {**spec, "replicaSpecs": found}


def _older_spelling(item: dict[str, Any]) -> dict[str, Any]:
    words = {"tfPort": "tf_port", "tfReplicaType": "tf_replica_type"}
    return {words.get(name, name): value for name, value in item.items()}


_TYPES = [["Worker"], ["Chief", "Worker"], ["PS", "Worker", "Master"], ["worker", "ps"], ["CHIEF", "Evaluator", "PS"]]


@st.composite
def map_spec(draw: st.DrawFn, generation: TFJobGeneration) -> dict[str, Any]:
    types = draw(
        st.sampled_from(
            [
                ["Worker"],
                ["Chief", "Worker"],
                ["PS", "Worker", "Master"],
                ["worker", "ps"],
                ["CHIEF", "Evaluator", "PS"],
            ]
        )
    )
    restarts = st.sampled_from([*RESTARTS, "ExitCode"])
    replicas = {}
    for kind in types:
        wish = st.just(1) if kind.lower() in {"chief", "master", "evaluator"} else st.integers(1, 3)
        template = templates(policies=False).map(lambda found: {"template": found})
        replicas[kind] = draw(merged(maybe("replicas", wish), maybe("restartPolicy", restarts), template))
    spec: dict[str, Any] = {"tfReplicaSpecs": replicas}
    said, is_stated = draw(policies(generation)), draw(_coin)
    if generation.shape is SpecLayout.FLAT:
        spec |= {name: value for name, value in said.items() if name in FLAT_POLICIES}
        nested = {name: value for name, value in said.items() if name not in FLAT_POLICIES}
        spec |= {"runPolicy": nested} if nested else {}
    elif said or is_stated:
        spec["runPolicy"] = said
        spec |= draw(maybe("backoffLimit", st.integers(0, 5)))
    return {**spec, **draw(_more(generation, types))}


@st.composite
def _more(draw: st.DrawFn, generation: TFJobGeneration, types: list[str]) -> dict[str, Any]:
    parts: list[st.SearchStrategy[dict[str, Any]]] = []
    if "successPolicy" in generation.fields:
        parts += [
            maybe("successPolicy", st.sampled_from(["", "AllWorkers"])),
            maybe("enableDynamicWorker", st.booleans()),
        ]
    if "max-instances" in generation.fields and "worker" in {kind.lower() for kind in types}:
        parts += [st.just({"max-instances": 3}), maybe("min-instances", st.integers(1, 3))]
    return draw(merged(*parts))


@st.composite
def tfjobs(draw: st.DrawFn, name: str) -> Manifest:
    """A TFJob of a generation."""
    generation = GENERATIONS[name]
    spec = draw(list_spec(generation) if generation.is_list else map_spec(generation))
    if name == "kubeflow.org/v1-flat":
        spec.setdefault("cleanPodPolicy", "Running")
    if name == "kubeflow.org/v1-dragon":
        spec.setdefault("tfReplicaSpecs", {}).setdefault("Worker", {"template": draw(templates(policies=False))})
        spec["tfReplicaSpecs"].pop("worker", None)
        spec.setdefault("max-instances", 3)
    metadata = draw(
        merged(
            st.just({"name": "dist", "namespace": "n1"}),
            maybe("labels", st.just({"team": "vision"})),
            maybe("annotations", _annotations.filter(bool)),
        )
    )
    return {"apiVersion": generation.api_version, "kind": generation.kind, "metadata": metadata, "spec": spec}


def pairs() -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))


@st.composite
def jobs_and_targets(draw: st.DrawFn) -> tuple[Manifest, str, str]:
    source, target = draw(pairs())
    return draw(tfjobs(source)), source, target

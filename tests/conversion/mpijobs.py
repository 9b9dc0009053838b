"""Hypothesis strategies for valid MPIJobs of every generation, most of them with unusual fields."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tarragon.frameworks.mpi.conversion.generations import GENERATIONS, MPIJobGeneration
from tests.conversion.manifests import Manifest, maybe, merged

NAMES = tuple(GENERATIONS)
GPU = "nvidia.com/gpu"

_resources = st.sampled_from(
    [
        {"limits": {GPU: 2}},
        {"limits": {GPU: "1", "cpu": "500m"}, "requests": {"cpu": "100m"}},
        {"limits": {"cpu": 2, "memory": "1Gi"}},
    ]
)


def _container(name: str, *, commands: st.SearchStrategy[list[str]]) -> st.SearchStrategy[dict[str, Any]]:
    return merged(
        st.just({"name": name}),
        st.sampled_from([{"image": "train"}, {"image": "registry/train:2"}]),
        maybe("command", commands),
        maybe("args", st.just(["-np", "2"])),
        maybe("env", st.just([{"name": "A", "value": "1"}])),
        maybe("resources", _resources),
        maybe("volumeMounts", st.just([{"name": "data", "mountPath": "/data"}])),
    )


_sidecar = st.just({"name": "proxy", "image": "proxy"})
_programs = st.sampled_from([["mpirun", "train"], ["sleep", "365d"], ["/usr/sbin/sshd", "-De"], ["sh", "-c", "x"]])


@st.composite
def templates(draw: st.DrawFn, name: str, *, policies: bool = False) -> dict[str, Any]:
    """A pod template. With `policies` it has its own restartPolicy, as in v1alpha1."""
    containers = [draw(_container(name, commands=_programs)), *draw(st.lists(_sidecar, max_size=1))]
    pod = draw(
        merged(
            st.just({"containers": containers}),
            maybe("restartPolicy", st.sampled_from(["OnFailure", "Never"])) if policies else st.just({}),
            maybe("nodeSelector", st.just({"zone": "a"})),
            maybe("affinity", st.just({"nodeAffinity": {}})),
            maybe("tolerations", st.just([{"operator": "Exists"}])),
            st.just({"volumes": [{"name": "data", "emptyDir": {}}]}),
        )
    )
    return {**draw(maybe("metadata", st.just({"labels": {"team": "vision"}}))), "spec": pod}


_policies = {
    "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
    "ttlSecondsAfterFinished": st.integers(0, 100),
    "activeDeadlineSeconds": st.integers(1, 100),
    "backoffLimit": st.integers(0, 8),
    "suspend": st.booleans(),
    "managedBy": st.sampled_from(["kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"]),
    "schedulingPolicy": st.just({"queue": "night", "minAvailable": 1}),
}


def _drawn_policies(names: frozenset[str]) -> st.SearchStrategy[dict[str, Any]]:
    return merged(*(maybe(name, _policies[name]) for name in sorted(map(str, names))))


@st.composite
def short_spec(draw: st.DrawFn) -> dict[str, Any]:
    sizes = [
        {},
        {"gpus": 4},
        {"GPUs": 8, "gpusPerNode": 4},
        {"gpus": 2, "gpusPerNode": 8},
        {"processingUnits": 4, "processingUnitsPerNode": 2, "processingResourceType": "cpu"},
        {"replicas": 3},
        {"Replicas": 2, "processingResourceType": "cpu"},
    ]
    return draw(
        merged(
            st.sampled_from(sizes),
            maybe("slotsPerWorker", st.integers(1, 4)),
            maybe("launcherOnMaster", st.booleans()),
            maybe("elasticPolicy", st.just({"minReplicas": 1, "maxReplicas": 2})),
            maybe("mpiReplicaSpecs", st.just({"Worker": {"replicas": 5}})),
            templates("mpi", policies=True).map(lambda found: {"template": found}),
        )
    )


@st.composite
def map_spec(draw: st.DrawFn, generation: MPIJobGeneration) -> dict[str, Any]:
    restarts = maybe("restartPolicy", st.sampled_from(sorted(map(str, generation.valid_restarts))))
    launcher, worker = draw(st.sampled_from([("Launcher", "Worker"), ("launcher", "WORKER")]))
    mains = ("mpi", "train")
    replicas: dict[str, Any] = {
        launcher: draw(
            merged(maybe("replicas", st.just(1)), restarts, templates("mpi").map(lambda found: {"template": found}))
        )
    }
    sizes = st.integers(generation.least_workers, 3).map(lambda size: {"replicas": size})
    if generation.least_workers == 0:
        sizes = st.one_of(st.just({}), sizes)
    if draw(st.integers(0, 3)):
        replicas[worker] = draw(merged(sizes, restarts, templates(mains[1]).map(lambda found: {"template": found})))
    parts: list[st.SearchStrategy[dict[str, Any]]] = [
        st.just({"mpiReplicaSpecs": replicas}),
        maybe("slotsPerWorker", st.integers(1, 4)),
    ]
    if worker in replicas and replicas[worker].get("replicas"):
        parts.append(maybe("elasticPolicy", st.just({"minReplicas": 1, "maxReplicas": 2})))
    if "mainContainer" in generation.fields:
        parts.append(maybe("mainContainer", st.sampled_from(["train", "proxy"])))
    if "mpiImplementation" in generation.fields:
        parts += [
            maybe("sshAuthMountPath", st.just("/home/mpiuser/.ssh")),
            maybe("mpiImplementation", st.sampled_from(["OpenMPI", "Intel", "MPICH"])),
            maybe("launcherCreationPolicy", st.sampled_from(["AtStartup", "WaitForWorkersReady"])),
            maybe("runLauncherAsWorker", st.booleans()),
        ]
    return draw(merged(*parts))


@st.composite
def mpijobs(draw: st.DrawFn, name: str) -> Manifest:
    """An MPIJob of a generation."""
    generation = GENERATIONS[name]
    spec = draw(short_spec() if generation.has_one_template else map_spec(generation))
    spec |= draw(_drawn_policies(generation.effective_flat_policies))
    nested = draw(st.one_of(st.none(), _drawn_policies(generation.policies)))
    if nested is not None:
        spec["runPolicy"] = nested
    metadata = draw(
        merged(
            st.just({"name": "pi", "namespace": "d"}),
            maybe("labels", st.just({"team": "vision"})),
            maybe("annotations", st.just({"note": "kept"})),
        )
    )
    return {"apiVersion": generation.api_version, "kind": generation.kind, "metadata": metadata, "spec": spec}

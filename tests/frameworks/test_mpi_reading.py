"""How manifests of MPIJob are recognised, read and validated in each generation (semantics.md, 1.9, 1.12, 3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.manifest.crd import crd
from tarragon.frameworks.mpi.options import Implementation, MpiOptions, Transport, options_of
from tarragon.frameworks.registry import framework_of
from tarragon.job.model import GENERATION_ANNOTATION, CleanPodPolicy, ElasticPolicy, RestartPolicy
from tests.frameworks.jobs import dialect_of, job_of, problems, unknown, warnings
from tests.frameworks.mpi_jobs import V1, V1ALPHA1, V1ALPHA2, V2BETA1, mpijob, of, short_job, template

GENERATIONS = (V1ALPHA1, V1ALPHA2, V1, V2BETA1)
SEED = """
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata:
  name: tensorflow-benchmarks-16
spec:
  GPUs: 16
  template:
    spec:
      containers:
        - image: mpioperator/tensorflow-benchmarks:latest
          name: tensorflow-benchmarks
"""


# ------------------------------------------------------------------------------------------- generations


@pytest.mark.parametrize("generation", GENERATIONS)
def test_each_generation_is_the_one_that_its_manifest_states(generation: str) -> None:
    assert framework_of(generation, "MPIJob") is MPI
    assert dialect_of(of(generation)).name == generation


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_server_returns_every_job_as_v2beta1_and_its_first_writer_says_what_it_was(generation: str) -> None:
    manifest = {**of(generation), "apiVersion": V2BETA1}
    manifest["metadata"]["managedFields"] = [
        {"manager": "kubectl-create", "apiVersion": generation, "fieldsV1": {"f:spec": {}}}
    ]
    assert dialect_of(manifest).name == generation

    manifest["metadata"] = {"name": "pi", "annotations": {GENERATION_ANNOTATION: generation}}
    assert dialect_of(manifest).name == generation


def test_a_template_makes_it_v1alpha1_even_beside_a_size_that_kubectl_scale_wrote() -> None:
    manifest = short_job(gpus=4, mpiReplicaSpecs={"Worker": {"replicas": 2}})

    assert dialect_of({**manifest, "apiVersion": V2BETA1}).name == V1ALPHA1
    assert job_of(manifest).requested_size() == {LAUNCHER: 1, WORKER: 2}
    assert "mpiReplicaSpecs" not in MPI.editable_fields.without_scaled_size(manifest)["spec"]


def test_a_field_that_only_v2beta1_has_decides_whatever_version_a_server_serves() -> None:
    assert dialect_of({**mpijob(mpiImplementation="Intel"), "apiVersion": V1}).name == V2BETA1


@pytest.mark.parametrize("version", [V1ALPHA2, V1])
def test_a_field_that_turns_exec_into_ssh_is_a_warning(version: str) -> None:
    (warning,) = warnings(mpijob(version, sshAuthMountPath="/home/mpi/.ssh", launcherCreationPolicy="AtStartup"))

    assert warning == (
        f"apiVersion: {version} does not have launcherCreationPolicy and sshAuthMountPath, so the job is run as "
        f"{V2BETA1}: mpirun reaches the workers by SSH and not by exec, and the image needs sshd; "
        f"write {V2BETA1}, or remove launcherCreationPolicy and sshAuthMountPath"
    )


def test_the_version_that_the_user_wrote_counts_and_not_the_one_in_which_the_server_returns_the_job() -> None:
    manifest = mpijob(V2BETA1, mpiImplementation="Intel")
    assert warnings(manifest) == []

    manifest["metadata"]["managedFields"] = [{"manager": "kubectl", "apiVersion": V1, "fieldsV1": {"f:spec": {}}}]
    assert any("kubeflow.org/v1 does not have mpiImplementation" in warning for warning in warnings(manifest))

    manifest["metadata"]["annotations"] = {GENERATION_ANNOTATION: V2BETA1}
    assert warnings(manifest) == []


def test_replica_specs_in_v1alpha1_are_a_warning_too() -> None:
    (warning,) = warnings({**mpijob(), "apiVersion": V1ALPHA1})

    assert "kubeflow.org/v1alpha1 does not have mpiReplicaSpecs" in warning


@pytest.mark.parametrize(
    ("generation", "transport", "backoff_limit", "clean_pods"),
    [
        (V1ALPHA1, Transport.EXEC, 6, CleanPodPolicy.ALL),
        (V1ALPHA2, Transport.EXEC, 6, CleanPodPolicy.NONE),
        (V1, Transport.EXEC, None, CleanPodPolicy.NONE),
        (V2BETA1, Transport.SSH, 6, CleanPodPolicy.NONE),
    ],
)
def test_each_generation_has_its_defaults(
    generation: str, transport: Transport, backoff_limit: int | None, clean_pods: CleanPodPolicy
) -> None:
    job = job_of(of(generation))

    assert options_of(job) == MpiOptions(transport=transport)
    assert (job.run_policy.backoff_limit, job.run_policy.clean_pod_policy) == (backoff_limit, clean_pods)
    assert (job.requested_size(), str(job.chief)) == ({LAUNCHER: 1, WORKER: 2}, "launcher-0")


def test_workers_default_to_none_and_the_launcher_to_one() -> None:
    manifest = mpijob(V1)
    del manifest["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]

    assert job_of(manifest).requested_size() == {LAUNCHER: 1, WORKER: 0}


def test_the_fields_of_v2beta1_are_read() -> None:
    fields: dict[str, Any] = {
        "slotsPerWorker": 3,
        "mpiImplementation": "MPICH",
        "sshAuthMountPath": "/k",
        "runLauncherAsWorker": True,
    }

    assert options_of(job_of(mpijob(**fields))) == MpiOptions(
        slots=3, implementation=Implementation.MPICH, ssh_path="/k", launcher_works=True
    )


# ----------------------------------------------------------------------------------------- starts, restarts


@pytest.mark.parametrize(
    ("manifest", "starts_after"),
    [
        (of(V1ALPHA1), WORKER),
        (of(V1ALPHA2), WORKER),
        (of(V1), WORKER),
        (of(V2BETA1), None),
        (mpijob(launcherCreationPolicy="WaitForWorkersReady"), WORKER),
        (mpijob(workers=None, launcherCreationPolicy="WaitForWorkersReady"), None),
        (short_job(), None),
    ],
)
def test_a_launcher_waits_for_ready_workers_where_its_generation_does_and_there_are_any(
    manifest: dict[str, Any], starts_after: str | None
) -> None:
    launcher = job_of(manifest).replica_spec(LAUNCHER)

    assert launcher is not None
    assert launcher.starts_after == starts_after


@pytest.mark.parametrize(
    ("generation", "policy", "launcher", "worker"),
    [
        # A batch Job starts a failed launcher again, whatever the policy of its pods.
        (V2BETA1, None, RestartPolicy.ON_FAILURE, RestartPolicy.ON_FAILURE),
        (V2BETA1, "Never", RestartPolicy.ON_FAILURE, RestartPolicy.ON_FAILURE),
        (V1ALPHA2, None, RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS),
        (V1, None, RestartPolicy.NEVER, RestartPolicy.NEVER),
        (V1, "OnFailure", RestartPolicy.ON_FAILURE, RestartPolicy.ON_FAILURE),
        (V1, "ExitCode", RestartPolicy.EXIT_CODE, RestartPolicy.ON_FAILURE),
    ],
)
def test_a_failed_worker_is_replaced_where_its_launcher_may_start_again(
    generation: str, policy: str | None, launcher: RestartPolicy, worker: RestartPolicy
) -> None:
    job = job_of(mpijob(generation, specs={"Launcher": {"restartPolicy": policy}} if policy else {}))

    assert [group.restart_policy for group in job.replica_specs] == [launcher, worker]
    assert job.replica_specs[0].pod_restart_policy == "Never"


@pytest.mark.parametrize("policy", ["Always", "ExitCode"])
def test_v2beta1_has_only_the_restart_policies_of_batch_jobs(policy: str) -> None:
    path = "spec.mpiReplicaSpecs.Worker.restartPolicy"

    assert problems(mpijob(specs={"Worker": {"restartPolicy": policy}})) == [
        f"{path}: must be Never or OnFailure, not {policy}; write OnFailure"
    ]


# ------------------------------------------------------------------------------------------------ v1alpha1


def test_the_manifest_of_document_004_means_sixteen_workers_of_one_gpu() -> None:
    job = job_of(yaml.safe_load(SEED))

    assert job.requested_size() == {LAUNCHER: 1, WORKER: 16}
    assert options_of(job).slots == 1
    assert not unknown(yaml.safe_load(SEED))
    assert not warnings(yaml.safe_load(SEED))


@pytest.mark.parametrize(
    ("spec", "workers", "slots"),
    [
        ({"gpus": 16, "gpusPerNode": 8}, 2, 8),  # G18
        ({"gpus": 4, "gpusPerNode": 8}, 1, 4),  # G18
        ({"GPUs": 16, "GPUsPerNode": 8}, 2, 8),
        ({"processingUnits": 6, "processingUnitsPerNode": 2, "processingResourceType": "cpu"}, 3, 2),
        ({"gpus": 16, "gpusPerNode": 8, "slotsPerWorker": 1}, 2, 1),
        ({"replicas": 3}, 3, 1),
        ({"replicas": 3, "template": template(resources={"limits": {"nvidia.com/gpu": 4}})}, 3, 4),
        ({}, 0, 1),
    ],
)
def test_processing_units_become_workers_and_slots(spec: dict[str, Any], workers: int, slots: int) -> None:
    job = job_of(short_job(pod=spec.pop("template", None), **spec))

    assert (job.requested_size()[WORKER], options_of(job).slots) == (workers, slots)


@given(st.integers(1, 1000), st.integers(1, 64))
def test_all_units_are_given_to_workers_of_equal_size_or_the_manifest_is_rejected(total: int, per_node: int) -> None:
    manifest = short_job(gpus=total, gpusPerNode=per_node)

    if total % per_node and total > per_node:
        assert problems(manifest)
    else:
        job = job_of(manifest)
        assert job.requested_size()[WORKER] * options_of(job).slots == total


def test_g18_units_that_are_no_multiple_are_a_problem_with_the_numbers_beside_it() -> None:
    assert problems(short_job(gpus=12, gpusPerNode=8)) == [
        "spec.gpus: 12 is not a multiple of spec.gpusPerNode, which is 8; write 8 or 16"
    ]


def test_two_ways_to_state_the_size_exclude_each_other() -> None:
    assert problems(short_job(gpus=2, processingUnits=2)) == [
        "spec.processingUnits: excludes spec.gpus; remove one of the two"
    ]


def test_an_unknown_resource_type_means_gpus_with_a_warning() -> None:
    (warning,) = warnings(short_job(processingUnits=2, processingResourceType="amd.com/gpu"))

    assert "means nvidia.com/gpu" in warning


def test_the_size_of_a_job_without_gpus_stays_when_its_number_of_gpus_is_removed() -> None:
    manifest = MPI.editable_fields.without_gpu_count(short_job(GPUs=16, gpusPerNode=8))

    assert manifest["spec"].keys() == {"template", "replicas", "slotsPerWorker"}
    assert (job_of(manifest).requested_size()[WORKER], options_of(job_of(manifest)).slots) == (2, 8)


# -------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (mpijob(specs={"Launcher": {"replicas": 2}}), "spec.mpiReplicaSpecs.Launcher.replicas"),
        (mpijob(workers=0), "spec.mpiReplicaSpecs.Worker.replicas"),
        (mpijob(mpiImplementation="LAM"), "spec.mpiImplementation"),
        (mpijob(sshAuthMountPath="ssh"), "spec.sshAuthMountPath"),
        (mpijob(slotsPerWorker=0), "spec.slotsPerWorker"),
        (mpijob(specs={"PS": {"template": template()}}), "spec.mpiReplicaSpecs.PS"),
        (mpijob(elasticPolicy={"minReplicas": 3, "maxReplicas": 2}), "spec.elasticPolicy.minReplicas"),
        (mpijob(V1, runPolicy={"backoffLimit": -1}), "spec.runPolicy.backoffLimit"),
    ],
)
def test_a_fault_is_reported_with_its_path(manifest: dict[str, Any], path: str) -> None:
    assert [problem.partition(":")[0] for problem in problems(manifest)] == [path]


def test_a_job_without_a_launcher_is_not_valid() -> None:
    manifest = mpijob()
    del manifest["spec"]["mpiReplicaSpecs"]["Launcher"]

    assert problems(manifest) == ["spec.mpiReplicaSpecs.Launcher: is missing; add the pod that runs mpirun"]


def test_a_name_that_is_too_long_for_the_last_worker_is_reported() -> None:
    manifest = mpijob(workers=100)
    manifest["metadata"]["name"] = "x" * 54

    assert ["metadata.name" in problem for problem in problems(manifest)] == [True]


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (mpijob(cleanPodPolicy="All"), "spec.cleanPodPolicy"),
        (mpijob(mainContainer="a"), "spec.mainContainer"),
        (mpijob(V1, backoffLimit=3), "spec.backoffLimit"),
        (mpijob(slotPerWorker=3), "spec.slotPerWorker"),
        (mpijob(V1, gpus=3), "spec.gpus"),
        (short_job(gpus=1, slots=3), "spec.slots"),
        (short_job(mpiReplicaSpecs={"Launcher": {}}), "spec.mpiReplicaSpecs.Launcher"),
        (short_job(mpiReplicaSpecs={"Worker": {"template": {}}}), "spec.mpiReplicaSpecs.Worker.template"),
    ],
)
def test_fields_of_other_generations_are_unknown(manifest: dict[str, Any], field: str) -> None:
    found = [problem.partition(":")[0] for problem in unknown(manifest)]

    assert found == [field]


def test_an_elastic_job_has_bounds_as_a_policy() -> None:
    job = job_of(mpijob(workers=2, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}))

    assert (job.elastic_policy, job.requested_size()[WORKER]) == (ElasticPolicy(1, 4), 2)


@pytest.mark.parametrize("manifest", [short_job(), mpijob(V1, workers=0), mpijob(workers=0)])
def test_an_elastic_job_without_a_minimum_has_at_least_one_worker(manifest: dict[str, Any]) -> None:
    manifest["spec"]["elasticPolicy"] = {"maxReplicas": 4}
    job = job_of(manifest)

    assert (job.elastic_policy, job.requested_size()[WORKER]) == (ElasticPolicy(1, 4), 1)
    assert any("0 is outside the allowed range of 1 to 4" in warning for warning in warnings(manifest))


def test_an_elastic_job_may_have_no_workers_if_ranks_run_in_its_launcher() -> None:
    gpu_launcher = template(name="launcher", resources={"limits": {"nvidia.com/gpu": 1}})
    manifest = mpijob(V1, workers=0, elasticPolicy={"maxReplicas": 4}, specs={"Launcher": {"template": gpu_launcher}})

    assert job_of(manifest).elastic_policy == ElasticPolicy(0, 4)


def test_the_workers_of_an_elastic_job_are_within_its_bounds_in_every_generation() -> None:
    bounds = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}

    for manifest in (short_job(gpus=3, **bounds), *(mpijob(name, workers=3, **bounds) for name in GENERATIONS[1:])):
        assert job_of(manifest).requested_size()[WORKER] == 2
        assert any("outside the allowed range" in warning for warning in warnings(manifest))


# ------------------------------------------------------------------------------------------------ definition


def of_launcher(*words: str) -> dict[str, Any]:
    return {"Launcher": {"template": template(command=list(words))}}


@pytest.mark.parametrize("option", ["-n", "-np", "--np"])
def test_more_ranks_than_slots_are_a_warning_with_both_numbers(option: str) -> None:
    command = of_launcher("mpirun", "--allow-run-as-root", option, "5", "pi")
    (warning,) = warnings(mpijob(slotsPerWorker=2, specs=command))

    assert warning.startswith("spec.mpiReplicaSpecs.Launcher.template.spec.containers: ")
    assert "mpirun will refuse to start 5 ranks, as there are only 4 slots" in warning


@pytest.mark.parametrize(
    "words",
    [
        ["mpirun", "-n", "4", "pi"],
        ["mpirun", "pi", "-n", "100"],
        ["mpirun", "-n", "9", "--oversubscribe", "pi"],
        ["mpirun", "-n", "9", "--map-by", ":OVERSUBSCRIBE", "pi"],
        ["mpirun", "-n", "9", "--host", "a:9", "pi"],
        ["mpirun", "-n", "$(RANKS)", "pi"],
        ["horovodrun", "-n", "9", "pi"],
        ["mpirun", "-x", "PATH", "python", "-n", "9"],
        ["mpirun", "--unknown", "9", "-n", "9", "pi"],
    ],
)
def test_ranks_that_fit_or_whose_slots_are_not_known_are_no_warning(words: list[str]) -> None:
    assert warnings(mpijob(slotsPerWorker=2, specs=of_launcher(*words))) == []


@pytest.mark.parametrize("words", [["-x", "PATH", "-np", "5"], ["-bind-to", "none", "--mca", "pml", "ob1", "-np", "5"]])
def test_options_with_a_value_before_the_number_of_ranks_are_understood(words: list[str]) -> None:
    (warning,) = warnings(mpijob(slotsPerWorker=2, specs=of_launcher("mpirun", *words, "pi")))

    assert "refuse to start 5 ranks" in warning


def test_the_launcher_has_slots_if_it_works() -> None:
    command = of_launcher("mpirun", "-n", "6", "pi")

    assert warnings(mpijob(slotsPerWorker=2, runLauncherAsWorker=True, specs=command)) == []
    assert warnings(mpijob(slotsPerWorker=2, specs=command))


def test_an_elastic_job_needs_the_slots_when_it_has_its_fewest_workers() -> None:
    bounds = {"minReplicas": 1, "maxReplicas": 4}
    (warning,) = warnings(mpijob(workers=4, elasticPolicy=bounds, specs=of_launcher("mpirun", "-n", "4", "pi")))

    assert "mpirun will refuse to start 4 ranks, as there may be only 1 slot" in warning
    assert "spec.elasticPolicy.minReplicas" in warning


@pytest.mark.parametrize("implementation", ["OpenMPI", "MPICH"])
def test_ranks_without_a_worker_to_run_in_are_a_warning(implementation: str) -> None:
    command = of_launcher("mpirun", "-n", "4", "pi")
    (warning,) = warnings(mpijob(workers=None, mpiImplementation=implementation, specs=command))

    assert "mpirun can start its 4 ranks only in the launcher, as the job has no workers" in warning
    assert "runLauncherAsWorker: true and slotsPerWorker: 4" in warning
    assert warnings(mpijob(workers=None, runLauncherAsWorker=True, slotsPerWorker=4, specs=command)) == []


def test_a_job_of_v1alpha1_without_a_size_has_no_workers() -> None:
    pod = template(command=["mpirun", "-n", "2", "pi"])

    assert any("has no workers; set gpus or replicas" in warning for warning in warnings(short_job(pod=pod)))


def test_a_single_rank_needs_no_worker() -> None:
    assert warnings(mpijob(workers=None, specs=of_launcher("mpirun", "-n", "1", "pi"))) == []


def test_workers_need_no_command_for_json_logs_because_the_operator_has_one() -> None:
    manifest = mpijob(specs={"Launcher": {"template": template()}})
    manifest["metadata"]["annotations"] = {"tarragon.dev/logs": "json"}

    assert [warning.partition(": ")[0] for warning in warnings(manifest)] == [
        "spec.mpiReplicaSpecs.Launcher.template.spec.containers"
    ]


def test_hydra_starts_any_number_of_ranks() -> None:
    assert warnings(mpijob(mpiImplementation="MPICH", specs=of_launcher("mpirun", "-n", "9", "pi"))) == []


def test_the_definition_serves_all_versions_and_has_the_short_names_of_mpi_operator() -> None:
    spec = crd()["spec"]

    assert [version["name"] for version in spec["versions"]] == ["v2beta1", "v1", "v1alpha2", "v1alpha1"]
    assert spec["names"]["shortNames"] == ["mj", "mpij"]
    assert [version["storage"] for version in spec["versions"]] == [True, False, False, False]


def test_the_seed_that_the_tests_use_is_the_one_of_document_004() -> None:
    seeds = Path(__file__).parents[2].parent / "shared" / "seeds" / "manifests" / "004-mpijob.yaml"
    if not seeds.exists():
        pytest.skip("the seeds are not here")

    assert yaml.safe_load(seeds.read_text()) == yaml.safe_load(SEED)

"""The objects of an MPIJob in each generation: names, labels, host files, environment, volumes (semantics.md, 3)."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.objects.host_files import host_file
from tarragon.frameworks.mpi.objects.owned_objects import owned_objects
from tarragon.frameworks.mpi.options import HostFileFormat
from tarragon.job.model import Replica
from tests.frameworks.jobs import dialect_of, job_of
from tests.frameworks.mpi_jobs import (
    EXEC,
    V1,
    V1ALPHA1,
    V1ALPHA2,
    V2BETA1,
    env,
    mpijob,
    objects,
    observation,
    of,
    pod,
    short_job,
    template,
)

GENERATIONS = (*EXEC, V2BETA1)


def config(manifest: dict[str, Any]) -> dict[str, str]:
    data: dict[str, str] = objects(manifest)["ConfigMap/pi-config"]["data"]
    return data


def mounts(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["mountPath"] for each in found["spec"]["containers"][0]["volumeMounts"]}


# ---------------------------------------------------------------- host files


def test_g15_open_mpi_lists_slots_after_the_name_in_the_dns() -> None:
    assert (
        config(mpijob(slotsPerWorker=4))["hostfile"] == "pi-worker-0.pi.d.svc slots=4\npi-worker-1.pi.d.svc slots=4\n"
    )


@pytest.mark.parametrize("implementation", ["Intel", "MPICH"])
def test_g16_intel_mpi_and_mpich_list_slots_after_a_colon(implementation: str) -> None:
    hosts = config(mpijob(slotsPerWorker=4, mpiImplementation=implementation))["hostfile"]

    assert hosts == "pi-worker-0.pi.d.svc:4\npi-worker-1.pi.d.svc:4\n"


def test_g17_a_launcher_that_works_is_the_first_host_and_has_the_first_index() -> None:
    manifest = mpijob(slotsPerWorker=4, runLauncherAsWorker=True)

    assert config(manifest)["hostfile"].splitlines()[0] == "pi-launcher.pi.d.svc slots=4"
    index = "training.kubeflow.org/replica-index"
    found = [pod(manifest, name)["metadata"]["labels"][index] for name in ("pi-launcher", "pi-worker-0", "pi-worker-1")]
    assert found == ["0", "1", "2"]


@pytest.mark.parametrize("generation", EXEC)
def test_older_generations_list_pods_by_their_names(generation: str) -> None:
    assert config(of(generation))["hostfile"] == "pi-worker-0 slots=1\npi-worker-1 slots=1\n"
    assert config(of(generation))["hostfile.hydra"] == "pi-worker-0:1\npi-worker-1:1\n"


@pytest.mark.parametrize(
    ("implementation", "name", "line"),
    [
        ("OpenMPI", "hostfile.hydra", "pi-worker-0.pi.d.svc:4"),
        ("Intel", "hostfile.openmpi", "pi-worker-0.pi.d.svc slots=4"),
        ("MPICH", "hostfile.openmpi", "pi-worker-0.pi.d.svc slots=4"),
    ],
)
def test_a_second_host_file_is_for_the_mpis_that_cannot_read_the_first(
    implementation: str, name: str, line: str
) -> None:
    manifest = mpijob(slotsPerWorker=4, mpiImplementation=implementation)
    launcher = pod(manifest, "pi-launcher")

    assert config(manifest).keys() == {"hostfile", name, "discover_hosts.sh"}
    assert config(manifest)[name].splitlines()[0] == line
    volume = next(each for each in launcher["spec"]["volumes"] if each["name"] == "mpi-job-config")
    modes = {each["path"]: oct(each["mode"]) for each in volume["configMap"]["items"]}
    assert modes == {"hostfile": "0o444", name: "0o444", "discover_hosts.sh": "0o555"}


def test_the_host_file_lists_the_admitted_workers_whose_indexes_may_have_gaps() -> None:
    seen = observation(mpijob(workers=3), replicas=(Replica(LAUNCHER, 0), Replica(WORKER, 0), Replica(WORKER, 2)))

    assert host_file(seen, HostFileFormat.OPEN_MPI) == "pi-worker-0.pi.d.svc slots=1\npi-worker-2.pi.d.svc slots=1\n"


def test_the_cluster_domain_is_appended() -> None:
    seen = observation(mpijob(workers=1), cluster_domain="cluster.local")

    assert host_file(seen, HostFileFormat.OPEN_MPI) == "pi-worker-0.pi.d.svc.cluster.local slots=1\n"


def test_a_v1_launcher_with_a_gpu_runs_ranks_itself() -> None:
    gpu = {"Launcher": {"template": template(command=["mpirun"], resources={"limits": {"nvidia.com/gpu": 1}})}}

    assert config(mpijob(V1, specs=gpu))["hostfile"].splitlines()[0] == "pi-launcher slots=1"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(pod(mpijob(V1, specs=gpu), "pi-launcher"))


def test_hosts_are_discovered_only_once_they_run() -> None:
    assert config(mpijob())["discover_hosts.sh"] == "#!/bin/sh\n"


@pytest.mark.parametrize("generation", EXEC)
def test_a_launcher_that_waits_for_its_workers_will_find_them_all(generation: str) -> None:
    assert config(of(generation))["discover_hosts.sh"] == "#!/bin/sh\necho pi-worker-0:1\necho pi-worker-1:1\n"


def test_a_launcher_that_works_is_the_first_host_to_be_discovered() -> None:
    gpu = {"Launcher": {"template": template(command=["mpirun"], resources={"limits": {"nvidia.com/gpu": 1}})}}

    found = config(mpijob(slotsPerWorker=2, runLauncherAsWorker=True))["discover_hosts.sh"]
    assert found == "#!/bin/sh\necho pi-launcher.pi.d.svc:2\n"
    older = config(mpijob(V1, specs=gpu))["discover_hosts.sh"]
    assert older.startswith("#!/bin/sh\necho pi-launcher:1\necho pi-worker-0:1\n")


# ---------------------------------------------------------------- names, labels


def test_what_is_created_depends_on_how_mpirun_reaches_its_workers() -> None:
    pods = {"Pod/pi-launcher", "Pod/pi-worker-0", "Pod/pi-worker-1"}
    rights = {"ServiceAccount/pi-launcher", "Role/pi-launcher", "RoleBinding/pi-launcher"}

    for generation in EXEC:
        assert set(objects(of(generation))) == {*pods, *rights, "ConfigMap/pi-config"}
    assert set(objects(of(V2BETA1))) == {*pods, "ConfigMap/pi-config", "Secret/pi-ssh", "Service/pi"}


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (V1ALPHA1, {"app": "pi", "group_name": "kubeflow.org", "mpi_job_name": "pi", "mpi_role_type": "worker"}),
        (V1ALPHA2, {"app": "pi", "group_name": "kubeflow.org", "mpi_job_name": "pi", "mpi_role_type": "worker"}),
        (
            V1,
            {
                "group-name": "kubeflow.org",
                "job-name": "pi",
                "replica-type": "worker",
                "replica-index": "1",
                "mpi-job-name": "pi",
                "mpi-job-role": "worker",
                "training.kubeflow.org/operator-name": "mpijob-controller",
                "training.kubeflow.org/job-name": "pi",
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": "1",
            },
        ),
        (
            V2BETA1,
            {
                "training.kubeflow.org/operator-name": "mpi-operator",
                "training.kubeflow.org/job-name": "pi",
                "training.kubeflow.org/job-role": "worker",
                "training.kubeflow.org/replica-index": "1",
            },
        ),
    ],
)
def test_workers_have_the_labels_of_their_generation(generation: str, expected: dict[str, str]) -> None:
    assert pod(of(generation), "pi-worker-1")["metadata"]["labels"] == expected


def test_a_launcher_is_the_master_of_v1_and_has_no_index_in_v2beta1() -> None:
    labels = pod(of(V1), "pi-launcher")["metadata"]["labels"]
    assert (labels["training.kubeflow.org/job-role"], labels["mpi-job-role"]) == ("master", "launcher")

    labels = pod(of(V2BETA1), "pi-launcher")["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-role"] == "launcher"
    assert "training.kubeflow.org/replica-index" not in labels


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_pod_is_found_by_its_name_and_by_the_selector_of_its_job(generation: str) -> None:
    manifest = of(generation)
    job, dialect = job_of(manifest), dialect_of(manifest)

    for replica in job.replicas_of_size(job.requested_size()):
        name = dialect.names.pod(job, replica)
        assert dialect.names.replica_of(job, name) == replica
        assert dialect.selector(job).items() <= pod(manifest, name)["metadata"]["labels"].items()
    assert dialect.names.replica_of(job, "pi-launcher-0") is None
    workers = dialect.worker_selector(job).items()
    assert workers <= pod(manifest, "pi-worker-0")["metadata"]["labels"].items()
    assert not workers <= pod(manifest, "pi-launcher")["metadata"]["labels"].items()


def test_all_pods_of_v2beta1_share_one_headless_service_under_their_own_names() -> None:
    found = objects(of(V2BETA1))
    service = found["Service/pi"]["spec"]

    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    for name in ("pi-launcher", "pi-worker-0"):
        spec = found[f"Pod/{name}"]["spec"]
        assert (spec["hostname"], spec["subdomain"]) == (name, "pi")
        assert spec["dnsConfig"] == {"searches": ["pi.d.svc.cluster.local"]}
        assert service["selector"].items() <= found[f"Pod/{name}"]["metadata"]["labels"].items()


# ---------------------------------------------------------------- environment, volumes


@pytest.mark.parametrize("generation", EXEC)
def test_an_older_launcher_reaches_its_workers_by_kubexec(generation: str) -> None:
    launcher = pod(of(generation), "pi-launcher")

    assert env(launcher)["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert env(launcher)["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert (env(launcher)["I_MPI_HYDRA_BOOTSTRAP"], env(launcher)["NVIDIA_VISIBLE_DEVICES"]) == ("rsh", "")
    assert mounts(launcher) == {"mpi-job-kubectl": "/opt/kube", "mpi-job-config": "/etc/mpi"}
    assert launcher["spec"]["serviceAccountName"] == "pi-launcher"
    assert [each["name"] for each in launcher["spec"]["initContainers"]] == ["kubectl-delivery"]
    volume = next(each for each in launcher["spec"]["volumes"] if each["name"] == "mpi-job-config")
    modes = {each["path"]: oct(each["mode"]) for each in volume["configMap"]["items"]}
    assert modes == {
        "kubexec.sh": "0o555",
        "hostfile": "0o444",
        "hostfile.hydra": "0o444",
        "discover_hosts.sh": "0o555",
    }


def test_kubectl_is_delivered_with_the_resources_and_the_privileges_of_the_launcher() -> None:
    resources, context = {"requests": {"cpu": "2"}}, {"runAsUser": 1000, "allowPrivilegeEscalation": False}
    restricted = {"Launcher": {"template": template(resources=resources, securityContext=context)}}

    (delivery,) = pod(mpijob(V1, specs=restricted), "pi-launcher")["spec"]["initContainers"]
    (plain,) = pod(mpijob(V1), "pi-launcher")["spec"]["initContainers"]

    assert (delivery["resources"], delivery["securityContext"]) == (resources, context)
    assert "securityContext" not in plain


@pytest.mark.parametrize("generation", EXEC)
def test_an_older_worker_sleeps_and_has_the_script_for_spawning_in_a_tree(generation: str) -> None:
    worker = pod(of(generation), "pi-worker-0")

    assert worker["spec"]["containers"][0]["command"] == ["sleep", "365d"]
    assert mounts(worker) == {"mpi-job-config": "/etc/mpi"}
    assert "OMPI_MCA_plm_rsh_agent" not in env(worker)


@pytest.mark.parametrize("generation", [V1ALPHA2, V1])
def test_an_older_worker_that_has_only_arguments_sleeps_without_them(generation: str) -> None:
    arguments = {"Worker": {"template": template(args=["--train"])}}

    (container,) = pod(mpijob(generation, specs=arguments), "pi-worker-0")["spec"]["containers"]

    assert (container["command"], container.get("args")) == (["sleep", "365d"], None)


def test_a_worker_with_a_command_keeps_it() -> None:
    command = {"Worker": {"template": template(command=["agent"])}}

    for generation in (V1ALPHA2, V1, V2BETA1):
        worker = pod(mpijob(generation, specs=command), "pi-worker-0")
        assert worker["spec"]["containers"][0]["command"] == ["agent"]


def test_a_worker_of_v2beta1_runs_sshd_unless_it_has_a_command_or_arguments() -> None:
    assert pod(mpijob(), "pi-worker-0")["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]

    arguments = {"Worker": {"template": template(args=["-p", "2222"])}}
    assert "command" not in pod(mpijob(specs=arguments), "pi-worker-0")["spec"]["containers"][0]


@pytest.mark.parametrize(("path", "mode"), [("/root/.ssh", 0o600), ("/home/mpiuser/.ssh", None)])
def test_all_pods_of_v2beta1_mount_the_keys_which_only_root_may_mount_as_they_are(path: str, mode: int | None) -> None:
    for name in ("pi-launcher", "pi-worker-0"):
        found = pod(mpijob(sshAuthMountPath=path), name)
        volume = next(each["secret"] for each in found["spec"]["volumes"] if each["name"] == "ssh-auth")
        assert (volume["secretName"], volume.get("defaultMode")) == ("pi-ssh", mode)
        assert [each["path"] for each in volume["items"]] == ["id_rsa", "id_rsa.pub", "authorized_keys"]
        assert mounts(found)["ssh-auth"] == path


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        (
            "OpenMPI",
            {
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
                "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
                "OMPI_MCA_orte_set_default_slots": "4",
            },
        ),
        (
            "Intel",
            {
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "I_MPI_PERHOST": "4",
            },
        ),
        ("MPICH", {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"}),
    ],
)
def test_the_launcher_of_v2beta1_has_the_variables_of_its_implementation(
    implementation: str, expected: dict[str, str]
) -> None:
    manifest = mpijob(slotsPerWorker=4, mpiImplementation=implementation)
    launcher, worker = env(pod(manifest, "pi-launcher")), env(pod(manifest, "pi-worker-0"))

    assert expected.items() <= launcher.items()
    assert (launcher["K_MPI_JOB_ROLE"], launcher["NVIDIA_VISIBLE_DEVICES"]) == ("launcher", "")
    assert worker == {"K_MPI_JOB_ROLE": "worker"}


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        (
            "OpenMPI",
            {
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile.hydra",
                "I_MPI_PERHOST": "4",
                "HYDRA_HOST_FILE": "/etc/mpi/hostfile.hydra",
            },
        ),
        (
            "Intel",
            {
                "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile.openmpi",
                "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile.openmpi",
                "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
            },
        ),
        (
            "MPICH",
            {
                "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile.openmpi",
                "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile.openmpi",
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "I_MPI_PERHOST": "4",
            },
        ),
    ],
)
def test_the_mpis_that_the_manifest_does_not_name_find_the_hosts_too(
    implementation: str, expected: dict[str, str]
) -> None:
    manifest = mpijob(slotsPerWorker=4, mpiImplementation=implementation)

    assert expected.items() <= env(pod(manifest, "pi-launcher")).items()


@pytest.mark.parametrize("generation", EXEC)
def test_hydra_finds_the_hosts_of_an_older_generation(generation: str) -> None:
    found = env(pod(of(generation), "pi-launcher"))

    assert found["HYDRA_HOST_FILE"] == found["I_MPI_HYDRA_HOST_FILE"] == "/etc/mpi/hostfile.hydra"
    assert found["I_MPI_PERHOST"] == "1"


def test_the_users_variables_of_another_mpi_than_the_named_one_stay() -> None:
    own = [{"name": "HYDRA_HOST_FILE", "value": "/mine"}, {"name": "I_MPI_PERHOST", "value": "all"}]
    launcher = {"Launcher": {"template": template(command=["mpirun"], env=own)}}

    for generation in (V1, V2BETA1):
        found = env(pod(mpijob(generation, specs=launcher), "pi-launcher"))
        assert (found["HYDRA_HOST_FILE"], found["I_MPI_PERHOST"]) == ("/mine", "all")


def test_only_a_launcher_that_works_sees_gpus() -> None:
    assert "NVIDIA_VISIBLE_DEVICES" not in env(pod(mpijob(runLauncherAsWorker=True), "pi-launcher"))


def test_only_the_first_container_gets_what_mpirun_needs() -> None:
    beside = template(command=["mpirun"])
    beside["spec"]["containers"].append({"name": "sidecar", "image": "logs", "command": ["ship"]})

    found = pod(mpijob(specs={"Launcher": {"template": beside}}), "pi-launcher")
    assert env(found)
    assert not env(found, 1)


# ---------------------------------------------------------------- permissions


def test_a_launcher_may_run_commands_in_its_own_workers_and_in_no_other_pod() -> None:
    found = objects(mpijob(V1, workers=3))
    workers = ["pi-worker-0", "pi-worker-1", "pi-worker-2"]

    assert found["Role/pi-launcher"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": workers, "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": workers, "verbs": ["create"]},
    ]
    assert found["RoleBinding/pi-launcher"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "pi-launcher", "namespace": "d"}
    ]


def test_a_job_without_workers_grants_nothing_for_a_rule_without_names_would_mean_all_pods() -> None:
    assert objects(mpijob(V1, workers=None))["Role/pi-launcher"]["rules"] == []


def test_an_account_that_the_user_names_is_left_as_it_is() -> None:
    named = {"Launcher": {"template": template(command=["mpirun"])}}
    named["Launcher"]["template"]["spec"]["serviceAccountName"] = "mine"
    manifest = mpijob(V1, specs=named)

    assert pod(manifest, "pi-launcher")["spec"]["serviceAccountName"] == "mine"
    assert [each.resource.kind for each in owned_objects(observation(manifest))] == ["ConfigMap"]


def test_the_old_name_of_the_field_names_an_account_too() -> None:
    launcher = template(command=["mpirun"])
    launcher["spec"]["serviceAccount"] = "mine"
    manifest = mpijob(V1, specs={"Launcher": {"template": launcher}})

    assert pod(manifest, "pi-launcher")["spec"]["serviceAccountName"] == "mine"
    assert "Role/pi-launcher" not in objects(manifest)


def test_the_script_names_the_container_that_the_manifest_names() -> None:
    assert "--container 'a b' " in config(mpijob(V1, mainContainer="a b"))["kubexec.sh"]
    assert "--container" not in config(mpijob(V1))["kubexec.sh"]


# ---------------------------------------------------------------- v1alpha1


def test_a_launcher_of_v1alpha1_runs_anywhere_and_its_workers_have_their_share() -> None:
    limits = {"resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": 1}}}
    manifest = short_job(gpus=16, gpusPerNode=8, pod=template(command=["mpirun"], **limits))

    assert "resources" not in pod(manifest, "pi-launcher")["spec"]["containers"][0]
    worker = pod(manifest, "pi-worker-1")["spec"]["containers"][0]
    assert worker["resources"] == {"limits": {"memory": "1Gi", "nvidia.com/gpu": 8}, "requests": {"cpu": 1}}


def test_launcher_on_master_adds_to_the_users_affinity() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    users = template(command=["mpirun"])
    users["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        }
    }
    manifest = short_job(gpus=1, launcherOnMaster=True, pod=users)

    spec = pod(manifest, "pi-launcher")["spec"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = [f"node-role.kubernetes.io/{name}" for name in ("master", "control-plane")]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [zone, {"key": label, "operator": "Exists"}]} for label in labels
    ]
    assert [each["key"] for each in spec["tolerations"]] == labels
    assert "tolerations" not in pod(manifest, "pi-worker-0")["spec"]


@pytest.mark.parametrize(("launcher_works", "of_launcher"), [(False, 0), (True, 3)])
def test_ranks_compute_and_a_launcher_that_only_starts_them_does_not(*, launcher_works: bool, of_launcher: int) -> None:
    training = job_of(mpijob(slotsPerWorker=3, runLauncherAsWorker=launcher_works))

    assert MPI.programs_per_replica(training, WORKER) == 3
    assert MPI.programs_per_replica(training, LAUNCHER) == of_launcher

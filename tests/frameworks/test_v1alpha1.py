from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.plugin import JobObservation
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.frameworks.tensorflow.replica_types import MASTER, PS
from tarragon.job.model import CleanPodPolicy, Replica, RestartPolicy, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.frameworks.jobs import dialect_of, job_of, problems, taken, template, unknown, warnings
from tests.frameworks.listed_jobs import UID, cluster, item, listed

MANIFESTS = Path(__file__).parent.parent / "data" / "manifests"


def wired(manifest: dict[str, Any], replica: Replica) -> Any:
    job = job_of(manifest)
    return dialect_of(manifest).discovery_config(job, job.requested_size(), "cluster.local")(replica)


def scripts_of(job: TrainingJob) -> list[JsonObject]:
    """The bodies of the ConfigMaps with the job's scripts."""
    seen = JobObservation(job=job, size=job.requested_size(), replicas=(), replica_states={}, status=JobStatus())
    return [wanted.body for wanted in TENSORFLOW.owned_objects(seen)]


def written_back(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with what the operator fills in."""
    fields = dialect_of(manifest).default_fields(job_of(manifest), manifest["spec"])
    return {**manifest, "spec": apply_merge_patch(manifest["spec"], fields)}


def test_what_is_not_written_has_the_defaults_of_its_time() -> None:
    job = job_of(listed(item(), item("WORKER"), {"tfReplicaType": "PS"}))

    assert [(group.type, group.replicas, group.port) for group in job.replica_specs] == [
        (MASTER, 1, 2222),
        (WORKER, 1, 2222),
        (PS, 1, 2222),
    ]
    assert job.run_policy.clean_pod_policy is CleanPodPolicy.RUNNING
    assert job.chief == Replica(MASTER, 0)


def test_the_master_is_judged_by_its_exit_code_and_all_others_are_started_again() -> None:
    job = job_of(cluster())

    assert job.restart_policy_of(Replica(MASTER, 0)) is RestartPolicy.EXIT_CODE
    assert job.restart_policy_of(Replica(WORKER, 1)) is RestartPolicy.ALWAYS
    assert job.restart_policy_of(Replica(PS, 0)) is RestartPolicy.ALWAYS


def test_pods_have_the_restart_policy_of_their_template() -> None:
    on_failure = {"spec": {**template()["spec"], "restartPolicy": "OnFailure"}}
    job = job_of(listed(item("MASTER", template=on_failure), item("WORKER"), {"tfReplicaType": "PS"}))

    assert [group.pod_restart_policy for group in job.replica_specs] == ["OnFailure", "Always", "OnFailure"]


def test_the_termination_policy_names_who_decides() -> None:
    chief = {"replicaName": "WORKER", "replicaIndex": 1}
    job = job_of(cluster(terminationPolicy={"chief": chief}))

    assert job.chief == Replica(WORKER, 1)
    assert job.has_chief
    assert job.restart_policy_of(Replica(WORKER, 1)) is RestartPolicy.EXIT_CODE
    assert job.restart_policy_of(Replica(WORKER, 0)) is RestartPolicy.ALWAYS
    assert job.restart_policy_of(Replica(MASTER, 0)) is RestartPolicy.ALWAYS


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            listed(item("WORKER")),
            (
                "spec.replicaSpecs: has no MASTER, which decides when the job is done; add one, or "
                "name another replica in spec.terminationPolicy.chief"
            ),
        ),
        (
            listed({"tfReplicaType": "PS"}),
            (
                "spec.replicaSpecs: has no MASTER, which decides when the job is done; add one, or "
                "name another replica in spec.terminationPolicy.chief"
            ),
        ),
        (
            listed(item("Master")),
            (
                'spec.replicaSpecs[0].tfReplicaType: must be MASTER, PS or WORKER, not the text "Master"; '
                "did you mean MASTER?"
            ),
        ),
        (
            {**listed(), "spec": {"replicaSpecs": {"MASTER": item()}}},
            "spec.replicaSpecs: must be a list, not a map; begin each item with a dash",
        ),
        (listed(item("MASTER", replicas=2)), "spec.replicaSpecs[0].replicas: must be 1, not 2; a job has one MASTER"),
        (listed(item("MASTER", replicas=0)), "spec.replicaSpecs[0].replicas: must be 1, not 0; a job has one MASTER"),
        (
            listed(item("MASTER"), item("Worker")),
            (
                'spec.replicaSpecs[1].tfReplicaType: must be MASTER, PS or WORKER, not the text "Worker"; '
                "did you mean WORKER?"
            ),
        ),
        (
            listed(item("MASTER"), item("WORKER"), item("WORKER")),
            "spec.replicaSpecs[2].tfReplicaType: spec.replicaSpecs[1] is of the same type; write each type once",
        ),
        (
            listed({"tfReplicaType": "MASTER"}),
            "spec.replicaSpecs[0].template: is missing; add a pod template",
        ),
        (
            listed(item("MASTER", template={"spec": {"containers": [{"name": "main", "image": "i"}]}})),
            (
                "spec.replicaSpecs[0].template.spec.containers: no container is named tensorflow; name the one "
                "that trains tensorflow, not main"
            ),
        ),
        (
            listed(item("MASTER", template={"spec": {**template()["spec"], "restartPolicy": "ExitCode"}})),
            (
                "spec.replicaSpecs[0].template.spec.restartPolicy: must be Always, OnFailure or Never, not the text "
                '"ExitCode"'
            ),
        ),
        (
            cluster(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 2}}),
            "spec.terminationPolicy.chief.replicaIndex: there is no WORKER 2; write 0 to 1",
        ),
        (
            cluster(workers=0, terminationPolicy={"chief": {"replicaName": "WORKER"}}),
            "spec.terminationPolicy.chief.replicaIndex: there is no WORKER 0; the job has none",
        ),
        (
            cluster(terminationPolicy={"chief": {"replicaIndex": 1}}),
            "spec.terminationPolicy.chief.replicaIndex: there is no MASTER 1; write 0",
        ),
        (
            listed(item("MASTER"), terminationPolicy={"chief": {"replicaName": "WORKER"}}),
            (
                "spec.terminationPolicy.chief.replicaName: there is no WORKER in spec.replicaSpecs; "
                "name one that is in the list"
            ),
        ),
        (
            listed(RuntimeId="Not_One"),
            (
                "spec.RuntimeId: may only contain lower-case letters, digits and dashes, and no dash at either "
                "end; remove it, and the job gets one"
            ),
        ),
        (
            listed(name="1st"),
            (
                "metadata.name: gives a replica's service the name 1st-master-ax8u-0, which must begin with a letter; "
                "write letters, digits and dashes, a letter first"
            ),
        ),
        (
            listed(name="j" * 64),
            "metadata.name: is 64 characters long, more than the maximum of 63 for a pod label; shorten it by 1",
        ),
    ],
)
def test_a_fault_is_told_once_with_its_place_in_the_list(manifest: dict[str, Any], message: str) -> None:
    assert problems(manifest) == [message]


def test_of_a_type_in_other_capitals_all_other_faults_are_told_too() -> None:
    assert problems(listed(item("MASTER"), {"tfReplicaType": "worker", "replicas": -1})) == [
        'spec.replicaSpecs[1].tfReplicaType: must be MASTER, PS or WORKER, not the text "worker"; did you mean WORKER?',
        "spec.replicaSpecs[1].template: is missing; add a pod template",
        "spec.replicaSpecs[1].replicas: must be 0 or more, not -1",
    ]


def test_a_tf_config_that_linux_would_not_pass_on_is_refused() -> None:
    (problem,) = problems(cluster(workers=6000))

    assert problem.startswith("spec.replicaSpecs: gives a TF_CONFIG of ")
    assert problem.endswith("; use fewer replicas, or a shorter name")


def test_fields_of_other_generations_are_told_apart_from_typos() -> None:
    later = listed(item("MASTER", restartPolicy="Never"), successPolicy="AllWorkers", suspend=True, tfimage="i")

    assert warnings(later) == [
        "spec.successPolicy: has no effect with spec.replicaSpecs: it belongs to a later generation; remove it"
    ]
    assert unknown(later) == [
        (
            "spec.replicaSpecs[0].restartPolicy: unknown field; "
            "write it as spec.replicaSpecs[0].template.spec.restartPolicy"
        ),
        "spec.suspend: unknown field; move it to spec.runPolicy.suspend",
        "spec.tfimage: unknown field; did you mean tfImage?",
    ]


def test_policies_of_later_generations_work_here_too() -> None:
    policy = job_of(listed(runPolicy={"suspend": True, "ttlSecondsAfterFinished": 60})).run_policy

    assert (policy.suspend, policy.ttl_seconds_after_finished) == (True, 60)


@pytest.mark.parametrize("name", ["RuntimeId", "runtimeId", "runtimeid", "RUNTIMEID"])
def test_a_runtime_id_is_read_in_any_capitals(name: str) -> None:
    manifest = listed(**{name: "76no"})

    assert job_of(manifest).runtime_id == "76no"
    assert unknown(manifest) == []


def test_without_one_the_runtime_id_follows_from_the_uid() -> None:
    first, second = job_of(listed()), job_of({**listed(), "metadata": {"name": "j", "uid": "another"}})

    assert len(first.runtime_id) == 4
    assert first.runtime_id == job_of(listed()).runtime_id != second.runtime_id


def test_the_old_spelling_means_the_same() -> None:
    old = {
        **listed(),
        "spec": {"replica_specs": [{"tf_replica_type": "MASTER", "tf_port": 5000, "template": template()}]},
    }
    new = listed(item("MASTER", tfPort=5000))

    assert [group.port for group in job_of(old).replica_specs] == [5000]
    assert (unknown(old), job_of(old).replica_specs[0].replicas) == ([], job_of(new).replica_specs[0].replicas)


def test_kubectl_scale_writes_the_workers_beside_the_list() -> None:
    scaled = cluster(workers=1, tfReplicaSpecs={"Worker": {"replicas": 3}})

    assert job_of(scaled).requested_size() == {MASTER: 1, WORKER: 3, PS: 1}
    (messages,) = warnings(scaled)
    assert messages == (
        "spec.tfReplicaSpecs.Worker.replicas: is 3, set by `kubectl scale`, and overrides "
        "spec.replicaSpecs[1].replicas, which is 1; "
        "scale again, or remove spec.tfReplicaSpecs to go back to the 1 of the list"
    )
    assert warnings(cluster(workers=3, tfReplicaSpecs={"Worker": {"replicas": 3}})) == []
    assert warnings(listed(tfReplicaSpecs={"Worker": {"replicas": 3}})) == [
        "spec.tfReplicaSpecs.Worker.replicas: has no effect: there is no WORKER in spec.replicaSpecs; add one there"
    ]


def test_one_scheduler_is_every_pods_scheduler() -> None:
    job = job_of(cluster(schedulerName="kube-batch"))

    assert {group.template["spec"]["schedulerName"] for group in job.replica_specs} == {"kube-batch"}


def test_pods_have_a_tail_that_stays_and_services_have_none() -> None:
    manifest = listed(item("MASTER"), RuntimeId="ab12", name="a-name-that-is-longer-than-forty-characters-are")
    job, names = job_of(manifest), dialect_of(manifest).names
    master = Replica(MASTER, 0)

    assert names.service(job, master) == "a-name-that-is-longer-than-forty-charact-master-ab12-0"
    assert names.pod(job, master).startswith("a-name-that-is-longer-than-forty-charact-master-ab12-0-")
    assert len(names.pod(job, master)) == len(names.service(job, master)) + 6
    assert names.pod(job, master) == names.pod(job_of(manifest), master)


@pytest.mark.parametrize("replica", [Replica(MASTER, 0), Replica(PS, 0), Replica(WORKER, 0), Replica(WORKER, 1)])
def test_a_name_tells_the_replica_and_a_strangers_none(replica: Replica) -> None:
    manifest = cluster()
    job, names = job_of(manifest), dialect_of(manifest).names
    name = names.pod(job, replica)

    assert names.replica_of(job, name) == replica
    assert names.replica_of(job, names.service(job, replica)) == replica
    for other in (f"x{name}", f"{name}x", name[:-1], name.replace(job.runtime_id, "zzzz"), "", "j-", "j-worker-0"):
        assert names.replica_of(job, other) is None


@pytest.mark.parametrize("tail", ["a1b2c", "12345", "00000"])
@pytest.mark.parametrize("runtime_id", ["ab12", "1234", "a-1"])
def test_a_pod_that_an_operator_of_that_time_made_is_its_replica_whatever_its_tail(tail: str, runtime_id: str) -> None:
    manifest = cluster(RuntimeId=runtime_id)
    job, names = job_of(manifest), dialect_of(manifest).names
    deleted = replace(job, runtime_id="")

    for replica in (Replica(WORKER, 0), Replica(WORKER, 12)):
        name = f"{names.service(job, replica)}-{tail}"
        assert names.replica_of(job, name) == names.replica_of(deleted, name) == replica


def test_the_labels_are_those_of_its_time() -> None:
    manifest = cluster(RuntimeId="ab12")
    job, dialect = job_of(manifest), dialect_of(manifest)

    assert dialect.labels(job, Replica(WORKER, 1)) == {
        "kubeflow.org": "",
        "job_type": "WORKER",
        "runtime_id": "ab12",
        "tf_job_name": "j",
        "task_index": "1",
    }
    for of_all in (dialect.selector(job), dialect.worker_selector(job)):
        assert of_all.items() <= dialect.labels(job, Replica(WORKER, 0)).items()
    assert dialect.selector(job).items() <= dialect.labels(job, Replica(MASTER, 0)).items()


def test_g7_tf_config_has_bare_service_names() -> None:
    assert wired(cluster(RuntimeId="ab12"), Replica(WORKER, 1)).env == {
        "TF_CONFIG": '{"cluster":{"master":["j-master-ab12-0:2222"],"ps":["j-ps-ab12-0:2222"],'
        '"worker":["j-worker-ab12-0:2222","j-worker-ab12-1:2222"]},"task":{"type":"worker","index":1},'
        '"environment":"cloud"}'
    }
    assert wired(cluster(), Replica(WORKER, 1)).container == "tensorflow"
    assert wired(listed(), Replica(MASTER, 0)) is not None


def test_g8_a_default_server_is_told_the_cluster_by_its_command() -> None:
    command = wired(cluster(RuntimeId="ab12"), Replica(PS, 0)).command

    assert command[-7:] == [
        "/ps-server/grpc_tensorflow_server.py",
        "--cluster_spec",
        "master|j-master-ab12-0:2222,ps|j-ps-ab12-0:2222,worker|j-worker-ab12-0:2222;j-worker-ab12-1:2222",
        "--job_name",
        "ps",
        "--task_id",
        "0",
    ]
    assert wired(cluster(), Replica(WORKER, 0)).command == ()


def test_a_server_that_is_left_to_us_gets_a_container_beside_its_own() -> None:
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "monitor", "image": "m"}]}}
    job = job_of(listed(item("MASTER"), {"tfReplicaType": "PS", "template": own}, tfImage="tensorflow:2"))
    servers = job.replica_spec(PS)

    assert servers is not None
    assert servers.runs_provided_program
    assert servers.template["metadata"] == own["metadata"]
    assert [(each["name"], each["image"]) for each in servers.template["spec"]["containers"]] == [
        ("monitor", "m"),
        ("tensorflow", "tensorflow:2"),
    ]
    assert servers.template["spec"]["restartPolicy"] == "OnFailure"


def test_a_server_of_ones_own_stays_as_it_is() -> None:
    job = job_of(listed(item("MASTER"), item("PS")))
    servers = job.replica_spec(PS)

    assert servers is not None
    assert not servers.runs_provided_program
    assert servers.template == template()
    assert scripts_of(job) == []


def test_the_script_comes_in_a_config_map_that_the_servers_mount() -> None:
    job = job_of(cluster())
    (config_map,) = scripts_of(job)
    servers = job.replica_spec(PS)

    assert servers is not None
    assert servers.template["spec"]["volumes"] == [
        {"name": "ps-config-volume", "configMap": {"name": config_map["metadata"]["name"]}}
    ]
    assert config_map["metadata"]["name"].startswith(f"cm-ps-{job.runtime_id}-")
    assert "tf.train.Server" in config_map["data"]["grpc_tensorflow_server.py"]


def test_two_jobs_of_one_runtime_id_have_config_maps_of_their_own() -> None:
    first = cluster(RuntimeId="76no")
    second = {**first, "metadata": {**first["metadata"], "uid": "another"}}

    (one,), (other,) = scripts_of(job_of(first)), scripts_of(job_of(second))
    assert one["metadata"]["name"] != other["metadata"]["name"]


def test_what_is_written_back_is_what_its_readme_showed() -> None:
    seed = yaml.safe_load((MANIFESTS / "001-tf_job.yaml").read_text())
    seed["metadata"]["uid"] = UID

    spec = written_back(seed)["spec"]

    assert spec["tfImage"] == "tensorflow/tensorflow:1.3.0"
    assert len(spec["RuntimeId"]) == 4
    assert spec["replicaSpecs"] == [
        {"replicas": 1, "template": each["template"], "tfPort": 2222, "tfReplicaType": each["tfReplicaType"]}
        for each in seed["spec"]["replicaSpecs"][:2]
    ] + [
        {
            "replicas": 2,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "image": "tensorflow/tensorflow:1.3.0",
                            "name": "tensorflow",
                            "volumeMounts": [{"mountPath": "/ps-server", "name": "ps-config-volume"}],
                        }
                    ],
                    "restartPolicy": "OnFailure",
                }
            },
            "tfPort": 2222,
            "tfReplicaType": "PS",
        }
    ]


NOTHING: Any = None
templates = st.sampled_from(
    [
        NOTHING,
        {},
        template(),
        {"spec": {"containers": [{"name": "other", "image": "i"}]}},
        {"spec": {"containers": [], "restartPolicy": "Never", "nodeSelector": {"a": "b"}}},
        {"metadata": None, "spec": None},
        {"spec": {"containers": None, "volumes": None, "restartPolicy": None}},
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"spec": {"containers": [{"name": "other", "image": "i", "volumeMounts": None}], "volumes": None}},
        {"metadata": {"labels": {"a": "b"}}, "spec": {**template()["spec"], "restartPolicy": "OnFailure"}},
    ]
)
counts = st.none() | st.integers(0, 4)


@st.composite
def sound_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """As users wrote them, with everything that may be left out left out now and then."""
    old = draw(st.booleans())
    port, kind = ("tf_port", "tf_replica_type") if old else ("tfPort", "tfReplicaType")
    optional = st.none() | st.sampled_from([2222, 5000])
    items = [
        {kind: draw(st.sampled_from([None, "MASTER"])), "template": template(), port: draw(optional)},
        {kind: "WORKER", "template": template(), "replicas": draw(counts), port: draw(optional)},
        {kind: "PS", "template": draw(templates), "replicas": draw(counts)},
    ]
    spec = {
        "replica_specs" if old else "replicaSpecs": draw(st.permutations(items)),
        "tfImage": draw(st.sampled_from([None, "", "tensorflow/tensorflow:2.21.0"])),
        draw(st.sampled_from(["RuntimeId", "runtimeid"])): draw(st.sampled_from([None, "", "ab12"])),
        "schedulerName": draw(st.sampled_from([None, "", "default-scheduler"])),
        "tfReplicaSpecs": draw(st.sampled_from([None, {"Worker": {"replicas": 3}}])),
    }
    return {**listed(), "spec": spec}


@given(sound_jobs())
def test_reading_what_was_written_back_gives_the_same_job(manifest: dict[str, Any]) -> None:
    once = written_back(manifest)

    assert job_of(once) == job_of(manifest)
    assert written_back(once) == once
    assert (unknown(once), warnings(once)) == (unknown(manifest), warnings(manifest))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
words = st.sampled_from(["MASTER", "PS", "WORKER", "Worker"]) | anything
any_item = st.fixed_dictionaries(
    {},
    optional={
        "tfReplicaType": words,
        "tf_replica_type": words,
        "replicas": anything | st.integers(0, 3),
        "tfPort": anything | st.just(2222),
        "tf_port": anything,
        "template": anything | templates,
    },
)
any_spec = st.fixed_dictionaries(
    {"replicaSpecs": st.lists(any_item | anything, max_size=4) | anything},
    optional={
        "replica_specs": anything,
        "RuntimeId": anything,
        "runtimeid": anything,
        "tfImage": anything,
        "schedulerName": anything,
        "terminationPolicy": anything
        | st.fixed_dictionaries({"chief": st.fixed_dictionaries({"replicaName": words, "replicaIndex": anything})}),
        "tfReplicaSpecs": anything,
        "runPolicy": anything,
    },
)


@given(any_spec | anything)
def test_reading_never_raises_whatever_the_manifest_is(spec: Any) -> None:
    manifest = {**listed(), "spec": spec, "apiVersion": "kubeflow.org/v1alpha1"}

    taken = decode_and_validate(TENSORFLOW, manifest)

    assert (taken.job is None) == bool(taken.problems)
    if isinstance(taken.job, TrainingJob) and taken.job.runtime_id:
        assert job_of(written_back(manifest)) == taken.job


def test_the_first_releases_had_the_tensorboard_of_mlkube_io() -> None:
    board = {"logDir": "/logs", "volumes": [{"name": "logs", "emptyDir": {}}]}
    found = taken(cluster(tensorboard=board, tfImage="tensorflow/tensorflow:1.4.0"))

    assert (found.problems, found.unknown_fields) == ((), ())
    assert found.job is not None
    assert found.job.tensorboard is not None
    assert (found.job.tensorboard.log_dir, found.job.tensorboard.image) == ("/logs", "tensorflow/tensorflow:1.4.0")
    assert found.job.tensorboard.volumes == board["volumes"]


def test_a_tensorboard_that_is_null_is_none() -> None:
    found = taken(cluster(tensorboard=None))

    assert (found.problems, found.unknown_fields, found.warnings) == ((), (), ())
    assert found.job is not None
    assert found.job.tensorboard is None


def test_what_is_wrong_with_a_tensorboard_is_told_with_its_path() -> None:
    manifest = cluster(tensorboard={"serviceType": "Node", "folder": "/logs"})

    assert problems(manifest) == [
        "spec.tensorboard.logDir: is missing; write the directory of the summaries",
        ("spec.tensorboard.serviceType: unsupported value Node; write one of ClusterIP, NodePort, LoadBalancer"),
    ]
    assert [line.partition(":")[0] for line in unknown(manifest)] == ["spec.tensorboard.folder"]

"""A SharePod runs as the pod that its spec describes, under its own name, and its status is that of KubeShare."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.frameworks.sharepod.fields import ONLY_REPLICA
from tarragon.frameworks.sharepod.framework import SHAREPOD
from tarragon.job.model import CleanPodPolicy, RestartPolicy
from tarragon.kube.codec import format_time
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, share_of_template
from tarragon.plan.objects.logs import LogFormat
from tarragon.plan.objects.placement import Placement
from tarragon.plan.objects.progress import ProgressEndpoint
from tarragon.plan.objects.settings import OperatorSettings
from tests.frameworks.jobs import job_of, problems, unknown, warnings
from tests.plan.world import World

SHARE = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "1073741824"}
CUDA = {"name": "cuda", "image": "nvidia/cuda:9.0-base", "command": ["nvidia-smi", "-L"]}
UUID = "GPU-8d0f1a3c"

Json = dict[str, Any]


def sharepod(*containers: Json, name: str = "shp", metadata: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": name, "namespace": "n1", **(metadata or {})},
        "spec": {"containers": list(containers) or [CUDA], **spec},
    }


class PodWorld(World):
    """Its kubelet reports each container of the pod."""

    @property
    def pod(self) -> Json:
        return self.pods["shp"]

    @property
    def state(self) -> str:
        return str(self.tarragon["state"])

    def plays(self, phase: str, **containers: int | None) -> None:
        """Exit codes by container; None for one that runs."""
        ended = {"finishedAt": format_time(self.now), "message": "the last line"}
        states: dict[str, Json] = {
            name: {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Error", **ended}}
            for name, code in containers.items()
        }
        statuses = [{"name": name, "state": state, "restartCount": 0} for name, state in states.items()]
        self.reports(phase=phase, podIP="10.0.0.7", containerStatuses=statuses)

    def reports(self, **status: Any) -> None:
        self._set_pod("shp", status)

    def annotates(self, **metadata: Any) -> None:
        """Somebody changes the metadata of the pod."""
        changed = {**self.pod["metadata"], **metadata}
        self.pods["shp"] = self._stamped({**self.pod, "metadata": changed}, uid=changed["uid"])


def admitted(body: Json, settings: OperatorSettings | None = None) -> PodWorld:
    """With its pod, which no kubelet has seen yet."""
    world = PodWorld(body, settings)
    world.settle()
    world.admit()
    world.settle()
    return world


def running(body: Json) -> PodWorld:
    world = admitted(body)
    world.plays("Running", **{each["name"]: None for each in body["spec"]["containers"]})
    world.settle()
    return world


# ------------------------------------------------------------------------------------------------------------ reading


def test_its_spec_is_the_spec_of_a_pod_and_its_metadata_that_of_the_template() -> None:
    body = sharepod(metadata={"labels": {"app": "x"}, "annotations": SHARE}, nodeSelector={"disk": "ssd"})
    job = job_of(body)

    (pod,) = job.replica_specs
    assert pod.template == {"metadata": {"labels": {"app": "x"}, "annotations": SHARE}, "spec": body["spec"]}
    assert (pod.replicas, pod.restart_policy, job.chief) == (1, RestartPolicy.ALWAYS, ONLY_REPLICA)
    assert job.run_policy.clean_pod_policy is CleanPodPolicy.NONE
    share = share_of_template(pod.template)
    assert share is not None
    assert (share.request, share.limit, share.memory) == (500, 1000, 2**30)


def test_annotations_of_the_object_itself_are_not_those_of_its_pod() -> None:
    own = {
        LAST_APPLIED_ANNOTATION: "{}",
        "tarragon.dev/generation": "kubeshare.nthu/v1",
        "tarragon.dev/adopt": "true",
        "tarragon.dev/checkpoint-seconds": "30",
    }
    of_the_node = {"tarragon.dev/workdir": "/home/me"}
    (pod,) = job_of(sharepod(metadata={"annotations": {**own, **of_the_node, "team": "a"}})).replica_specs

    assert pod.template["metadata"] == {"annotations": {**of_the_node, "team": "a"}}


def test_without_gpu_annotations_it_is_an_ordinary_pod() -> None:
    (pod,) = job_of(sharepod()).replica_specs

    assert pod.template["metadata"] == {}
    assert share_of_template(pod.template) is None


def test_kubeshares_scheduler_is_no_other_scheduler() -> None:
    (pod,) = job_of(sharepod(schedulerName="kubeshare-scheduler")).replica_specs
    (of_another,) = job_of(sharepod(schedulerName="volcano")).replica_specs

    assert "schedulerName" not in pod.template["spec"]
    assert of_another.template["spec"]["schedulerName"] == "volcano"


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_the_restart_policy_is_that_of_the_pod(policy: str) -> None:
    body = sharepod(restartPolicy=policy)

    assert job_of(body).replica_specs[0].restart_policy.value == policy
    assert admitted(body).pod["spec"]["restartPolicy"] == policy


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (sharepod({"name": "a"}), "spec.containers[0].image: is missing; say which image the container runs"),
        (
            sharepod(restartPolicy="ExitCode"),
            'spec.restartPolicy: must be Always, OnFailure or Never, not the text "ExitCode"',
        ),
        ({**sharepod(), "spec": {}}, "spec.containers: is missing"),
        ({**sharepod(), "spec": None}, "spec: is missing; write the spec of a pod"),
        (
            sharepod({**CUDA, "ports": [{"containerPort": 70000}]}),
            "spec.containers[0].ports[0].containerPort: must be from 1 to 65535, not 70000",
        ),
        (
            sharepod(metadata={"annotations": {**SHARE, "kubeshare/gpu_limit": "0.3"}}),
            'metadata.annotations["kubeshare/gpu_limit"]: must be 0.5 or more, as kubeshare/gpu_request is, not 0.3',
        ),
        (sharepod(metadata={"annotations": {"a": 1}}), "metadata.annotations.a: must be text, not 1"),
    ],
    ids=["no image", "a policy", "no containers", "no spec", "a port", "a share", "an annotation"],
)
def test_what_can_not_run_is_a_problem_with_the_path_in_the_sharepod(body: Json, problem: str) -> None:
    assert [each.partition("; write it")[0] for each in problems(body)] == [problem]


def test_a_name_may_be_any_that_a_pod_may_have() -> None:
    assert problems(sharepod(name="0.a-b")) == []
    (problem,) = problems(sharepod(name="A_b"))
    assert problem.startswith("metadata.name: a lowercase RFC 1123 subdomain must ")


def test_policies_of_other_kinds_are_unknown_fields() -> None:
    assert [each.partition(":")[0] for each in unknown(sharepod(runPolicy={}, backoffLimit=3))] == [
        "spec.runPolicy",
        "spec.backoffLimit",
    ]


def test_annotations_that_only_nodes_read_cause_no_warning() -> None:
    names = ("workdir", "volumes", "environments", "gpus", "vgpu", "gpu-uuid", "hollow-seconds")

    assert warnings(sharepod(metadata={"annotations": {f"tarragon.dev/{name}": "1" for name in names}})) == []


# -------------------------------------------------------------------------------------------------------------- the pod


def test_the_pod_has_the_name_the_labels_and_the_annotations_of_the_sharepod_and_no_service() -> None:
    last = {LAST_APPLIED_ANNOTATION: json.dumps(sharepod())}
    world = admitted(sharepod(metadata={"labels": {"app": "x"}, "annotations": {**SHARE, **last}}))

    metadata = world.pod["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("n1", "shp")
    assert metadata["labels"] == {"app": "x", "tarragon.dev/sharepod": "shp"}
    assert metadata["annotations"] == SHARE
    (owner,) = metadata["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("kubeshare.nthu/v1", "SharePod", "shp")
    assert owner["controller"] is True
    assert world.services == {}


def test_a_name_that_is_too_long_for_a_label_is_shortened_there_alone() -> None:
    jobs = [job_of(sharepod(name="a" * 200 + end)) for end in ("", "b")]
    first, second = (SHAREPOD.dialects[0].selector(job)["tarragon.dev/sharepod"] for job in jobs)

    assert first != second
    assert len(first) == len(second) == 63
    assert [SHAREPOD.dialects[0].names.pod(job, ONLY_REPLICA) for job in jobs] == [job.key.name for job in jobs]


def test_its_containers_run_as_they_are_written_whatever_replicas_of_trainings_get() -> None:
    endpoint = ProgressEndpoint(url="https://tarragon.tarragon-system.svc:8443", authority="PEM")
    settings = OperatorSettings(log_format=LogFormat.JSON, progress=endpoint)
    spec = admitted(sharepod(hostNetwork=True), settings).pod["spec"]

    assert spec["containers"] == [{**CUDA, "terminationMessagePolicy": "FallbackToLogsOnError"}]
    assert spec.keys() == {"containers", "hostNetwork", "nodeName", "restartPolicy"}


def test_the_node_that_the_sharepod_names_is_where_its_pod_goes() -> None:
    body = sharepod(nodeName="node-b")

    assert job_of(body).replica_specs[0].template["spec"]["nodeName"] == "node-b"
    by_kube_scheduler = PodWorld(body, OperatorSettings(placement=Placement.AFFINITY))
    by_kube_scheduler.settle()
    by_kube_scheduler.admit()
    by_kube_scheduler.settle()
    spec = by_kube_scheduler.pod["spec"]
    assert "nodeName" not in spec
    assert "nodeAffinity" in spec["affinity"]


def test_a_pod_that_vanishes_is_made_again() -> None:
    world = running(sharepod(restartPolicy="Never"))
    world.vanish("shp")
    world.settle()

    assert world.created["shp"] == 2
    assert world.state == "Restarting"


def test_a_disrupted_pod_is_replaced_whatever_its_policy() -> None:
    world = running(sharepod(restartPolicy="Never"))
    world.disrupt("shp")
    world.settle()

    assert world.created["shp"] == 2


@pytest.mark.parametrize(
    ("policy", "phase", "code", "state"),
    [
        ("Never", "Succeeded", 0, "Succeeded"),
        ("Never", "Failed", 3, "Failed"),
        ("OnFailure", "Succeeded", 0, "Succeeded"),
        ("OnFailure", "Failed", 3, "Failed"),
        ("Always", "Failed", 3, "Failed"),
    ],
)
def test_when_its_pod_has_ended_it_has_ended_and_the_pod_stays_and_is_not_made_again(
    policy: str, phase: str, code: int, state: str
) -> None:
    world = running(sharepod(restartPolicy=policy))
    world.plays(phase, cuda=code)
    world.settle()

    assert (world.state, world.created["shp"]) == (state, 1)
    assert "deletionTimestamp" not in world.pod["metadata"]
    world.vanish("shp")
    world.settle()
    assert (world.state, world.created["shp"]) == (state, 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_pod_runs_until_all_of_its_containers_have_ended(first: int) -> None:
    world = running(sharepod(CUDA, {**CUDA, "name": "other"}, restartPolicy="Never"))
    world.plays("Running", cuda=first, other=None)
    world.settle()
    assert world.state == "Running"

    world.plays("Failed", cuda=first, other=7)
    world.settle()
    assert world.state == "Failed"


def test_a_failure_tells_which_container_failed() -> None:
    world = running(sharepod(CUDA, {**CUDA, "name": "other"}, restartPolicy="Never"))
    world.plays("Failed", cuda=0, other=7)
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "pod-0 failed with exit code 7: container other: the last line"
    assert failed.reason == "SharePodFailed"


def test_a_pod_that_ended_for_no_container_failed_for_the_reason_of_the_pod() -> None:
    world = running(sharepod())
    world.reports(phase="Failed", reason="DeadlineExceeded", message="too long")
    world.settle()

    assert world.state == "Failed"
    assert "DeadlineExceeded" in world.tarragon["message"]


def test_a_container_that_the_kubelet_starts_again_is_a_restart_and_no_end() -> None:
    world = running(sharepod())
    last = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": format_time(world.now)}}
    status = {"name": "cuda", "state": {"running": {}}, "restartCount": 2, "lastState": last}
    world.reports(phase="Running", containerStatuses=[status])
    world.settle()

    assert world.state == "Running"
    assert world.tarragon["restarts"]["total"] == 2
    assert world.created["shp"] == 1


# ----------------------------------------------------------------------------------------------------------- the status


def test_the_status_mirrors_the_pod_as_kubeshare_wrote_it() -> None:
    world = running(sharepod(metadata={"annotations": SHARE}))
    status = world.job["status"]

    assert status["PodStatus"] == world.pod["status"]
    assert status["PodObjectMeta"] == world.pod["metadata"]
    assert (status["BoundDeviceID"], status["PodManagerPort"]) == ("", 0)
    assert status.keys() == {"PodStatus", "PodObjectMeta", "BoundDeviceID", "PodManagerPort", "conditions", "tarragon"}


def test_the_bound_device_is_what_the_pod_is_annotated_with() -> None:
    world = running(sharepod(metadata={"annotations": SHARE}))
    world.annotates(annotations={**SHARE, GPU_UUID_ANNOTATION: UUID}, managedFields=[{}])
    world.settle()

    assert world.job["status"]["BoundDeviceID"] == UUID
    assert "managedFields" not in world.job["status"]["PodObjectMeta"]


def test_a_pod_is_read_once_for_each_of_its_versions() -> None:
    world = running(sharepod())

    assert world.observed().complete_pod is None
    world.plays("Running", cuda=None)
    assert world.observed().complete_pod == world.pod


def test_while_there_is_no_pod_the_status_shows_none() -> None:
    world = running(sharepod())
    world.vanish("shp")
    step = world.step()

    assert step.creates
    assert "PodStatus" not in world.job["status"]
    assert world.job["status"]["BoundDeviceID"] == ""


def test_when_it_has_ended_the_status_keeps_the_last_of_its_pod() -> None:
    world = running(sharepod(restartPolicy="Never"))
    world.plays("Succeeded", cuda=0)
    world.settle()
    last = world.job["status"]["PodStatus"]
    world.vanish("shp")
    world.settle()

    assert world.job["status"]["PodStatus"] == last
    assert last["phase"] == "Succeeded"


def test_a_status_that_kubeshare_wrote_without_a_pod_is_taken_over() -> None:
    empty = {"PodStatus": None, "PodObjectMeta": None, "BoundDeviceID": "", "PodManagerPort": 0}
    world = PodWorld({**sharepod(), "status": empty})
    world.settle()

    assert world.state == "Waiting"


def test_a_sharepod_that_kubeshare_has_started_is_left_to_it_until_it_is_handed_over() -> None:
    started = {"PodStatus": {"phase": "Running"}, "BoundDeviceID": UUID, "PodManagerPort": 50051}
    left = PodWorld({**sharepod(), "status": started})
    left.step()
    taken = PodWorld({**sharepod(metadata={"annotations": {"tarragon.dev/adopt": "true"}}), "status": started})
    taken.settle()

    assert left.job["status"] == started
    assert taken.job["status"]["PodManagerPort"] == 0
    assert taken.state == "Waiting"


def test_an_invalid_sharepod_fails_with_kubeshares_word_for_it_and_the_fields_of_a_status() -> None:
    world = PodWorld(sharepod({"name": "cuda"}))
    world.settle()

    assert world.state == "Failed"
    assert world.conditions() == {"Failed": "ErrValueError"}
    assert world.job["status"].keys() == {"conditions", "tarragon"}


def test_beside_kubeshare_nothing_is_done() -> None:
    world = PodWorld(sharepod())
    world.settings = replace(world.settings, other_managers={"SharePod": "KubeShare"})
    world.step()

    assert "status" not in world.job
    assert world.events[0].message.startswith("left to KubeShare; ")


# -------------------------------------------------------------------------------------------------------------- the CRD


def test_the_crd_is_kubeshares_with_a_status_subresource_and_no_scale() -> None:
    crd: Any = SHAREPOD.crd()

    assert crd["metadata"]["name"] == "sharepods.kubeshare.nthu"
    assert crd["spec"]["names"]["shortNames"] == ["shp"]
    (version,) = crd["spec"]["versions"]
    assert (version["name"], version["subresources"]) == ("v1", {"status": {}})
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    assert fields["spec"].keys() == {"type", "description", "x-kubernetes-preserve-unknown-fields"}
    columns = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert [*columns] == ["Status", "GPU", "Restarts", "Age", "Reason", "Message"]
    assert columns["GPU"] == ".metadata.annotations.kubeshare/gpu_request"

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.frameworks.tensorflow.replica_types import CHIEF, PS
from tarragon.job.model import (
    CleanPodPolicy,
    ElasticPolicy,
    RestartPolicy,
    SchedulingPolicy,
    SuccessPolicy,
)
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.frameworks.jobs import (
    dialect_of,
    elastic,
    job_of,
    problems,
    taken,
    template,
    tfjob,
    unknown,
    warnings,
    worker,
)

MANIFESTS = Path(__file__).parent.parent / "data" / "manifests"
WORKER_PATH = "spec.tfReplicaSpecs.Worker"


def test_what_is_not_written_has_the_defaults_of_the_generation() -> None:
    (group,) = job_of(tfjob({"Worker": worker()})).replica_specs

    assert (group.replicas, group.restart_policy, group.port) == (1, RestartPolicy.NEVER, 2222)
    assert job_of(tfjob(runPolicy={})).run_policy.clean_pod_policy is CleanPodPolicy.NONE
    assert job_of(tfjob(backoffLimit=3)).run_policy.clean_pod_policy is CleanPodPolicy.RUNNING


def test_everything_that_is_written_is_read() -> None:
    job = job_of(
        tfjob(
            {"Chief": 1, "Worker": worker(replicas=3, restartPolicy="ExitCode")},
            successPolicy="AllWorkers",
            enableDynamicWorker=True,
            runPolicy={
                "cleanPodPolicy": "All",
                "ttlSecondsAfterFinished": 0,
                "activeDeadlineSeconds": 3600,
                "backoffLimit": 4,
                "suspend": True,
                "managedBy": "kueue.x-k8s.io/multikueue",
                "schedulingPolicy": {
                    "queue": "q",
                    "priorityClass": "high",
                    "minAvailable": 2,
                    "minResources": {"cpu": "2"},
                    "scheduleTimeoutSeconds": 60,
                },
            },
        )
    )

    policy = job.run_policy
    assert [group.type for group in job.replica_specs] == [CHIEF, WORKER]
    assert job.requested_size() == {CHIEF: 1, WORKER: 3}
    assert job.success_policy is SuccessPolicy.ALL_WORKERS
    assert [group.may_fail for group in job.replica_specs] == [False, True]
    assert (policy.clean_pod_policy, policy.ttl_seconds_after_finished, policy.active_deadline_seconds) == (
        CleanPodPolicy.ALL,
        0,
        3600,
    )
    assert (policy.backoff_limit, policy.suspend, policy.managed_by) == (4, True, "kueue.x-k8s.io/multikueue")
    assert policy.scheduling_policy == SchedulingPolicy(
        queue="q", priority_class="high", min_available=2, min_resources={"cpu": "2"}, schedule_timeout_seconds=60
    )


@pytest.mark.parametrize("spelling", ["Worker", "worker", "WORKER", "wOrKeR"])
def test_replica_types_are_read_in_any_capitals(spelling: str) -> None:
    assert job_of(tfjob({spelling: 2})).requested_size() == {WORKER: 2}


def test_null_and_missing_are_one() -> None:
    job = tfjob({"Worker": worker(replicas=None, restartPolicy=None)}, runPolicy=None, successPolicy=None)

    assert job_of(job) == job_of(tfjob({"Worker": worker()}))


@pytest.mark.parametrize("file", sorted(MANIFESTS.glob("002-dragon-*.yaml")), ids=lambda path: path.stem)
def test_the_manifests_that_came_with_dragon_are_accepted(file: Path) -> None:
    found = taken(yaml.safe_load(file.read_text()))

    assert (list(found.problems), list(found.unknown_fields), list(found.warnings)) == ([], [], [])
    assert found.job is not None
    assert found.job.elastic_policy == ElasticPolicy(1, 4)
    assert found.job.requested_size() == {PS: 1, WORKER: 4}
    assert found.job.run_policy.clean_pod_policy is CleanPodPolicy.ALL


@pytest.mark.parametrize(
    ("replicas", "bounds", "wish"),
    [(2, (1, 4), 2), (9, (1, 4), 4), (1, (2, 4), 2), (3, (None, 5), 3), (3, (2, None), 3)],
)
def test_the_wish_of_an_elastic_job_stays_within_its_bounds(
    replicas: int, bounds: tuple[int | None, int | None], wish: int
) -> None:
    job = job_of(tfjob({"Worker": replicas}, **elastic(*bounds)))

    assert job.requested_size() == {WORKER: wish}
    assert job.elastic_policy == ElasticPolicy(bounds[0] or replicas, bounds[1] or replicas)


def test_a_wish_beyond_the_bounds_is_told() -> None:
    assert warnings(tfjob({"Worker": 9}, **elastic(1, 4))) == [
        f"{WORKER_PATH}.replicas: 9 is outside the allowed range of 1 to 4: the job requests 4"
    ]


def test_of_flat_and_nested_policies_the_nested_ones_win_and_the_user_is_told() -> None:
    job = tfjob(runPolicy={"cleanPodPolicy": "All"}, cleanPodPolicy="None", backoffLimit=3)

    policy = job_of(job).run_policy

    assert (policy.clean_pod_policy, policy.backoff_limit) == (CleanPodPolicy.ALL, 3)
    assert warnings(job) == [
        (
            "spec.cleanPodPolicy: has no effect, because spec.runPolicy.cleanPodPolicy overrides it; "
            "remove one of the two"
        ),
        "spec.backoffLimit: should be in spec.runPolicy, but has an effect; move it to spec.runPolicy.backoffLimit",
    ]


def test_equal_flat_and_nested_policies_are_fine() -> None:
    """Training-operator copied one to the other in MPIJobs."""
    assert warnings(tfjob(runPolicy={"cleanPodPolicy": "All"}, cleanPodPolicy="All")) == []


def test_a_restart_policy_in_the_template_is_overwritten_and_the_user_is_told() -> None:
    alone = {**template(), "spec": {**template()["spec"], "restartPolicy": "OnFailure"}}

    assert warnings(tfjob({"Worker": {"template": alone}})) == [
        (
            f"{WORKER_PATH}.template.spec.restartPolicy: OnFailure has no effect: the pods get Never; "
            f"write it as {WORKER_PATH}.restartPolicy"
        )
    ]
    assert warnings(tfjob({"Worker": {"template": alone, "restartPolicy": "OnFailure"}})) == []


def test_a_deciding_replica_that_always_restarts_is_told_of() -> None:
    assert warnings(tfjob({"Worker": worker(restartPolicy="Always")})) == [
        (
            f"{WORKER_PATH}.restartPolicy: Always restarts the replica even after success, so that the job never ends; "
            "write OnFailure"
        )
    ]
    assert warnings(tfjob({"Worker": 1, "PS": worker(restartPolicy="Always")})) == []


MANY: dict[str, Any] = {"max-instances": 10**9}
WRONG_SHAPES: list[tuple[dict[str, Any], list[str]]] = [
    (tfjob({"Worker": worker(replicas=-1)}), [f"{WORKER_PATH}.replicas: must be 0 or more, not -1"]),
    (
        tfjob({"Worker": worker(replicas="3")}),
        [f'{WORKER_PATH}.replicas: must be a whole number, not the text "3"; write 3 without quotes'],
    ),
    (tfjob({"Worker": worker(replicas=True)}), [f"{WORKER_PATH}.replicas: must be a whole number, not true"]),
    (tfjob({"Worker": worker(replicas=2.0)}), [f"{WORKER_PATH}.replicas: must be a whole number, not 2.0; write 2"]),
    (tfjob({"Worker": worker(replicas=10**9)}), [f"{WORKER_PATH}.replicas: must be 100000 or less, not 1000000000"]),
    (
        tfjob({"Worker": worker()}, **MANY),
        ["spec.max-instances: must be 100000 or less, not 1000000000"],
    ),
    (
        tfjob({"Worker": worker(replicas=10**5000)}),
        [f"{WORKER_PATH}.replicas: must be 100000 or less, not a number of more than 30 digits"],
    ),
    (
        tfjob({"Worker": worker(restartPolicy="always")}),
        [
            (
                f'{WORKER_PATH}.restartPolicy: must be Always, OnFailure, Never or ExitCode, not the text "always"; '
                "did you mean Always?"
            )
        ],
    ),
    (tfjob({"Worker": {}}), [f"{WORKER_PATH}.template: is missing; add a pod template"]),
    (tfjob({"Worker": None}), [f"{WORKER_PATH}.template: is missing; add a pod template"]),
    (tfjob({"Worker": [1]}), [f"{WORKER_PATH}: must be a map of fields, not a list"]),
    (tfjob({"Worker": worker(template="x")}), [f'{WORKER_PATH}.template: must be a map of fields, not the text "x"']),
    (tfjob({"Workr": 1, "Chief": 1}), ["spec.tfReplicaSpecs.Workr: unknown replica type; did you mean Worker?"]),
    (
        tfjob({"Trainer": 1, "Chief": 1}),
        ["spec.tfReplicaSpecs.Trainer: unknown replica type; write one of Chief, Master, PS, Worker, Evaluator"],
    ),
    (
        tfjob({"Workr": worker(replicas=-1)}),
        [
            "spec.tfReplicaSpecs.Workr: unknown replica type; did you mean Worker?",
            "spec.tfReplicaSpecs.Workr.replicas: must be 0 or more, not -1",
        ],
    ),
    (
        tfjob({"Trainer": {}}),
        [
            "spec.tfReplicaSpecs.Trainer: unknown replica type; write one of Chief, Master, PS, Worker, Evaluator",
            "spec.tfReplicaSpecs.Trainer.template: is missing; add a pod template",
        ],
    ),
    (
        tfjob({"Worker": 1, "worker": 1}),
        ["spec.tfReplicaSpecs.worker: is the same replica type as spec.tfReplicaSpecs.Worker; write each type once"],
    ),
    (tfjob(runPolicy=[]), ["spec.runPolicy: must be a map of fields, not a list"]),
    (tfjob(runPolicy={"backoffLimit": -1}), ["spec.runPolicy.backoffLimit: must be 0 or more, not -1"]),
    (
        tfjob(ttlSecondsAfterFinished="soon"),
        ['spec.ttlSecondsAfterFinished: must be a whole number, not the text "soon"'],
    ),
    (
        tfjob(runPolicy={"suspend": "true"}),
        ['spec.runPolicy.suspend: must be true or false, not the text "true"; write true without quotes'],
    ),
    (tfjob(successPolicy="All"), ['spec.successPolicy: must be AllWorkers, not the text "All"']),
    ({**tfjob(), "spec": None}, ["spec: is missing; TFJobs need spec.tfReplicaSpecs"]),
    ({**tfjob(), "spec": "x"}, ['spec: must be a map of fields, not the text "x"']),
    (
        {**tfjob(), "spec": {}},
        ["spec.tfReplicaSpecs: is missing; define the replicas of the job"],
    ),
    ({**tfjob(), "spec": {"tfReplicaSpecs": [3]}}, ["spec.tfReplicaSpecs: must be a map of fields, not a list"]),
    ({**tfjob(), "metadata": {}}, ["metadata.name: is missing; give the job a name"]),
    ({**tfjob(), "metadata": {"name": ""}}, ["metadata.name: is empty; give the job a name"]),
    (
        {**tfjob(), "metadata": {"name": "a", "labels": {"size": 3}}},
        ['metadata.labels.size: must be text, not 3; write it in quotes: "3"'],
    ),
]


@pytest.mark.parametrize(("manifest", "messages"), WRONG_SHAPES, ids=[messages[0][:60] for _, messages in WRONG_SHAPES])
def test_a_wrong_shape_is_told_with_its_path_and_a_remedy(manifest: dict[str, Any], messages: list[str]) -> None:
    assert problems(manifest) == messages


def test_all_faults_are_told_at_once() -> None:
    job = tfjob(
        {"Worker": worker(replicas="two", template=template(image=7)), "PS": worker(replicas=-2)},
        name="Dist",
        runPolicy={"backoffLimit": -1},
    )

    assert [problem.partition(":")[0] for problem in problems(job)] == [
        "spec.tfReplicaSpecs.Worker.replicas",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].image",
        "spec.tfReplicaSpecs.PS.replicas",
        "spec.runPolicy.backoffLimit",
        "metadata.name",
    ]


UNKNOWN_FIELDS: list[tuple[dict[str, Any], str]] = [
    (tfjob(clenPodPolicy="All"), "spec.clenPodPolicy: unknown field; did you mean cleanPodPolicy?"),
    (tfjob(suspend=True), "spec.suspend: unknown field; move it to spec.runPolicy.suspend"),
    (tfjob(runPolicy={"backofLimit": 1}), "spec.runPolicy.backofLimit: unknown field; did you mean backoffLimit?"),
    (tfjob({"Worker": worker(replica=1)}), f"{WORKER_PATH}.replica: unknown field; did you mean replicas?"),
    (
        tfjob({"Worker": worker(zebra=1)}),
        f"{WORKER_PATH}.zebra: unknown field; known fields: replicas, restartPolicy, template",
    ),
    (
        tfjob({"Worker": worker(template=template(comand=["x"]))}),
        f"{WORKER_PATH}.template.spec.containers[0].comand: unknown field; did you mean command?",
    ),
    (
        tfjob({"Worker": worker(template={**template(), "spce": {}})}),
        f"{WORKER_PATH}.template.spce: unknown field; did you mean spec?",
    ),
    ({**tfjob(), "spek": {}}, "spek: unknown field; did you mean spec?"),
]


@pytest.mark.parametrize(("manifest", "message"), UNKNOWN_FIELDS, ids=[message for _, message in UNKNOWN_FIELDS])
def test_an_unknown_field_gets_the_nearest_name_and_does_not_stop_the_job(
    manifest: dict[str, Any], message: str
) -> None:
    assert unknown(manifest) == [message]
    assert problems(manifest) == []


def test_fields_of_older_generations_are_told_to_have_no_effect() -> None:
    assert warnings(tfjob(tfImage="x")) == [
        "spec.tfImage: has no effect with spec.tfReplicaSpecs: it belongs to an older generation; remove it"
    ]


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"env": [{"name": "A", "value": 3}]}, 'env[0].value: must be text, not 3; write it in quotes: "3"'),
        ({"env": [{"name": "A", "value": True}]}, 'env[0].value: must be text, not true; write it in quotes: "true"'),
        ({"env": [{"value": "x"}]}, "env[0].name: is missing"),
        ({"env": {"A": "x"}}, "env: must be a list, not a map; begin each item with a dash"),
        ({"command": "a b"}, 'command: must be a list, not the text "a b"; begin each item with a dash'),
        ({"args": ["--steps", 3]}, 'args[1]: must be text, not 3; write it in quotes: "3"'),
        ({"args": ["a", None]}, "args[1]: is empty; remove the dash, or add a value"),
        ({"ports": [{"name": "x"}]}, "ports[0].containerPort: is missing"),
        (
            {"resources": {"limits": {"cpu": "four"}}},
            'resources.limits.cpu: must be a quantity such as 500m, 2 or 8Gi, not the text "four"',
        ),
        (
            {"resources": {"limits": {"memory": "-1Gi"}}},
            'resources.limits.memory: must be a quantity such as 500m, 2 or 8Gi, not the text "-1Gi"',
        ),
        ({"volumeMounts": [{"name": "d"}]}, "volumeMounts[0].mountPath: is missing"),
        ({"readinessProbe": {"httpGet": {"port": 1.5}}},
         "readinessProbe.httpGet.port: must be a whole number or text, not 1.5"),
        ({"securityContext": {"privileged": "no"}},
         'securityContext.privileged: must be true or false, not the text "no"'),
    ],
)  # fmt: skip
def test_a_template_is_checked_to_its_last_field(container: dict[str, Any], message: str) -> None:
    job = tfjob({"Worker": worker(template=template(**container))})

    assert problems(job) == [f"{WORKER_PATH}.template.spec.containers[0].{message}"]


def test_a_job_with_a_generated_name_is_judged_by_what_the_name_will_be() -> None:
    job = {**tfjob(), "metadata": {"generateName": "a-job-"}}

    assert job_of(job).key.name == "a-job-xxxxx"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
NAMES = """metadata name namespace labels annotations managedFields spec tfReplicaSpecs Worker worker PS Chief Master
    Evaluator replicas restartPolicy template containers initContainers env image command ports resources limits
    requests cpu runPolicy cleanPodPolicy backoffLimit schedulingPolicy minResources max-instances min-instances
    replicaSpecs apiVersion kind tarragon.dev/generation""".split()  # noqa: SIM905 - a list of so many names is best read without quotes
shaped_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.text(max_size=4) | st.sampled_from(["3", "1Gi", "All"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=30,
)


@given(json_values)
def test_no_spec_whatsoever_raises(spec: Any) -> None:
    found = decode_and_validate(TENSORFLOW, {**tfjob(), "spec": spec})

    assert found.problems or found.job is not None


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "apiVersion", "kind"]), shaped_values))
def test_no_manifest_whatsoever_raises(manifest: dict[str, Any]) -> None:
    found = decode_and_validate(TENSORFLOW, manifest)

    assert (found.job is None) == bool(found.problems)


@given(st.dictionaries(st.sampled_from(NAMES), shaped_values))
def test_no_replica_whatsoever_raises(replica: dict[str, Any]) -> None:
    found = decode_and_validate(TENSORFLOW, tfjob({"Worker": replica, "PS": {**worker(), **replica}}))

    assert (found.job is None) == bool(found.problems)


def test_a_job_that_passes_has_a_dialect_that_reads_it_alike_ever_after() -> None:
    job = tfjob({"PS": 1, "Worker": 2}, cleanPodPolicy="All")
    name = dialect_of(job).name
    marked = {**job, "metadata": {**job["metadata"], "annotations": {"tarragon.dev/generation": name}}}

    assert job_of(marked).run_policy == job_of(job).run_policy

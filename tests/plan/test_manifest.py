from __future__ import annotations

import pytest

from tarragon.base.errors import Problem
from tarragon.frameworks.unsupported_kinds import RUNS
from tarragon.plan.input.manifest import ManifestObject, only_job, read_manifest

JOB = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {}\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: scripts}\n"


def problem_texts(text: str) -> list[str]:
    return [str(problem) for problem in read_manifest(text).problems]


def test_a_job_travels_with_what_it_needs() -> None:
    documents = read_manifest(f"---\n{CONFIG_MAP}---\n\n---\n{JOB}")

    assert [document.name for document in documents.jobs] == ["TFJob a"]
    assert [document.name for document in documents.companions] == ["ConfigMap scripts"]
    assert documents.problems == ()


def test_a_list_is_taken_apart() -> None:
    text = "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s}\n"

    assert [document.name for document in read_manifest(text).companions] == ["Secret s"]


def test_json_is_read_as_well() -> None:
    job = '{"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "a"}}'

    assert [document.name for document in read_manifest(job).jobs] == ["TFJob a"]


FAULTS = [
    ("", [f"the manifest is empty; add a job: {RUNS}"]),
    ("# nothing\n---\n", [f"the manifest is empty; add a job: {RUNS}"]),
    (
        "a: b: c",
        [
            (
                "line 1: invalid YAML: mapping values are not allowed in this context; "
                "put text that contains a colon in quotes, or check the indentation"
            )
        ],
    ),
    ("a:\n\t- b", ["line 2: begins with a tab; YAML must be indented with spaces"]),
    (
        "a: 'open",
        ["line 1: invalid YAML: found unexpected end of stream; close the quotes and brackets that were opened"],
    ),
    (
        "metadata:\n  name: {{ .Values.name }}\n",
        ["line 2: invalid YAML; it looks like a Helm template; render it first: helm template"],
    ),
    ("a: \x00", ["line 1: has a character that YAML does not allow; is it a binary file?"]),
    ("- a\n- b", ["line 1: must be a Kubernetes object, not a list"]),
    (
        "just words",
        ['line 1: must be a Kubernetes object, not the text "just words"; a script\'s name ends in .py or .sh'],
    ),
    (f"{CONFIG_MAP}metadata: {{name: other}}\n", ["line 4: duplicate key metadata, first used in line 3"]),
    (f"{CONFIG_MAP}data: !python/object {{}}\n", ["line 4: unsupported tag !python/object; remove it"]),
    (
        f"{JOB}---\n{JOB}",
        ["line 6: TFJob a is already defined in line 1; rename one of them"],
    ),
    (JOB.replace("TFJob", "TFjob"), ["line 2: kind: unknown kind TFjob; did you mean TFJob?"]),
    (
        JOB.replace("/v1", "/v1beta3"),
        ["line 1: apiVersion: TFJob has no version kubeflow.org/v1beta3; write kubeflow.org/v1beta2"],
    ),
    (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
        [
            (
                "line 2: kind: Deployment is neither a job nor a kind that may accompany one; "
                "besides jobs, a manifest may contain ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount"
            )
        ],
    ),
    (
        CONFIG_MAP.replace("ConfigMap", "Configmap"),
        ["line 2: kind: Configmap is neither a job nor a kind that may accompany one; did you mean ConfigMap?"],
    ),
    (CONFIG_MAP.replace("v1", "v2"), ['line 1: apiVersion: must be v1 for a ConfigMap, not the text "v2"; write v1']),
    ("apiVersion: v1\nkind: ConfigMap\n", ["line 1: metadata.name: is missing; give the ConfigMap a name"]),
    ("spec: {}\n", ["line 1: apiVersion: is missing", "line 1: kind: is missing"]),
    ("kind: List\nitems: x\n", ['items: must be a list, not the text "x"; begin each item with a dash']),
    ("kind: List\nitems:\n- 3\n", ["line 3: must be a Kubernetes object, not 3"]),
]


@pytest.mark.parametrize(("text", "words"), FAULTS, ids=[words[0][:60] for _, words in FAULTS])
def test_what_is_wrong_with_a_file_is_told_with_the_line(text: str, words: list[str]) -> None:
    assert problem_texts(text) == words


def test_the_faults_of_several_documents_are_told_at_once() -> None:
    assert len(problem_texts(f"{JOB.replace('TFJob', 'TFjob')}---\n- x\n---\n{CONFIG_MAP}a: 1\na: 2\n")) == 3


def test_what_stands_before_a_fault_of_yaml_is_still_read() -> None:
    documents = read_manifest(f"{JOB}---\na: b: c\n")

    assert len(documents.jobs) == 1
    assert len(documents.problems) == 1


def test_a_problem_of_the_job_is_placed_in_its_line() -> None:
    text = (
        f"{CONFIG_MAP}---\napiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata:\n  name: a\nspec:\n  tfReplicaSpecs:\n"
    )
    text += (
        "    Worker:\n      replicas: -1\n      template:\n        spec:\n          containers:\n          - name: x\n"
    )
    (job,) = read_manifest(text).jobs

    def line(path: str) -> str:
        return f"line {job.with_line(Problem(path, '')).line}"

    assert line("spec.tfReplicaSpecs.Worker.replicas") == "line 12"
    assert line("spec.tfReplicaSpecs.Worker.template.spec.containers[0].image") == "line 16"
    assert line("spec.tfReplicaSpecs.Worker") == "line 11"
    assert line("spec.runPolicy.backoffLimit") == "line 9"
    assert line("") == "line 5"


def test_a_command_for_one_job_wants_exactly_one() -> None:
    one = only_job(read_manifest(JOB))
    assert isinstance(one, ManifestObject)

    assert str(only_job(read_manifest(CONFIG_MAP))) == f"there is no job in the manifest; add a job: {RUNS}"
    two = read_manifest(f"{JOB}---\n{JOB.replace('name: a', 'name: b')}")
    assert str(only_job(two)) == (
        "there are 2 jobs in the manifest: TFJob a in line 1, TFJob b in line 6; keep only one of them"
    )


JOBS = [
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v1", "XGBoostJob"),
    ("xgboostjob.kubeflow.org/v1alpha1", "XGBoostJob"),
    ("kubeflow.org/v1", "PaddleJob"),
    ("kubeflow.org/v1beta1", "MXJob"),
    ("kubeflow.org/v1alpha1", "ChainerJob"),
    ("kubeflow.org/v1alpha1", "Caffe2Job"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"),
    ("v1", "pytorchjob"),
]
SWEEPS = [
    ("kubeflow.org/v1beta1", "Experiment"),
    ("kubeflow.org/v1alpha3", "Trial"),
    ("kubeflow.org/v1alpha1", "StudyJob"),
]
OTHERS = [
    ("kubeflow.org/v1", "Notebook"),
    ("tensorboard.kubeflow.org/v1alpha1", "Tensorboard"),
    ("serving.kserve.io/v1beta1", "InferenceService"),
    ("serving.kubeflow.org/v1alpha2", "InferenceService"),
    ("pipelines.kubeflow.org/v2beta1", "Pipeline"),
    ("kubeflow.org/v1beta1", "ScheduledWorkflow"),
    ("argoproj.io/v1alpha1", "Workflow"),
    ("kubeflow.org/v1", "Profile"),
]

SWEEP_REMEDY = f"{RUNS}: submit one for each set of parameters"
OTHER_REMEDY = f"create it with kubectl, where the operator of its kind is installed: {RUNS}"


def of(api_version: str, kind: str) -> str:
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n"


@pytest.mark.parametrize(("api_version", "kind"), JOBS)
def test_another_kind_of_training_job_is_named_as_not_supported_yet(api_version: str, kind: str) -> None:
    assert problem_texts(of(api_version, kind)) == [
        f"line 2: kind: {kind} ({api_version}) is not supported yet; {RUNS}"
    ]


@pytest.mark.parametrize(("api_version", "kind"), SWEEPS)
def test_a_sweep_is_named_with_what_does_for_it_today(api_version: str, kind: str) -> None:
    assert problem_texts(of(api_version, kind)) == [
        f"line 2: kind: {kind} ({api_version}) is not supported yet; {SWEEP_REMEDY}"
    ]


@pytest.mark.parametrize(("api_version", "kind"), OTHERS)
def test_what_does_not_train_is_named_as_no_training_job(api_version: str, kind: str) -> None:
    expected = f"line 2: kind: {kind} ({api_version}) is not a training job; {OTHER_REMEDY}"
    assert problem_texts(of(api_version, kind)) == [expected]


@pytest.mark.parametrize(("api_version", "kind"), [("example.org/v1", "Trial"), ("v1", "Pipeline")])
def test_a_kind_of_somebody_else_with_a_common_name_is_not_taken_for_one_of_kubeflow(
    api_version: str, kind: str
) -> None:
    (problem,) = problem_texts(of(api_version, kind))

    assert problem.startswith(f"line 2: kind: {kind} is neither a job nor a kind that may accompany one")


def test_another_kind_beside_a_job_is_told_and_not_taken_along() -> None:
    documents = read_manifest(f"{JOB}---\n{of('kubeflow.org/v1', 'PyTorchJob')}")

    assert [str(problem) for problem in documents.problems] == [
        f"line 7: kind: PyTorchJob (kubeflow.org/v1) is not supported yet; {RUNS}"
    ]
    assert documents.companions == ()

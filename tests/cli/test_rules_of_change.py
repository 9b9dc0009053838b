"""The command line's rules where jobs are changed: numbers are those of the rules in docs/cli.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tarragon.cli.jobs.editing import JobNotEditable
from tarragon.cli.jobs.scaling import RequestedSize, scale_edit
from tarragon.cli.jobs.suspension import RESUME, SUSPEND
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.cli.manifest.loading import InvalidManifest
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.registry import framework_of
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.kube.codec import decode, encode
from tarragon.kube.meta import CustomObject
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, python, worker
from tests.cli.tty import Tty

pytestmark = pytest.mark.timeout(300)

SLEEPS = "import time; time.sleep(600)"
TEMPLATE: Mapping[str, Any] = {"spec": {"containers": [python(SLEEPS)]}}
LISTED_TEMPLATE = {"spec": {**TEMPLATE["spec"], "restartPolicy": "OnFailure"}}
LISTED = [
    {"tfReplicaType": "MASTER", "template": LISTED_TEMPLATE},
    {"tfReplicaType": "WORKER", "replicas": 2, "template": LISTED_TEMPLATE},
]
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "kubeflow.org/v1": {"runPolicy": {}, "tfReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}},
    "flat": {"cleanPodPolicy": "All", "tfReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}},
    "kubeflow.org/v1beta2": {"tfReplicaSpecs": {"worker": {"replicas": 2, "template": TEMPLATE}}},
    "kubeflow.org/v1alpha2": {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}},
    "kubeflow.org/v1alpha1": {"replicaSpecs": LISTED},
    "mlkube.io/v1beta1": {"replicaSpecs": LISTED},
}


def there(shape: str, **status: Any) -> tuple[ClusterJob, dict[str, Any]]:
    """A job of that shape as a cluster has it, marked with its generation."""
    version = "kubeflow.org/v1" if shape == "flat" else shape
    manifest: dict[str, Any] = {
        "apiVersion": version,
        "kind": "TfJob" if version.startswith("mlkube") else "TFJob",
        "metadata": {"name": "digits", "namespace": "default", "uid": "u"},
        "spec": SHAPES[shape],
        "status": {"tarragon": status},
    }
    framework = framework_of(version, manifest["kind"])
    assert framework is not None
    taken = decode_and_validate(framework, manifest)
    assert taken.dialect is not None, taken.problems
    manifest["metadata"]["annotations"] = {"tarragon.dev/generation": taken.dialect.name}
    return read_job(framework, decode(encode(manifest), CustomObject)), manifest


RUNNING = {"state": "Running", "admission": {"size": {"Worker": 2}, "admitted": "2026-11-21T12:00:00Z"}}


BETWEEN = frozenset({"kubeflow.org/v1alpha2", "kubeflow.org/v1beta2"})


@pytest.mark.parametrize("shape", sorted(BETWEEN))
def test_a_generation_without_a_field_for_it_is_not_suspended_and_what_helps_is_told(shape: str) -> None:
    found, manifest = there(shape)

    with pytest.raises(JobNotEditable, match=r"has no spec\.runPolicy\.suspend") as refused:
        SUSPEND.edited_manifest(found, manifest)

    assert "convert --to kubeflow.org/v1" in refused.value.remedy


@pytest.mark.parametrize("shape", sorted(SHAPES.keys() - BETWEEN))
def test_every_other_generation_is_suspended_and_resumed_by_the_same_field(shape: str) -> None:
    found, manifest = there(shape)

    suspended = SUSPEND.edited_manifest(found, manifest)

    assert suspended["spec"]["runPolicy"]["suspend"] is True
    after = decode_and_validate(found.framework, suspended)
    assert after.job is not None
    assert (after.dialect, after.job.run_policy.suspend) == (found.dialect, True)
    assert SUSPEND.edited_manifest(found, suspended) is suspended
    assert RESUME.edited_manifest(found, manifest) is manifest
    assert RESUME.edited_manifest(found, suspended)["spec"]["runPolicy"]["suspend"] is False


def test_a_job_that_ends_before_it_is_suspended_is_not_said_to_be_suspended() -> None:
    found, _ = there("kubeflow.org/v1", state="Failed")

    with pytest.raises(JobNotEditable, match=r"can't suspend tfjob/digits: it has ended \(Failed\)"):
        SUSPEND.is_applied(found, [])


@pytest.mark.parametrize("shape", SHAPES)
def test_every_generation_is_scaled_where_its_user_wrote_the_number(shape: str) -> None:
    found, manifest = there(shape)

    after = scale_edit(RequestedSize(replicas={WORKER: 1})).edited_manifest(found, manifest)

    taken = decode_and_validate(found.framework, after)
    assert taken.job is not None
    assert taken.job.requested_size()[WORKER] == 1
    assert not taken.warnings
    assert ("tfReplicaSpecs" in after["spec"]) is ("tfReplicaSpecs" in SHAPES[shape])


def test_a_list_that_kubectl_has_scaled_beside_is_mended_by_scaling_it() -> None:
    found, manifest = there("kubeflow.org/v1alpha1")
    manifest["spec"] = {**manifest["spec"], "tfReplicaSpecs": {"Worker": {"replicas": 5}}}
    found = read_job(found.framework, decode(encode(manifest), CustomObject))

    after = scale_edit(RequestedSize(replicas={WORKER: 1})).edited_manifest(found, manifest)

    assert "tfReplicaSpecs" not in after["spec"]
    assert after["spec"]["replicaSpecs"][1]["replicas"] == 1


def test_what_no_job_can_be_is_refused_with_its_problems() -> None:
    found, manifest = there("kubeflow.org/v1")

    with pytest.raises(InvalidManifest, match="can't have this size"):
        scale_edit(RequestedSize(replicas={WORKER: 0})).edited_manifest(found, manifest)
    with pytest.raises(JobNotEditable, match="has no replicas of type PS"):
        scale_edit(RequestedSize(replicas={PS: 1})).edited_manifest(found, manifest)
    with pytest.raises(JobNotEditable, match="is not elastic"):
        scale_edit(RequestedSize(minimum=1)).edited_manifest(found, manifest)


def test_an_elastic_job_is_scaled_within_its_bounds_and_the_bounds_can_be_moved() -> None:
    found, manifest = there("kubeflow.org/v1")
    manifest["spec"] = {"min-instances": 1, "max-instances": 3, "tfReplicaSpecs": SHAPES["flat"]["tfReplicaSpecs"]}
    del manifest["metadata"]["annotations"]
    found = read_job(found.framework, decode(encode(manifest), CustomObject))

    with pytest.raises(JobNotEditable, match="to 5 workers"):
        scale_edit(RequestedSize(replicas={WORKER: 5})).edited_manifest(found, manifest)
    after = scale_edit(RequestedSize(replicas={WORKER: 5}, maximum=8)).edited_manifest(found, manifest)

    assert after["spec"]["max-instances"] == 8


def test_jobs_are_suspended_resumed_and_scaled_on_this_machine(shell: Shell) -> None:
    shell("submit", shell.file("a.yaml", worker("digits", SLEEPS, replicas=2)))
    old = {
        "apiVersion": "mlkube.io/v1beta1",
        "kind": "TfJob",
        "metadata": {"name": "old"},
        "spec": {"replicaSpecs": LISTED},
    }
    shell("submit", shell.file("b.yaml", json.dumps(old)))

    suspended = shell("suspend", "digits", "old", "nope", "--wait", "--timeout", "60")

    assert suspended.code == 102
    assert suspended.out == "tfjob/digits suspended\ntfjob.mlkube.io/old suspended\n"
    assert f"Suspending tfjob/digits in default on local ({shell.home})\n" in suspended.err
    assert 'job "nope" not found' in suspended.err
    again = shell("suspend", "--all")
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines()[0] == "tfjob/digits unchanged: already suspended"
    assert "resume tfjob.mlkube.io/old" in shell("why", "tfjob.mlkube.io/old").out
    following = shell("logs", "digits", "--follow").err
    assert following.startswith("tfjob/digits is Suspended: its replicas log again when it is resumed\n  resume it: ")

    resumed = shell("resume", "--all", "--wait", "--timeout", "60")
    assert (resumed.code, resumed.out) == (0, "tfjob/digits resumed\ntfjob.mlkube.io/old resumed\n")

    in_vain = shell("scale", "digits", "--workers", "3")
    assert in_vain.code == 1
    assert "it is not elastic" in in_vain.err
    assert "--restart" in in_vain.err
    grown = shell("scale", "digits", "--workers", "3", "--restart", "--wait", "--timeout", "60")
    assert (grown.code, grown.out) == (0, "tfjob/digits scaled to worker 3\n")
    assert shell("list").out.splitlines()[1].split()[:3] == ["digits", "Running", "3/3"]
    shrunk = shell("scale", "old", "--workers", "1", "--wait", "--timeout", "60")
    assert (shrunk.code, shrunk.out) == (0, "tfjob.mlkube.io/old scaled to worker 1\n")
    stored = yaml.safe_load(shell("get", "old", "-o", "yaml").out)
    assert [each.get("replicas") for each in stored["spec"]["replicaSpecs"]] == [1, 1]

    by_label = shell("delete", "-l", "team=none")
    assert by_label.code == 102
    assert shell("delete", "--all").out == "tfjob/digits deleted\ntfjob.mlkube.io/old deleted\n"


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0), ("\x03", 130)], ids=["no", "yes", "Ctrl-C"])
def test_a_terminal_is_asked_before_all_jobs_are_deleted(shell: Shell, answer: str, code: int) -> None:
    shell("submit", shell.file("a.yaml", job("digits", Worker=group(python("import time; time.sleep(600)")))))

    with Tty(shell.command("delete", "--all"), shell.folder, shell.environment(), columns=200) as tty:
        tty.until("Delete tfjob/digits in default on local")
        tty.type(answer)
        assert tty.ended() == code

    assert shell("list", "-o", "name").out == ("" if code == 0 else "tfjob/digits\n")


def test_nobody_is_asked_with_yes_or_about_jobs_that_were_named(shell: Shell) -> None:
    for words in (("delete", "--all", "-y"), ("delete", "digits")):
        shell("submit", shell.file("a.yaml", job("digits", Worker=group(python("import time; time.sleep(600)")))))
        with Tty(shell.command(*words), shell.folder, shell.environment(), columns=200) as tty:
            assert tty.ended() == 0
        assert "Delete tfjob" not in tty.text


def test_who_names_no_job_or_says_it_twice_is_told_how_jobs_are_chosen(shell: Shell) -> None:
    for words in (["suspend"], ["resume", "a", "--all"], ["delete", "-l", "a=b", "--all"]):
        ended = shell(*words)
        assert ended.code == 2
        assert "exactly one of JOB..., -l LABELS and --all is required" in ended.err
    assert "did you mean PS?" in shell("scale", "a", "--replicas", "pss=2").err
    assert "--timeout requires --wait" in shell("suspend", "a", "--timeout", "5").err


def test_a_job_that_has_ended_is_neither_suspended_nor_scaled(shell: Shell) -> None:
    shell("run", shell.file("a.yaml", job("digits", Worker=group(python("print(1)")))))

    for words in (["suspend", "digits"], ["scale", "digits", "--workers", "2"]):
        ended = shell(*words)
        assert ended.code == 1
        assert "it has ended (Succeeded)" in ended.err

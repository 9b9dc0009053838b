"""`diff`: what submitting a FILE would change, with nothing changed."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell
from tests.cli.manifests import worker

OLD = """\
apiVersion: kubeflow.org/v1alpha1
kind: TFJob
metadata: {name: old}
spec:
  replicaSpecs:
    - template:
        spec:
          containers: [{name: tensorflow, image: train, command: [sleep, "0"]}]
          restartPolicy: OnFailure
    - tfReplicaType: WORKER
      replicas: 2
      template:
        spec:
          containers: [{name: tensorflow, image: train, command: [sleep, "0"]}]
          restartPolicy: OnFailure
"""
CONFIG = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {greeting: hello}}\n"
SECRET = "---\n{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {token: abc123}}\n"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_a_job_that_is_not_there_is_new_as_a_whole_and_nothing_is_made(shell: Shell) -> None:
    ended = shell("diff", shell.file("job.yaml", worker("digits", "print(1)")))

    assert ended.code == 1
    assert ended.out.splitlines()[:2] == ["--- cluster/tfjob/digits", "+++ job.yaml/tfjob/digits"]
    assert all(line.startswith("+") for line in ended.out.splitlines()[3:])
    assert "tfjob/digits is new" in ended.err
    assert APPLIED not in ended.out
    assert not shell.home.exists()


def test_a_job_that_was_submitted_differs_in_nothing_from_its_file_also_when_no_cluster_runs(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", OLD))

    running = shell("diff", "job.yaml")
    shell("down")
    stored = shell("diff", "-f", "job.yaml")

    assert (running.code, running.out) == (0, ""), running.out
    assert (stored.code, stored.out) == (0, "")


def test_an_edit_is_shown_with_its_lines_and_nothing_that_was_filled_in(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", OLD))
    edited = shell.file("edited.yaml", OLD.replace("replicas: 2", "replicas: 3"))

    ended = shell("diff", edited)
    changed = [line for line in ended.out.splitlines()[2:] if line[:1] in "+-"]

    assert ended.code == 1
    assert changed == ["-    replicas: 2", "+    replicas: 3"]
    assert "RuntimeId" not in ended.out
    assert shell("get", "old", "-o", "json").out.count('"replicas": 2') >= 1


def test_what_kubectl_scale_has_written_beside_a_list_is_shown_with_what_it_means(shell: Shell) -> None:
    beside = "spec:\n  tfReplicaSpecs: {Worker: {replicas: 1}}\n"
    shell("run", shell.file("scaled.yaml", OLD.replace("spec:\n", beside, 1)))

    ended = shell("diff", shell.file("job.yaml", OLD))

    assert ended.code == 1
    assert "-  tfReplicaSpecs:" in ended.out
    assert "cluster: spec.tfReplicaSpecs.Worker.replicas: is 1, set by `kubectl scale`, and overrides" in ended.err


def test_a_default_that_is_written_out_is_no_difference(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print(1)")))
    stated = worker("digits", "print(1)").replace('"spec": {"tf', '"spec": {"runPolicy": {"suspend": false}, "tf', 1)

    ended = shell("diff", shell.file("stated.yaml", stated))

    assert stated != worker("digits", "print(1)")
    assert (ended.code, ended.out) == (0, "")


def test_a_job_of_another_generation_is_compared_by_what_it_means(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", OLD))
    newer = shell("convert", "job.yaml", "--to", "kubeflow.org/v1beta2").out

    ended = shell("diff", shell.file("newer.yaml", newer.replace("replicas: 2", "replicas: 1")))
    changed = [line for line in ended.out.splitlines()[2:] if line[:1] in "+-"]

    assert ended.code == 1
    assert changed == [
        "-apiVersion: kubeflow.org/v1alpha1",
        "+apiVersion: kubeflow.org/v1beta2",
        "-      replicas: 2",
        "+      replicas: 1",
    ]
    assert "tfjob/old has API kubeflow.org/v1alpha1 in the cluster and kubeflow.org/v1beta2 in FILE" in ended.err


def test_what_travels_with_a_job_is_compared_too_and_secrets_stay_secret(shell: Shell) -> None:
    whole = worker("digits", "print(1)") + "\n" + CONFIG + SECRET
    shell("run", shell.file("job.yaml", whole))
    same = shell("diff", "job.yaml")
    edited = whole.replace("hello", "goodbye").replace("abc123", "xyz789")

    ended = shell("diff", shell.file("edited.yaml", edited))
    changed = [line for line in ended.out.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]

    assert (same.code, same.out) == (0, ""), same.out
    assert changed[:2] == ["-  greeting: hello", "+  greeting: goodbye"]
    assert "xyz789" not in ended.out
    assert "abc123" not in ended.out


def test_a_secret_that_is_all_that_changed_is_a_difference(shell: Shell) -> None:
    whole = worker("digits", "print(1)") + "\n" + SECRET
    shell("run", shell.file("job.yaml", whole))

    ended = shell("diff", shell.file("edited.yaml", whole.replace("abc123", "xyz789")))
    changed = [line for line in ended.out.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]

    assert ended.code == 1
    assert changed == ["-  token: '***'", "+  token: '*** (changed)'"]


def test_what_kubectl_keeps_in_an_annotation_gives_no_secret_away(shell: Shell) -> None:
    whole = worker("digits", "print(1)") + "\n" + SECRET
    applied = SECRET.replace("name: key", f"name: key, annotations: {{{APPLIED}: abc123}}")
    shell("run", shell.file("job.yaml", worker("digits", "print(1)") + "\n" + applied))

    same = shell("diff", shell.file("same.yaml", whole))
    edited = shell("diff", shell.file("edited.yaml", whole.replace("abc123", "xyz789")))

    assert (same.code, same.out) == (0, ""), same.out
    assert edited.code == 1
    assert "abc123" not in edited.out


NOBODY = """\
apiVersion: v1
kind: Config
current-context: gone
clusters: [{name: gone, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: gone, context: {cluster: gone, user: me}}]
users: [{name: me, user: {token: abc}}]
"""


def test_a_cluster_that_can_t_be_asked_is_no_difference(shell: Shell) -> None:
    shell.file("config", NOBODY)

    ended = shell("diff", "--kubeconfig", "config", shell.file("job.yaml", OLD))

    assert (ended.code, ended.out) == (2, "")
    assert "context gone (http://127.0.0.1:9) does not answer" in ended.err


@pytest.mark.parametrize("command", ["diff", "validate"])
def test_a_file_with_problems_is_refused_alike(shell: Shell, command: str) -> None:
    ended = shell(command, shell.file("job.yaml", worker("digits", "print(1)", replicas=-1)))

    assert ended.code == 2
    assert "spec.tfReplicaSpecs.Worker.replicas: must be 0 or more, not -1" in ended.err

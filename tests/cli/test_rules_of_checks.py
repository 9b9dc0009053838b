"""Rule 17: what check says of rights, schedulers and storage."""

from __future__ import annotations

from tarragon.cli.checks.features import check_gang_schedulers, check_storage_classes
from tarragon.cli.checks.permissions import operator_findings, operator_questions, user_findings, user_questions


def storage(name: str, *, is_default: bool = False, mode: str = "Immediate") -> dict[str, object]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "volumeBindingMode": mode}


def test_rule_17_who_may_only_look_is_told_the_commands_that_change_and_not_those_that_look() -> None:
    answers = {question: question.verb in {"get", "list", "watch"} for question in user_questions("default")}

    text = next(iter(user_findings(answers))).text

    assert text.endswith("needed by run, submit, suspend, resume, scale and delete")


def test_who_may_not_watch_reads_which_commands_wait() -> None:
    answers = {question: question.verb != "watch" for question in user_questions("default")}

    assert next(iter(user_findings(answers))).text.endswith("needed by run, wait and list -w")


def test_a_subresource_is_spelled_as_kubectl_spells_it() -> None:
    answers = {
        question: question.permission.resource != "tfjobs/status" for question in operator_questions("tarragon-system")
    }

    texts = [finding.text for finding in operator_findings(answers)]

    assert texts
    assert all(" tfjobs.kubeflow.org/status, " in text or "mlkube.io/status" in text for text in texts)


def test_rule_17_gang_schedulers_are_seen_by_their_groups() -> None:
    assert check_gang_schedulers({"apps"}).text == "Tarragon schedules gangs itself; no other gang scheduler found"
    assert (
        "Volcano and Kueue are also installed"
        in check_gang_schedulers({"scheduling.volcano.sh", "kueue.x-k8s.io"}).text
    )


def test_storage_classes_are_told_with_what_a_claim_will_meet() -> None:
    assert check_storage_classes(None).level == "ok"
    assert check_storage_classes([]).level == "warning"
    assert check_storage_classes([storage("slow")]).remedy == "set spec.storageClassName in each claim"
    found = check_storage_classes([storage("fast", is_default=True, mode="WaitForFirstConsumer"), storage("slow")])
    assert (found.level, found.text) == ("ok", "2 storage classes: fast (default, WaitForFirstConsumer) and slow")

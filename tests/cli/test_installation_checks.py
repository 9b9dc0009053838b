"""What `tarragon check --operator` says of an installed operator."""

from __future__ import annotations

import base64
import datetime as dt
import sys
from typing import Any

import pytest

from tarragon import __version__
from tarragon.base.certificate_authority import new_authority
from tarragon.cli.checks.installation import (
    REQUIRED_APIS,
    ScrapedPod,
    check_apis,
    check_client_certificate,
    check_deployments,
    check_disruption_budgets,
    check_metrics,
    check_progress_authority,
    check_published,
    check_queues,
    check_version,
    mounted_config,
)
from tarragon.cli.checks.operator_crash import crash_of, crash_text
from tarragon.cli.checks.permissions import operator_questions, service_account_findings
from tarragon.plan.config.published import RULES_CONFIG_MAP, SHARES_CONFIG_MAP, PublishedConfig, encode_config_maps

NOW = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
Json = dict[str, Any]


def deployment(image: str = f"registry.example.com:5000/tarragon:{__version__}", *args: str, ready: int = 2) -> Json:
    container = {"name": "operator", "image": image, "args": ["operator", *args]}
    mount = {"name": "queues", "mountPath": "/etc/tarragon-queues"}
    pod = {
        "metadata": {"labels": {"app.kubernetes.io/name": "tarragon"}},
        "spec": {
            "containers": [{"name": "mesh", "image": "proxy:9"}, {**container, "volumeMounts": [mount]}],
            "volumes": [{"name": "queues", "configMap": {"name": "tarragon-queues"}}],
        },
    }
    return {
        "metadata": {"name": "tarragon", "namespace": "tarragon-system", "generation": 3},
        "spec": {"replicas": 2, "template": pod},
        "status": {"observedGeneration": 3, "readyReplicas": ready, "updatedReplicas": 2},
    }


@pytest.mark.parametrize(
    ("version", "level"), [("v1.20.2", "ok"), ("v1.37.2", "ok"), ("v1.19.0", "warning"), ("v1.99.0+k3s1", "warning")]
)
def test_a_version_that_no_test_has_run_on_is_a_warning(version: str, level: str) -> None:
    assert next(iter(check_version(version))).level == level


def test_what_only_newer_servers_have_is_listed() -> None:
    _, old = check_version("v1.20.2")
    _, new = check_version("v1.37.2")

    assert "sidecar containers (1.29)" in old.text
    assert new.text == "the server has all that Tarragon makes use of"


def test_an_api_that_is_switched_off_is_an_error() -> None:
    assert check_apis({*REQUIRED_APIS, "batch/v1"}).level == "ok"

    found = check_apis({*REQUIRED_APIS} - {"coordination.k8s.io/v1"})

    assert (found.level, found.topic) == ("error", "apis")
    assert "coordination.k8s.io/v1" in found.text


@pytest.mark.parametrize(("ready", "level"), [(2, "ok"), (1, "warning"), (0, "error")])
def test_a_deployment_is_judged_by_its_ready_pods(ready: int, level: str) -> None:
    rollout, _ = check_deployments([deployment(ready=ready)], {})

    assert (rollout.level, rollout.text.partition(",")[0]) == (level, f"tarragon-system/tarragon: {ready} of 2 ready")


def test_a_rollout_that_goes_on_is_a_warning() -> None:
    found = deployment()
    found["status"]["updatedReplicas"] = 1

    assert next(iter(check_deployments([found], {}))).level == "warning"


@pytest.mark.parametrize(
    ("image", "level"),
    [
        (f"registry.example.com:5000/tarragon:v{__version__}", "ok"),
        ("registry.example.com:5000/tarragon:0.0.1", "warning"),
        ("registry.example.com:5000/tarragon@sha256:" + 64 * "0", "ok"),
    ],
)
def test_an_image_of_another_version_is_a_warning(image: str, level: str) -> None:
    _, found = check_deployments([deployment(image)], {})

    assert (found.topic, found.level) == ("image", level)


def test_without_a_deployment_an_operator_may_run_elsewhere() -> None:
    (found,) = check_deployments([], {})

    assert found.level == "warning"


REFUSAL = "Error: the operator needs the extra `operator`\n  Python does not find numpy\n  install it: pip\n"


def operator_pod(**status: Any) -> Json:
    body = {"name": "operator", "ready": False, **status}
    return {
        "metadata": {"name": "tarragon-1", "namespace": "tarragon-system"},
        "spec": {"containers": [{"name": "mesh"}, {"name": "operator"}]},
        "status": {"containerStatuses": [{"name": "mesh", "ready": True}, body]},
    }


def test_an_operator_that_ends_again_and_again_is_quoted() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    crash = crash_of(operator_pod(state=waiting, lastState={"terminated": {"exitCode": 1, "message": REFUSAL}}))
    assert crash is not None

    rollout, _ = check_deployments([deployment(ready=0)], {"tarragon-system": crash_text(crash, "")})

    assert rollout.level == "error"
    assert rollout.text == (
        "tarragon-system/tarragon: 0 of 2 ready; tarragon-1 ended: exit code 1; it said: "
        "Error: the operator needs the extra `operator`; Python does not find numpy; install it: pip"
    )
    assert rollout.remedy.startswith("kubectl -n tarragon-system logs deployment/tarragon")


def test_without_a_termination_message_the_log_says_why_an_operator_ended() -> None:
    log = 'x\nTraceback (most recent call last):\n  File "x"\n    import numpy\nModuleNotFoundError: numpy\n'
    restarted = crash_of(operator_pod(state={"running": {}}, lastState={"terminated": {"exitCode": 1}}))
    ended = crash_of(operator_pod(state={"terminated": {"exitCode": 137}}))

    assert restarted is not None
    assert restarted.is_restarted
    assert crash_text(restarted, log) == "tarragon-1 ended: exit code 1; it said: ModuleNotFoundError: numpy"
    assert ended is not None
    assert not ended.is_restarted
    assert crash_text(ended, "") == "tarragon-1 ended: killed (SIGKILL, 137)"


def test_an_operator_that_is_ready_again_or_has_never_ended_has_not_crashed() -> None:
    ready = {"ready": True, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}

    assert crash_of(operator_pod(**ready)) is None
    assert crash_of(operator_pod(state={"running": {}})) is None
    assert crash_of({**operator_pod(), "status": {}}) is None


def test_a_budget_of_other_pods_protects_no_operator() -> None:
    mine = {"spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": "tarragon"}}}}
    other = {"spec": {"selector": {"matchLabels": {"app": "web"}}}}

    assert check_disruption_budgets(deployment(), [other, mine]).level == "ok"
    assert check_disruption_budgets(deployment(), [other, {"spec": {}}]).level == "warning"
    assert "unknown" in check_disruption_budgets(deployment(), None).text


def test_operators_say_themselves_who_leads() -> None:
    leader = 'tarragon_is_leader 1.0\ntarragon_is_ready 1.0\ntarragon_build_info{python="3",version="0.1.0"} 1.0\n'
    standby = leader.replace("is_leader 1.0", "is_leader 0.0")
    unready = standby.replace("is_ready 1.0", "is_ready 0.0")

    one = list(check_metrics([ScrapedPod(name="a", text=leader), ScrapedPod(name="b", text=standby)]))
    odd = list(check_metrics([ScrapedPod(name="a", text=unready), ScrapedPod(name="b", error="forbidden")]))
    two = list(check_metrics([ScrapedPod(name="a", text=leader), ScrapedPod(name="b", text=leader)]))

    assert [(each.level, each.text) for each in one] == [
        ("ok", "a leads, version 0.1.0"),
        ("ok", "b stands by, version 0.1.0"),
    ]
    assert [each.level for each in odd] == ["warning", "warning"]
    assert "forbidden" in odd[1].text
    assert (two[-1].level, two[-1].text) == ("error", "a and b all lead")


def test_a_published_configuration_is_read_as_why_reads_it() -> None:
    maps = encode_config_maps(PublishedConfig())

    good = check_published("ns", maps[RULES_CONFIG_MAP], maps[SHARES_CONFIG_MAP])
    odd = check_published("ns", {"policy": "of next year"}, None)

    assert (good.level, good.text) == ("ok", "policy elastic")
    assert (odd.level, check_published("ns", None, None).level) == ("warning", "warning")


@pytest.mark.parametrize(
    ("content", "level"),
    [
        ("fair: true", "ok"),
        ("fair: perhaps", "warning"),
        ("{fair: [", "warning"),
        ("[" * 5000, "warning"),
        (None, "warning"),
    ],
)
def test_an_edit_of_the_queues_file_that_has_no_effect_is_found(content: str | None, level: str) -> None:
    assert check_queues("queues.yaml of ConfigMap a/b", content).level == level


def test_the_queues_file_is_found_where_the_deployment_mounts_it() -> None:
    given = deployment("tarragon:1", "--queues=/etc/tarragon-queues/queues.yaml")

    assert mounted_config(given, "--queues") == ("tarragon-queues", "queues.yaml")
    assert mounted_config(deployment(), "--queues") is None


def test_an_authority_that_nobody_has_replaced_in_time_is_a_warning() -> None:
    def secret(issued: dt.datetime) -> Json:
        return {"data": {"ca.crt": base64.b64encode(new_authority("a", issued).certificate).decode()}}

    assert check_progress_authority(secret(NOW), NOW).level == "ok"
    assert check_progress_authority(secret(NOW - dt.timedelta(days=3500)), NOW).level == "warning"
    assert check_progress_authority({"data": {"ca.crt": "bm8="}}, NOW).level == "warning"
    assert check_progress_authority({}, NOW).level == "ok"


def test_a_client_certificate_is_named_before_it_expires() -> None:
    certificate = new_authority("a", NOW).certificate
    ends = NOW + dt.timedelta(days=3650)

    def level(now: dt.datetime) -> list[str]:
        return [each.level for each in check_client_certificate(certificate, now)]

    assert level(NOW) == ["ok"]
    assert level(ends - dt.timedelta(days=20)) == ["warning"]
    assert level(ends + dt.timedelta(days=20)) == ["error"]
    assert list(check_client_certificate(b"", NOW)) == []


def test_a_client_without_cryptography_says_that_it_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = new_authority("a", NOW).certificate
    for module in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "tarragon.base.certificate_authority")

    found = [
        check_progress_authority({"data": {"ca.crt": base64.b64encode(certificate).decode()}}, NOW),
        *check_client_certificate(certificate, NOW),
    ]

    assert [(each.level, each.topic) for each in found] == [("ok", "certificate"), ("ok", "credentials")]
    assert all("unknown: reading it needs the extra `local`" in each.text for each in found)
    assert list(check_client_certificate(b"", NOW)) == []
    assert check_progress_authority({}, NOW).text.startswith("no authority")


def test_what_the_service_account_lacks_is_an_error_only_if_nothing_works_without_it() -> None:
    answers = dict.fromkeys(operator_questions("tarragon-system"), True)
    lacking = {
        question: (question.permission.resource, question.verb) not in {("events", "create"), ("pods", "create")}
        for question in answers
    }

    (whole,) = service_account_findings("tarragon-system/tarragon", answers)
    found = list(service_account_findings("tarragon-system/tarragon", lacking))

    assert (whole.level, whole.topic) == ("ok", "account")
    assert [each.level for each in found] == ["error", "warning"]
    assert "may not create pods" in found[0].text

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from tarragon import __version__
from tarragon.cli.commands.operator import ManagementOptions
from tarragon.cli.main import run_command
from tarragon.cli.operator import process_environment
from tarragon.cli.operator.job_defaults import job_default_options
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.meta import JsonObject, Key
from tarragon.operator.manager.health import ListenAddress
from tarragon.plan.objects.gpu_anchors import AnchorSettings

MANAGEMENT: Mapping[str, Any] = {
    "namespaces": (),
    "scheduler": "tarragon",
    "pod_groups": {},
    "placement": "direct",
    "patience": 60.0,
    "start_patience": 300.0,
    "cluster_domain": None,
    "logs_of_jobs": "text",
    "config_file": None,
    "adopt": False,
    "kubectl_delivery_image": None,
    "gpu_anchor_image": None,
}
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--renew-deadline", "20"], "the renew deadline of 20 s must be below the lease duration of 15 s"),
        (["--retry-period", "9"], "the retry period of 9 s must be well below the renew deadline of 10 s"),
        (["--retry-period", "0"], "the retry period of 0 s must be well below the renew deadline of 10 s"),
        (["--namespace", "Not_A_Name"], "'Not_A_Name' is not a valid namespace name"),
        (["--listen", "8080"], "'8080' is not HOST:PORT; write for example :8080, 127.0.0.1:0 or off"),
        (["--listen", "a:99999"], "'a:99999' is not HOST:PORT"),
        (["--aged", "1e12"], "1e12 is not between 0 and 31536000 seconds (one year)"),
        (["--idle", "nan"], "nan is not between 0 and"),
        (["--cool-down", "inf"], "inf is not between 0 and"),
        (["--grace", "-1"], "-1 is not between 0 and"),
        (["--patience", "long"], "'long' is not a number of seconds; use for example 30 or 0.5"),
        (["--gpus-per-node", "0"], "0 is not in the range x>=1"),
        (["--processing-resource-type", "amd.com/gpu"], "'amd.com/gpu' is not one of 'nvidia.com/gpu', 'cpu'"),
        (["--policy", "lifo"], "'lifo' is not one of 'fifo', 'backfill', 'dragon'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_begins(
    flags: list[str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )

    assert run_command(["operator", "--kubeconfig", str(config), *flags]) == 2
    assert fault in capsys.readouterr().err


def test_the_lock_of_the_old_operators_was_where_these_variables_say() -> None:
    assert (
        process_environment.lease_namespace({"KUBEFLOW_NAMESPACE": "kubeflow", "MY_POD_NAMESPACE": "default"})
        == "kubeflow"
    )
    assert process_environment.lease_namespace({"MY_POD_NAMESPACE": "default"}) == "default"
    assert process_environment.lease_namespace({}) == ""


def test_no_two_processes_have_one_identity_even_in_one_pod() -> None:
    pod = {"MY_POD_NAME": "tarragon-0"}

    assert process_environment.identity(pod) != process_environment.identity(pod)
    assert process_environment.identity(pod).startswith("tarragon-0_")


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        (None, POD, ListenAddress("", 8080)),
        (None, {}, ListenAddress("127.0.0.1", 8080)),
        (":9090", {}, ListenAddress("", 9090)),
        ("[::1]:0", {}, ListenAddress("::1", 0)),
        ("0.0.0.0:80", POD, ListenAddress("0.0.0.0", 80)),  # noqa: S104 - as somebody may write it
        ("off", POD, None),
    ],
)
def test_outside_of_a_pod_nobody_but_this_machine_is_answered_unless_that_is_asked_for(
    text: str | None, environment: dict[str, str], expected: ListenAddress | None
) -> None:
    assert process_environment.listen_address(text, environment) == expected


def test_a_process_in_a_pod_knows_its_pod() -> None:
    assert process_environment.own_pod({**POD, "MY_POD_NAME": "tarragon-0"}, "ns") == Key("ns", "tarragon-0")
    assert process_environment.own_pod({"MY_POD_NAME": "tarragon-0"}, "ns") is None


@click.command()
@job_default_options
def print_job_defaults(*, job_defaults: Mapping[str, JsonObject]) -> None:
    click.echo(json.dumps(job_defaults))


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ([], {}),
        (["--gpus-per-node", "1", "--processing-resource-type", "nvidia.com/gpu"], {}),
        (["--gpus-per-node", "8"], {"gpusPerNode": 8}),
        (["--processing-resource-type", "cpu"], {"processingResourceType": "cpu"}),
    ],
)
def test_options_of_frameworks_become_fields_unless_they_are_the_defaults_of_the_api(
    flags: list[str], fields: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    print_job_defaults.main(flags, standalone_mode=False)

    assert json.loads(capsys.readouterr().out) == {"MPIJob": fields}


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.resource.full_name)
def test_an_option_of_a_framework_is_a_field_of_its_jobs(framework: Framework) -> None:
    definition: Any = framework.crd()
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert {option.field for option in framework.operator_options} <= spec.get("properties", {}).keys()


def test_kubectl_comes_from_the_operators_image_unless_another_one_is_given() -> None:
    found = ManagementOptions(**MANAGEMENT)
    other = replace(found, kubectl_delivery_image="mirror/kubectl")

    assert (found.plan_settings(()).own_image, found.plan_settings(()).delivery_image) == (
        f"tarragon:{__version__}",
        "",
    )
    assert (other.plan_settings(()).delivery_image, other.own_pod("ns")) == ("mirror/kubectl", None)


def test_gpus_are_held_in_the_operators_namespace_by_its_own_image_unless_another_one_is_given() -> None:
    found = ManagementOptions(**MANAGEMENT)
    other = replace(found, gpu_anchor_image="mirror/busybox")

    assert found.gpu_anchors("ns") == AnchorSettings(namespace="ns", image="")
    assert other.gpu_anchors("ns").image == "mirror/busybox"
    assert replace(found, kubectl_delivery_image="mirror/kubectl").gpu_anchors("ns").image == "mirror/kubectl"


def test_an_address_without_a_port_is_told_as_one() -> None:
    with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
        process_environment.listen_address("localhost", {})

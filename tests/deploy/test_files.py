from __future__ import annotations

import ipaddress
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tarragon import __version__
from tarragon.frameworks.mpi.framework import MPI
from tarragon.operator.rbac import permissions_of
from tools.make_deploy import rules_of

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "install.md"
NEWEST = "1.37"
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
INSTALLATIONS = ["deploy", "deploy/namespaced"]

Json = dict[str, Any]


def written(*folders: str) -> Iterator[Json]:
    """Every object in the files that lie in these folders, in the order in which kubectl takes them."""
    for folder in folders:
        for path in sorted((ROOT / folder).glob("*.yaml")):
            yield from yaml.safe_load_all(path.read_text())


def rendered(folder: Path) -> list[Json]:
    """As `kubectl apply -k` would send it."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True, timeout=60)
    return list(yaml.safe_load_all(done.stdout))


def copy_deploy(folder: Path) -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text())


def operator_of(objects: list[Json]) -> Json:
    (found,) = [each for each in objects if each["kind"] == "Deployment"]
    spec: Json = found["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("folder", INSTALLATIONS)
def test_a_folder_that_kubectl_takes_whole_has_nothing_in_it_that_it_would_choke_on(folder: str) -> None:
    assert not [path.name for path in (ROOT / folder).glob("*") if path.suffix in {".yml", ".json"}]
    assert all({"apiVersion", "kind", "metadata"} <= each.keys() for each in written(folder))
    assert (ROOT / folder / "Kustomization").exists()


def test_what_others_need_comes_first() -> None:
    kinds = [each["kind"] for each in written("deploy")]

    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")
    assert kinds.index("Namespace") < min(kinds.index(kind) for kind in ("Role", "ServiceAccount", "Deployment"))
    assert kinds.index("ClusterRoleBinding") < kinds.index("Deployment"), "it would begin without being allowed to"


def test_every_object_is_one_that_the_newest_kubernetes_understands() -> None:
    checked = [
        each
        for each in written("deploy", "deploy/namespaced", *(str(path) for path in (DEPLOY / "components").iterdir()))
        if each["kind"] not in {"CustomResourceDefinition", "Component", "PrometheusRule", "ServiceMonitor"}
    ]

    for each in checked:
        kubernetes_validate.validate(each, NEWEST, strict=True)
    assert {"Deployment", "PodDisruptionBudget", "NetworkPolicy"} <= {each["kind"] for each in checked}


def test_services_name_the_protocol_of_their_ports() -> None:
    """Without it, a server-side apply of a Service fails on Kubernetes 1.20; helm 4 applies so."""
    services = [each for each in written("deploy", "deploy/namespaced") if each["kind"] == "Service"]

    assert len(services) == 3
    assert {port.get("protocol") for service in services for port in service["spec"]["ports"]} == {"TCP"}


@pytest.mark.parametrize("folder", INSTALLATIONS)
def test_the_operators_pod_keeps_to_the_restricted_level(folder: str) -> None:
    spec = operator_of(list(written(folder)))
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all({"projected", "emptyDir"} & volume.keys() for volume in spec["volumes"])
    assert spec["automountServiceAccountToken"] is False
    assert container["resources"]["limits"]["memory"]
    assert container["resources"]["requests"].keys() >= {"cpu", "memory"}


def test_the_image_is_of_this_version() -> None:
    (container,) = operator_of(list(written("deploy")))["containers"]

    assert container["image"] == f"tarragon:{__version__}"


def test_users_get_their_rights_through_the_roles_that_they_have() -> None:
    roles = {each["metadata"]["name"]: each for each in written("deploy") if each["kind"] == "ClusterRole"}

    for name in ("edit", "view"):
        labels = roles[f"tarragon-{name}"]["metadata"]["labels"]
        assert labels[f"rbac.authorization.k8s.io/aggregate-to-{name}"] == "true"
    assert {verb for rule in roles["tarragon-view"]["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_no_role_of_users_takes_in_the_right_to_write_a_status() -> None:
    """Of an installation that is older, `tarragon-admin` is part of `admin`: applying the files takes that back."""
    roles = {each["metadata"]["name"]: each for each in written("deploy") if each["kind"] == "ClusterRole"}
    writes_status = {
        name
        for name, role in roles.items()
        for rule in role["rules"]
        if any(resource.endswith("/status") for resource in rule["resources"])
        and {"patch", "update"} & {*rule["verbs"]}
    }

    assert writes_status == {"tarragon", "tarragon-status-editor"}
    for name in ("tarragon-admin", "tarragon-status-editor"):
        assert not [label for label in roles[name]["metadata"]["labels"] if "aggregate" in label]


@pytest.mark.kubectl
def test_an_installation_for_a_namespace_has_nothing_outside_of_it(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"namespace": "team-a", "resources": ["namespaced"]}))
    (tmp_path / "namespaced").mkdir()
    for path in (DEPLOY / "namespaced").iterdir():
        (tmp_path / "namespaced" / path.name).write_text(path.read_text())
    objects = rendered(tmp_path)

    assert not CLUSTER_WIDE & {each["kind"] for each in objects}
    assert {each["metadata"]["namespace"] for each in objects} == {"team-a"}
    subjects = [subject for each in objects for subject in each.get("subjects", [])]
    assert {subject["namespace"] for subject in subjects} == {"team-a"}
    assert operator_of(objects)["containers"][0]["args"] == ["operator", "--namespace=$(MY_POD_NAMESPACE)"]


NOBODYS = ipaddress.IPv4Network("192.0.2.0/24")
"""Kept for documentation (RFC 5737): no machine has such an address."""


def test_the_operator_may_speak_to_nobody_but_an_api_server_that_the_installer_names() -> None:
    (policy,) = [each for each in written("deploy/components/network-policy") if each["kind"] == "NetworkPolicy"]

    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    for rule in policy["spec"]["egress"]:
        assert {(port["protocol"], port["port"]) for port in rule["ports"]} == {("TCP", 443), ("TCP", 6443)}
        (network,) = [ipaddress.IPv4Network(peer["ipBlock"]["cidr"]) for peer in rule["to"]]
        assert network.num_addresses == 1
        assert network.subnet_of(NOBODYS)


@pytest.mark.kubectl
def test_the_kustomization_of_the_page_on_installing_opens_the_way_to_that_api_server_alone(tmp_path: Path) -> None:
    copy_deploy(tmp_path / "tarragon")
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (mine,) = [block for block in blocks if "components/network-policy" in block]
    (tmp_path / "kustomization.yaml").write_text(mine)

    (policy,) = [each for each in rendered(tmp_path) if each["kind"] == "NetworkPolicy"]
    (rule,) = policy["spec"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.96.0.1/32"}}, {"ipBlock": {"cidr": "172.18.0.2/32"}}]
    assert {port["port"] for port in rule["ports"]} == {443, 6443}
    assert policy["spec"]["ingress"]


@pytest.mark.kubectl
def test_the_components_fit_onto_the_installation(tmp_path: Path) -> None:
    copy_deploy(tmp_path)
    (tmp_path / "mine").mkdir()
    names = sorted(path.name for path in (DEPLOY / "components").iterdir() if not path.name.startswith("without-"))
    mine = {"resources": ["../deploy"], "components": [f"../deploy/components/{name}" for name in names]}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = rendered(tmp_path / "mine")

    assert {"PodDisruptionBudget", "NetworkPolicy", "Deployment"} <= {each["kind"] for each in objects}


@pytest.mark.kubectl
@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_an_installation_without_mpijobs_has_neither_the_kind_nor_its_permissions(
    installation: str, tmp_path: Path
) -> None:
    copy_deploy(tmp_path)
    (tmp_path / "mine").mkdir()
    mine = {"resources": [f"../{installation}"], "components": ["../deploy/components/without-mpijobs"]}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    before, after = rendered(tmp_path / installation), rendered(tmp_path / "mine")

    removed = [rule for rule in operator_rules(before) if rule not in operator_rules(after)]
    assert removed == [rule for rule, _ in rules_of(permissions_of(MPI))]
    assert len(operator_rules(before)) == len(operator_rules(after)) + len(removed)
    crd = {"mpijobs.kubeflow.org"}
    assert names_of(after, "CustomResourceDefinition") == names_of(before, "CustomResourceDefinition") - crd


def names_of(objects: list[Json], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in objects if each["kind"] == kind}


def operator_rules(objects: list[Json]) -> list[Json]:
    """The rules of the role with which the operator manages jobs."""
    (role,) = [
        each for each in objects if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == "tarragon"
    ]
    rules: list[Json] = role["rules"]
    return rules

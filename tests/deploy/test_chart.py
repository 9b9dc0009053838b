"""The Helm chart renders what kustomize does, takes the values that it describes, and refuses all others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tarragon.cli.commands.operator import command as operator_command
from tarragon.frameworks.registry import FRAMEWORKS
from tests.conftest import HELM_4, ROOT, helm_program
from tests.deploy.helm_program import CHART, NAMESPACE, Helm, by_name, kustomized
from tools.chart.templates import COMPONENTS, templates
from tools.chart.values import read

Json = dict[str, Any]

DEPLOY = ROOT / "deploy"
ACCELERATORS = DEPLOY / "components" / "accelerators" / "accelerators.yaml"
METRICS: Json = {
    **{kind: {"enabled": True} for kind in ("serviceMonitor", "prometheusRule")},
    "dashboard": True,
}
EVERY_COMPONENT = {
    "metrics": METRICS,
    **yaml.safe_load(yaml.safe_load(ACCELERATORS.read_text())["data"]["controller_config_file.yaml"]),
    **{name: {"enabled": True} for name in ("admissionPolicy", "flowControl", "podDisruptionBudget")},
    "networkPolicy": {"enabled": True, "apiServer": ["192.0.2.1/32"]},
    "queues": {"enabled": True},
}
"""Values with which the chart installs what the components of kustomize add."""


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    program = helm_program()
    assert program
    return Helm(program, tmp_path)


@pytest.fixture(params=[pytest.param("3", marks=pytest.mark.helm), pytest.param("4", marks=pytest.mark.helm4)])
def either_helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    program = HELM_4 if request.param == "4" else helm_program()
    assert program
    return Helm(program, tmp_path)


def operator_of(objects: list[Json]) -> Json:
    (found,) = [each for each in objects if each["kind"] == "Deployment"]
    return found


def container_of(objects: list[Json]) -> Json:
    (container,) = operator_of(objects)["spec"]["template"]["spec"]["containers"]
    found: Json = container
    return found


@pytest.mark.kubectl
def test_a_release_with_default_values_has_the_objects_of_the_kustomization(either_helm: Helm) -> None:
    either_helm("lint", "--strict", str(CHART))
    ours = by_name(kustomized(DEPLOY))
    ours.pop(("Namespace", "", NAMESPACE))  # `--create-namespace` makes it

    assert by_name(either_helm.rendered({})) == ours


@pytest.mark.helm
@pytest.mark.kubectl
def test_values_switch_on_what_the_components_of_the_kustomization_add(helm: Helm, tmp_path: Path) -> None:
    names = [*dict.fromkeys(Path(source).parent.name for source in COMPONENTS)]
    ours = by_name(kustomized(with_components(tmp_path, "deploy", names)))
    ours.pop(("Namespace", "", NAMESPACE))
    theirs = by_name(helm.rendered({**EVERY_COMPONENT, "progress": {"fromLogs": True}}))

    (checksum,) = [
        annotations.pop("tarragon.dev/accelerators")
        for annotations in [operator_of([*theirs.values()])["spec"]["template"]["metadata"]["annotations"]]
    ]
    assert len(checksum) == 64
    contents = [
        {key: (name, yaml.safe_load(objects["ConfigMap", NAMESPACE, name]["data"].pop(key))) for name, key in FILES}
        for objects in (ours, theirs)
    ]
    assert contents[0] == contents[1]
    assert theirs == ours


FILES = [("tarragon-accelerators", "controller_config_file.yaml"), ("tarragon-queues", "queues.yaml")]


def with_components(folder: Path, base: str, names: list[str]) -> Path:
    shutil.copytree(DEPLOY, folder / "deploy", ignore=shutil.ignore_patterns("chart"))
    (folder / "mine").mkdir()
    mine = {"resources": [f"../{base}"], "components": [f"../deploy/components/{name}" for name in names]}
    (folder / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    return folder / "mine"


@pytest.mark.helm
@pytest.mark.kubectl
def test_kinds_that_are_not_wanted_are_left_out_with_their_permissions(helm: Helm, tmp_path: Path) -> None:
    ours = by_name(kustomized(with_components(tmp_path, "deploy", ["without-sharepods", "without-mpijobs"])))
    ours.pop(("Namespace", "", NAMESPACE))

    assert by_name(helm.rendered({"kinds": {"sharepods": False, "mpijobs": False}})) == ours
    without_any = helm.rendered({"kinds": dict.fromkeys(values()["kinds"], False)})
    assert [each["metadata"]["name"] for each in without_any if each["kind"] == "CustomResourceDefinition"] == [
        framework.resource.full_name for framework in FRAMEWORKS if not framework.is_crd_optional
    ]


@pytest.mark.helm
@pytest.mark.kubectl
def test_a_release_for_some_namespaces_has_roles_in_these_alone(helm: Helm) -> None:
    second = {"namespaces": ["default", "team-b"], "crds": {"install": False}, "rbac": {"userRoles": False}}
    theirs = by_name(helm.rendered(second, namespace="default"))
    ours = by_name(kustomized(DEPLOY / "namespaced"))

    for kind in ("Role", "RoleBinding"):
        copied: Json = theirs.pop((kind, "team-b", "tarragon"))
        assert copied["metadata"].pop("namespace") == "team-b"
        assert copied == {**ours[kind, "default", "tarragon"], "metadata": copied["metadata"]}
    arguments = [container_of([objects["Deployment", "default", "tarragon"]])["args"] for objects in (ours, theirs)]
    assert arguments == [
        ["operator", "--namespace=$(MY_POD_NAMESPACE)"],
        ["operator", "--namespace=default", "--namespace=team-b"],
    ]
    container_of([theirs["Deployment", "default", "tarragon"]])["args"] = arguments[0]
    (name,) = [each for each in variables_of(ours) if each["name"] == "MY_POD_NAMESPACE"]
    variables_of(theirs).insert(0, name)
    assert theirs == ours


@pytest.mark.helm
def test_pods_may_have_labels_that_the_chart_sets_on_other_objects(helm: Helm) -> None:
    mine = {"app.kubernetes.io/version": "v2", "helm.sh/chart": "umbrella"}

    template = operator_of(helm.rendered({"podLabels": mine}))["spec"]["template"]

    assert template["metadata"]["labels"] == {"app.kubernetes.io/name": "tarragon", **mine}


@pytest.mark.helm
def test_an_operator_in_another_namespace_than_its_jobs_may_find_its_own_image(helm: Helm) -> None:
    objects = by_name(helm.rendered({"namespaces": ["team-a"]}, namespace="tools"))

    (bound,) = [name for kind, namespace, name in objects if (kind, namespace) == ("RoleBinding", "tools")]
    role = objects["Role", "tools", objects["RoleBinding", "tools", bound]["roleRef"]["name"]]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]} in role["rules"]


def variables_of(objects: dict[tuple[str, str, str], Json]) -> list[Json]:
    found: list[Json] = container_of([objects["Deployment", "default", "tarragon"]])["env"]
    return found


def values() -> Json:
    found: Json = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


MANY_VALUES = f"""
image:
  repository: registry.example.com/tarragon
  tag: 1.2.3
  digest: sha256:{"a" * 64}
  pullPolicy: Always
  pullSecrets: [{{name: registry}}]
commonLabels: {{team: ml}}
podLabels: {{colour: red}}
podAnnotations: {{note: hello}}
serviceAccount: {{annotations: {{role: arn}}}}
replicas: 3
resources: {{limits: {{memory: 2Gi}}}}
priorityClassName: system-cluster-critical
nodeSelector: {{pool: system}}
tolerations: [{{key: control, operator: Exists}}]
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - labelSelector: {{matchLabels: {{app.kubernetes.io/name: tarragon}}}}
      topologyKey: kubernetes.io/hostname
topologySpreadConstraints: null
podSecurityContext: {{runAsUser: null, runAsGroup: null, fsGroup: null}}
scheduling:
  policy: dragon
  placement: affinity
  aged: 0
  idle: 1.5
  coolDown: 1000000
  patience: 30
  startPatience: 600
  podGroups: {{default-scheduler: native}}
progress: {{fromLogs: true, url: "https://reports.example.com"}}
metrics:
  serviceMonitor: {{enabled: true, interval: 1m, labels: {{release: prometheus}}}}
  prometheusRule: {{enabled: true, labels: {{release: prometheus}}}}
extraArgs: [--lease-duration=30, -v]
extraEnv: [{{name: HTTPS_PROXY, value: "http://proxy:3128"}}]
"""


@pytest.mark.helm
def test_every_value_arrives_where_kubernetes_and_the_operator_understand_it(helm: Helm) -> None:
    objects = helm.rendered({**EVERY_COMPONENT, **yaml.safe_load(MANY_VALUES)}, namespace="ml-operators")
    assert NAMESPACE not in json.dumps(objects)
    for each in objects:
        if each["kind"] in {"ServiceMonitor", "PrometheusRule"}:
            assert each["metadata"]["labels"]["release"] == "prometheus"
        elif each["kind"] != "CustomResourceDefinition":
            kubernetes_validate.validate(each, "1.37", strict=True)
        if each["kind"] != "CustomResourceDefinition":
            assert each["metadata"]["labels"]["team"] == "ml"
    (monitor,) = [each for each in objects if each["kind"] == "ServiceMonitor"]
    assert monitor["spec"]["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "1m"}]
    operator = operator_of(objects)
    assert operator["spec"]["replicas"] == 3
    assert operator["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": "tarragon"}}
    assert operator["spec"]["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": "tarragon", "colour": "red"}
    assert operator["spec"]["template"]["metadata"]["annotations"]["note"] == "hello"
    has_the_fields_that_were_given(operator["spec"]["template"]["spec"])
    understands_its_arguments(container_of(objects)["args"])


def has_the_fields_that_were_given(pod: Json) -> None:
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert (pod["priorityClassName"], pod["nodeSelector"]) == ("system-cluster-critical", {"pool": "system"})
    assert pod["tolerations"] == [{"key": "control", "operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert [*pod["affinity"]] == ["podAntiAffinity"]
    assert "topologySpreadConstraints" not in pod
    (container,) = pod["containers"]
    assert container["image"] == f"registry.example.com/tarragon:1.2.3@sha256:{'a' * 64}"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"]["limits"]["memory"] == "2Gi"
    assert container["env"][-1] == {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}


def understands_its_arguments(arguments: list[str]) -> None:
    (name, *given) = arguments
    queues = str(DEPLOY / "components" / "queues" / "queues.yaml")
    given = [each.replace("/etc/tarragon-queues/queues.yaml", queues) for each in given if each != "-v"]
    options = operator_command.make_context(name, given).params

    assert name == "operator"
    assert {key: options[key] for key in EXPECTED} == EXPECTED


EXPECTED = {
    "policy": "dragon",
    "placement": "affinity",
    "aged": 0,
    "idle": 1.5,
    "cool_down": 1_000_000,
    "patience": 30,
    "start_patience": 600,
}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("replica=3", ["replica"]),
        ("image.tga=1", ["image", "tga"]),
        ("replicas=many", ["replicas", "integer"]),
        ("scheduling.policy=fair", ["scheduling", "policy", "fifo"]),
        ("image.pullPolicy=Sometimes", ["pullPolicy", "IfNotPresent"]),
        ("image.digest=abc", ["digest", "sha256"]),
        ("namespaces={Team_A}", ["namespaces"]),
        ("queues.namespaces.team-a.wieght=2", ["team-a", "wieght"]),
        ("tolerations[0].efect=NoSchedule", ["tolerations", "efect"]),
        ("networkPolicy.enabled=true", ["networkPolicy.apiServer", "kubectl get service,endpoints"]),
        ("namespaces={a},queues.enabled=true", ["queues.enabled", "namespaces"]),
        ("namespaces={a},progress.fromLogs=true", ["progress.fromLogs", "namespaces"]),
        ("replicas=1,podDisruptionBudget.enabled=true", ["podDisruptionBudget.minAvailable", "replicas"]),
        (r"commonLabels.app\.kubernetes\.io/name=mine", ["commonLabels", "app.kubernetes.io"]),
        (r"podLabels.app\.kubernetes\.io/name=mine", ["podLabels", "app.kubernetes.io"]),
        (r"podAnnotations.tarragon\.dev/accelerators=x", ["podAnnotations", "tarragon.dev"]),
        ("commonLabels.release=a,metrics.serviceMonitor.labels.release=a", ["serviceMonitor.labels", "release"]),
        ("metrics.service=false,metrics.serviceMonitor.enabled=true", ["metrics.serviceMonitor", "metrics.service "]),
    ],
)
def test_values_that_cannot_be_meant_are_refused_by_name(either_helm: Helm, setting: str, words: list[str]) -> None:
    complaint = either_helm.fails("template", str(CHART), "--set", setting)

    assert [word for word in words if word not in complaint] == [], complaint


def test_every_value_is_described_and_its_default_is_allowed() -> None:
    described = read((CHART / "values.yaml").read_text())

    assert {"image.repository", "crds.keep", "resources", "kinds"} <= {value.path for value in described}
    assert all(value.description.endswith((".", ":", "…")) for value in described)
    with pytest.raises(ValueError, match=r"values\.yaml: a\.c has no comment"):
        read("a:\n  # Is described.\n  b: 1\n  c: 2\n")


def test_a_manifest_that_differs_from_the_default_values_is_reported() -> None:
    with pytest.raises(ValueError, match=r"values\.yaml: replicas is 5, but in the manifests it is 2"):
        dict(templates({**values(), "replicas": 5}))
    with pytest.raises(ValueError, match=r"values\.yaml: resources is"):
        dict(templates({**values(), "resources": {}}))

"""Checks an installed operator: versions, its Deployment, its metrics, configuration and certificate. Pure."""

from __future__ import annotations

import base64
import datetime as dt
import importlib.util
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from tarragon import __version__
from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count, duration_text, joined
from tarragon.kube.meta import Json, JsonObject
from tarragon.operator.manager.own_image import OWN_CONTAINER
from tarragon.operator.progress.authority import RENEW_BEFORE
from tarragon.plan.config.published import SHARES_CONFIG_MAP, decode_rules, decode_shares
from tarragon.plan.config.queues import decode_queue_file

TESTED = ((1, 20), (1, 37))
"""The oldest and the newest version of Kubernetes that the tests run on."""
_APPLY = "kubectl apply -k deploy"
_UNREAD = "unknown: reading it needs the extra `local`, which is not installed"
_SOON = dt.timedelta(days=30)
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_VERSION_LABEL = re.compile(r'version="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that Tarragon uses where the server has it, since a minor version of Kubernetes."""

    since: int
    name: str


FEATURES = (
    Feature(21, "PodDisruptionBudget of policy/v1 (component `disruption-budget`)"),
    Feature(25, "rules in CRDs, by which the server rejects invalid jobs"),
    Feature(29, "a priority level of the operator's own (component `flow-control`)"),
    Feature(29, "sidecar containers"),
    Feature(30, "admission policies (component `admission-policy`)"),
    Feature(31, "jobs selected by state (`kubectl get --field-selector`)"),
    Feature(33, "resizing of pods in place"),
    Feature(34, "pod-level resources"),
)
"""In the order of the versions that brought them, or switched them on by default."""
REQUIRED_APIS = (
    "apiextensions.k8s.io/v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "coordination.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
)
"""What the operator calls besides the core API and the kinds of jobs."""


def check_version(version: str) -> Iterator[Finding]:
    """Compare the server's version with those that are tested, and say what only newer ones have."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        yield Finding("warning", "version", f"{version} is no version that Tarragon can compare")
        return
    found = int(match[1]), int(match[2])
    oldest, newest = (".".join(map(str, each)) for each in TESTED)
    if TESTED[0] <= found <= TESTED[1]:
        yield Finding("ok", "version", f"{version} is within what is tested, {oldest} to {newest}")
    else:
        yield Finding("warning", "version", f"{version} is not within what is tested, {oldest} to {newest}")
    missing = [f"{each.name} (1.{each.since})" for each in FEATURES if found < (1, each.since)]
    text = f"not in this version: {joined(missing)}" if missing else "the server has all that Tarragon makes use of"
    yield Finding("ok", "features", text)


def check_apis(served: Collection[str]) -> Finding:
    missing = [each for each in REQUIRED_APIS if each not in served]
    if missing:
        text = f"the server does not serve {joined(missing)}, which the operator needs"
        return Finding("error", "apis", text, "is it switched off by --runtime-config of the API server?")
    return Finding("ok", "apis", f"the server serves the {len(REQUIRED_APIS)} APIs that the operator needs")


def check_deployments(deployments: Sequence[JsonObject], crashes: Mapping[str, str]) -> Iterator[Finding]:
    """Check the roll-out and the image's version of each Deployment of an operator.

    `crashes` says, by namespace, how an operator has ended that should run.
    """
    if not deployments:
        text = "no Deployment has the label app.kubernetes.io/name=tarragon: an operator may run outside of the cluster"
        yield Finding("warning", "deployment", text, f"{_APPLY} installs one")
    for each in deployments:
        yield _rollout(each, crashes.get(each["metadata"]["namespace"], ""))
        yield _image(each)


def _rollout(deployment: JsonObject, crash: str) -> Finding:
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    where = f"{metadata['namespace']}/{metadata['name']}"
    wanted = deployment["spec"].get("replicas", 1)
    ready, updated = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    text = f"{where}: {ready} of {wanted} ready"
    look = f"kubectl -n {metadata['namespace']} describe pods -l app.kubernetes.io/name=tarragon"
    if not ready and crash:
        logs = f"kubectl -n {metadata['namespace']} logs deployment/{metadata['name']}"
        return Finding("error", "deployment", f"{text}; {crash}", f"{logs} shows all that it said")
    if not ready:
        return Finding("error", "deployment", text, look)
    is_rolled_out = status.get("observedGeneration", 0) >= metadata.get("generation", 0) and updated >= wanted
    if ready < wanted or not is_rolled_out:
        return Finding("warning", "deployment", f"{text}, {updated} updated", look)
    return Finding("ok", "deployment", text)


def _image(deployment: JsonObject) -> Finding:
    image = container_of(deployment).get("image", "")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if not tag:
        return Finding("ok", "image", f"{image} does not say its version")
    if tag.removeprefix("v").partition("-")[0] == __version__.partition("+")[0]:
        return Finding("ok", "image", f"{image} is of this version")
    text = f"{image} and this command line, {__version__}, are of different versions"
    return Finding("warning", "image", text, "use the command line of the operator's version, or upgrade the other one")


def container_of(deployment: JsonObject) -> JsonObject:
    return own_container(deployment["spec"]["template"])


def own_container(pod: JsonObject) -> JsonObject:
    """The operator's container; a service mesh may add others before it."""
    containers: Sequence[JsonObject] = pod["spec"]["containers"]
    return next((each for each in containers if each["name"] == OWN_CONTAINER), containers[0])


def check_disruption_budgets(deployment: JsonObject, budgets: Sequence[JsonObject] | None) -> Finding:
    """Check that something keeps drains from stopping all operators at once. None: the list is forbidden or unknown."""
    where = deployment["metadata"]["namespace"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    if budgets is None:
        return Finding("ok", "disruption", "unknown: PodDisruptionBudgets of policy/v1 can't be listed")
    if any(_selects(each["spec"].get("selector"), labels) for each in budgets):
        return Finding("ok", "disruption", f"a PodDisruptionBudget keeps an operator in {where} during drains")
    text = f"no PodDisruptionBudget selects the operators in {where}: a drain may stop all at once, for some seconds"
    return Finding(
        "warning",
        "disruption",
        text,
        "add the component disruption-budget (`tarragon docs install#optional-components`)",
    )


def _selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    wanted = (selector or {}).get("matchLabels") or {}
    return bool(wanted) and wanted.items() <= labels.items()


def check_published(home: str, rules: Mapping[str, str] | None, shares: Mapping[str, str] | None) -> Finding:
    """Check the scheduling configuration that the operator has published in its namespace."""
    if rules is None:
        text = f"the operator has published no scheduling configuration in {home}: `why` assumes the default one"
        return Finding("warning", "config", text, "it does so when it leads, if it may: see its log")
    decoded = decode_rules(rules)
    if decoded is None or (decoded[1] and decode_shares(decoded[0], shares or {}) is None):
        text = f"the scheduling configuration in {home} can't be read by this version"
        return Finding("warning", "config", text, "use the command line of the operator's version")
    published, number = decoded
    more = f", with {count(number, 'share')} in {SHARES_CONFIG_MAP}" if number else ""
    return Finding("ok", "config", f"policy {published.policy}{more}")


def check_queues(where: str, content: str | None) -> Finding:
    """Check a queues file, which is in a ConfigMap."""
    remedy = (
        "see `tarragon docs scheduling#queues`; until it is valid, the rules from before the last edit are in effect"
    )
    if content is None:
        return Finding("warning", "queues", f"{where} is missing", remedy)
    try:
        problems = decode_queue_file(yaml.safe_load(content)).problems
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return Finding("warning", "queues", f"{where} is no YAML: {' '.join(str(error).split())}", remedy)
    if problems:
        return Finding("warning", "queues", f"{where} is invalid: {problems[0]}", remedy)
    return Finding("ok", "queues", f"{where} is valid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapedPod:
    """What /metrics of an operator's pod says, or why it could not be read."""

    name: str
    text: str = ""
    error: str = ""


def check_metrics(pods: Sequence[ScrapedPod]) -> Iterator[Finding]:
    """Say who leads and who is ready, by their own account."""
    if not pods:
        yield Finding("ok", "metrics", "no pod of an operator runs")
    leaders = [pod.name for pod in pods if _value(pod.text, "tarragon_is_leader")]
    for pod in pods:
        yield _scraped(pod)
    if len(leaders) > 1:
        yield Finding(
            "error", "metrics", f"{joined(leaders)} all lead", "`tarragon docs operate#tarragonseveralleaders`"
        )


def _scraped(pod: ScrapedPod) -> Finding:
    if pod.error:
        text = f"those of {pod.name} can't be read through the API server: {pod.error}"
        return Finding("warning", "metrics", text, "is it ready, and does a network policy let the API server in?")
    version = _VERSION_LABEL.search(pod.text)
    state = "leads" if _value(pod.text, "tarragon_is_leader") else "stands by"
    text = f"{pod.name} {state}, version {version[1] if version else 'unknown'}"
    if _value(pod.text, "tarragon_is_ready"):
        return Finding("ok", "metrics", text)
    return Finding("warning", "metrics", f"{text}, and is not ready", "`tarragon docs operate#tarragonnotready`")


def _value(text: str, name: str) -> float:
    return next((float(each["value"]) for each in _SAMPLE.finditer(text) if each["name"] == name), 0.0)


def check_progress_authority(secret: JsonObject, now: dt.datetime) -> Finding:
    """Check the authority that signs the certificates of the endpoint for progress reports."""
    encoded = (secret.get("data") or {}).get("ca.crt")
    if not encoded:
        return Finding("ok", "certificate", "no authority for progress reports yet: a leader issues it")
    if not _reads_certificates():
        return Finding("ok", "certificate", f"the end of the authority for progress reports is {_UNREAD}")
    from tarragon.base.certificate_authority import expiry

    try:
        ends = expiry(base64.b64decode(encoded, validate=True))
    except ValueError:
        text = "the authority for progress reports in the Secret tarragon-progress is no certificate"
        return Finding("warning", "certificate", text, "delete the Secret's data: the operator issues a new one")
    text = f"the authority for progress reports ends on {ends:%Y-%m-%d}"
    if ends - now > RENEW_BEFORE - _SOON:
        return Finding("ok", "certificate", text)
    late = f"{text}, and no operator has replaced it: a new one does so a year before"
    return Finding("warning", "certificate", late, "kubectl -n tarragon-system rollout restart deployment/tarragon")


def check_client_certificate(certificate: bytes, now: dt.datetime) -> Iterator[Finding]:
    """Check the client certificate of the kubeconfig, if it has one."""
    if not certificate:
        return
    if not _reads_certificates():
        yield Finding("ok", "credentials", f"the end of the kubeconfig's client certificate is {_UNREAD}")
        return
    from tarragon.base.certificate_authority import expiry

    try:
        left = expiry(certificate) - now
    except ValueError:
        return
    if left < dt.timedelta():
        text = f"the kubeconfig's client certificate expired {duration_text(-left.total_seconds())} ago"
        yield Finding("error", "credentials", text, "ask the administrator for a new one")
    elif left < _SOON:
        text = f"the kubeconfig's client certificate expires in {duration_text(left.total_seconds())}"
        yield Finding("warning", "credentials", text, "ask the administrator for a new one")
    else:
        yield Finding("ok", "credentials", f"the kubeconfig's client certificate is valid for {left.days} days")


def _reads_certificates() -> bool:
    """The client of a cluster is installed without cryptography."""
    return importlib.util.find_spec("cryptography") is not None


def mounted_config(deployment: JsonObject, option: str) -> tuple[str, str] | None:
    """Return the ConfigMap and the key that an option such as `--queues` names; None if it is not given so."""
    container = container_of(deployment)
    paths = [each.partition("=")[2] for each in container.get("args") or () if each.startswith(f"{option}=")]
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"].get("volumes") or ()}
    for path in paths:
        for mount in container.get("volumeMounts") or ():
            source: Json = volumes.get(mount["name"], {}).get("configMap")
            if source and path.startswith(f"{mount['mountPath']}/"):
                return source["name"], path.removeprefix(f"{mount['mountPath']}/")
    return None

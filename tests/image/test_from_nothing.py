"""From an empty cluster to an empty one, as docs/install.md and docs/helm.md say it, with the operator in the image.

The Deployment's own pods run: Kubernetes creates, places, probes and replaces them. What a container engine would do,
the nodes do by `chroot`: no engine is on the machines that run the tests.
"""

from __future__ import annotations

import re
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
import yaml

from tarragon.kube.codec import parse_time
from tests.conftest import ROOT, helm_program
from tests.deploy.helm_program import CHART, NAMESPACE, Helm
from tests.deploy.leftovers import KINDS, LEFT_BY_HELM, listed_objects, listing
from tests.deploy.stage import unvalidated
from tests.e2e.user import eventually
from tests.image.container import Container
from tests.image.machine import LABEL, machines
from tests.real.conftest import VOLUME
from tests.real.site import Site, a_site, created_pods
from tests.real.test_training import follow_until
from tools.controlplane import NEWEST, OLDEST, ControlPlane

pytestmark = [
    *(pytest.mark.image, pytest.mark.real, pytest.mark.tensorflow, pytest.mark.kubectl),
    *(pytest.mark.slow, pytest.mark.timeout(1200)),
]

IMAGE = "registry.example.com/tarragon"
PLACED = {
    "nodeSelector": {LABEL: "operators"},
    "tolerations": [{"key": LABEL, "operator": "Exists"}],
    # On a node without containers, two would want the same ports, also while one of them is ending.
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "tarragon"}},
                }
            ]
        }
    },
}
STEPS = 4000
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: %s}
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: tensorflow
            image: any
            command: [python, -c, "import time; time.sleep(%s)"]
"""


class Way(ABC):
    """How a platform engineer installs."""

    left: AbstractSet[str] = frozenset()
    """What an uninstallation leaves besides the jobs, as docs/helm.md or docs/install.md says."""
    keeps_jobs = False

    @abstractmethod
    def install(self, site: Site, tag: str) -> None: ...

    def upgrade(self, site: Site, tag: str) -> None:
        self.install(site, tag)

    @abstractmethod
    def uninstall(self, site: Site) -> None: ...


class ByHelm(Way):
    left = LEFT_BY_HELM
    keeps_jobs = True

    def __init__(self, folder: Path) -> None:
        program = helm_program()
        assert program
        self._helm = Helm(program, folder)

    def install(self, site: Site, tag: str, verb: str = "install") -> None:
        values = self._helm.home / "values.yaml"
        values.write_text(yaml.safe_dump({"image": {"repository": IMAGE, "tag": tag}, **PLACED}))
        words = (verb, "tarragon", str(CHART), "-n", NAMESPACE, "--create-namespace", "-f", str(values))
        self._helm(*words, kubeconfig=site.plane.kubeconfig)

    def upgrade(self, site: Site, tag: str) -> None:
        self.install(site, tag, "upgrade")

    def uninstall(self, site: Site) -> None:
        self._helm("uninstall", "tarragon", "-n", NAMESPACE, kubeconfig=site.plane.kubeconfig)


class ByKubectl(Way):
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "mine"
        shutil.copytree(ROOT / "deploy", self._folder / "deploy", ignore=shutil.ignore_patterns("chart"))

    def install(self, site: Site, tag: str) -> None:
        pod = {"spec": {"template": {"spec": PLACED}}}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tarragon"}, **pod}
        mine = {
            "resources": ["deploy"],
            "images": [{"name": "tarragon", "newName": IMAGE, "newTag": tag}],
            "patches": [{"patch": yaml.safe_dump(deployment), "target": {"kind": "Deployment"}}],
        }
        (self._folder / "kustomization.yaml").write_text(yaml.safe_dump(mine))
        site.kubectl("apply", "-k", str(self._folder), *unvalidated(site.plane))

    def uninstall(self, site: Site) -> None:
        site.kubectl("delete", "-k", str(self._folder), "--ignore-not-found")


@dataclass
class Traffic:
    """Short jobs keep coming."""

    site: Site
    names: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._send)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._is_over.wait(1.0):
            name = f"short-{len(self.names)}"
            self.site.kubectl("create", "-f", "-", given=JOB % (name, 0.5))
            self.names.append(name)


@pytest.fixture
def site(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with a_site(own_control_plane, tmp_path) as site:
        site.node()
        site.kubectl("create", "-f", "-", given=VOLUME % site.models)
        yield site


@pytest.fixture
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    made: Way = request.param(tmp_path)
    return made


@pytest.mark.parametrize(
    ("release", "way"),
    [
        pytest.param(NEWEST, ByHelm, id="1.37-helm", marks=pytest.mark.helm),
        pytest.param(OLDEST, ByKubectl, id="1.20-kubectl", marks=pytest.mark.oldest),
        # Each takes forty seconds; what the others do not show is what differs between two releases for one way.
        pytest.param(NEWEST, ByKubectl, id="1.37-kubectl", marks=pytest.mark.soak),
        pytest.param(OLDEST, ByHelm, id="1.20-helm", marks=[pytest.mark.helm, pytest.mark.oldest, pytest.mark.soak]),
    ],
    indirect=True,
)
def test_it_is_installed_trains_a_job_is_upgraded_meanwhile_and_leaves_only_what_it_says(
    site: Site, way: Way, container: Container
) -> None:
    before = everything(site)
    # One more than there are operators: Kubernetes starts the next one before it ends one.
    with machines(site, container, IMAGE, 3):
        way.install(site, "1.0")
        rolls_out(site)
        site.kubectl("create", "-f", "-", given=JOB % ("endless", 3600))
        both = {"endless-worker-0 Running", "endless-worker-1 Running"}
        eventually(lambda: replicas(site, "endless").keys() == both)
        endless = replicas(site, "endless")

        trains_through_an_upgrade(site, way)

        eventually(lambda: container.users() == [65532, 65532])
        created = created_pods(site)
        assert {"default/digits-ps-chief-0", "default/short-0-worker-0"} <= created.keys()
        assert {name: times for name, times in created.items() if times > 1} == {}
        assert replicas(site, "endless") == endless
        way.uninstall(site)
        leaves(site, before, way.left)
        if way.keeps_jobs:
            assert replicas(site, "endless") == endless
        else:
            eventually(lambda: site.kubectl("get", "pods,services", "-o", "name").split() == ["service/kubernetes"])


def trains_through_an_upgrade(site: Site, way: Way) -> None:
    """While short jobs come and go."""
    site.kubectl("create", "-f", "-", given=training())
    site.wait("tfjob", "digits-ps", "condition=Running")
    follow_until(rf"step (\d+) of {STEPS}", site, "digits-ps-chief-0")
    former = operators(site)
    with Traffic(site) as traffic:
        way.upgrade(site, "2.0")
        rolls_out(site)
        eventually(lambda: len(operators(site)) == len(former))
    assert set(operators(site).values()) == {f"{IMAGE}:2.0"} != set(former.values())
    eventually(lambda: leader_of(site) in operators(site))
    assert traffic.names
    for name in ("digits-ps", *traffic.names):
        site.wait("tfjob", name, "condition=Succeeded")
    ended = site.read("tfjob", "digits-ps")["status"]["completionTime"]
    rolled_at = min(site.read("pod", name, NAMESPACE)["metadata"]["creationTimestamp"] for name in operators(site))
    assert parse_time(ended) > parse_time(rolled_at)
    assert re.search(rf"^done: steps={STEPS // 1000}\d{{3}} ", site.kubectl("logs", "digits-ps-chief-0"), re.MULTILINE)


def training() -> str:
    text = (ROOT / "examples/tensorflow/ps.yaml").read_text()
    assert f'"{STEPS}"' in text
    return text


def rolls_out(site: Site) -> None:
    site.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/tarragon", "--timeout=100s")


def operators(site: Site) -> dict[str, str]:
    """The images of the Deployment's pods, by name."""
    lines = "jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].image}{'\\n'}{end}"
    listed = site.kubectl("get", "-n", NAMESPACE, "pods", "-o", lines, "-l", "app.kubernetes.io/name=tarragon")
    return dict(line.split() for line in listed.splitlines())


def leader_of(site: Site) -> str:
    """The pod that leads."""
    holder: str = site.read("lease", "tarragon", NAMESPACE)["spec"].get("holderIdentity") or ""
    return holder.partition("_")[0]


def replicas(site: Site, job: str) -> dict[str, str]:
    """The UIDs of a job's pods, by name and phase."""
    lines = "jsonpath={range .items[*]}{.metadata.name} {.status.phase}={.metadata.uid}{'\\n'}{end}"
    listed = site.kubectl("get", "pods", "-o", lines, "-l", f"training.kubeflow.org/job-name={job}")
    return dict(line.split("=") for line in listed.splitlines())


def everything(site: Site) -> set[str]:
    return listed_objects(site.kubectl(*listing(site.kubectl(*KINDS))))


def leaves(site: Site, before: AbstractSet[str], expected: AbstractSet[str]) -> None:
    """Return when that is all that is there and was not before: the garbage collector works on."""
    found: set[str] = set()

    def is_all() -> bool:
        found.clear()
        with suppress(AssertionError):  # kinds that have just gone may be listed still
            found.update(everything(site) - before)
            return found == expected
        return False

    try:
        eventually(is_all)
    except pytest.fail.Exception:
        raise AssertionError(f"missing: {expected - found}; not expected: {found - expected}") from None

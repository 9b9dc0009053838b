"""What a test may need, and what happens where that is missing: a loud skip, or a failure if it was required."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, settings

from tools.controlplane import NEWEST, OLDEST, ControlPlane, Release

# A property must hold however slow or busy the machine is; a time limit would only make its test fail at random.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
OLDEST_KUBECTL = 27
HELM_4 = ROOT / ".tools" / "bin" / "helm-4"
NEWEST_KUBECTL = ROOT / ".tools" / "bin" / "kubectl-1.36"
REAL = ("cluster", "real")
API_TESTS = frozenset({"auth", "client", "contract", "controllers", "helm"})
SHARED_CLUSTERS = frozenset(
    {
        "streams",
        "test_hostile_text.py",
        "test_rules_of_looking.py",
        "test_rules_of_output.py",
        "test_stranger.py",
        "test_top.py",
    }
)
"""Folders and files whose tests share an embedded cluster that takes some seconds to start."""
SHARED_PLANES = frozenset({"control_plane", "control_plane_with_kinds", "installed"})
"""Fixtures of a session: control planes that many tests use."""
LAST_USER_OF = pytest.StashKey[frozenset[str]]()
"""The shared control planes of which a test is the last user in its group."""
BOTH_RELEASES = (
    pytest.param(NEWEST, id=NEWEST.name),
    pytest.param(OLDEST, id=OLDEST.name, marks=pytest.mark.oldest),
)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process that hides nothing by itself: modes are what the program asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


def others_can_reach(folder: Path) -> list[str]:
    """What is below a folder that everybody may enter, and can be read, written or entered by others than its owner."""
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if path.is_symlink() or not mode & 0o077:
            continue
        found.append(f"{path} {stat.S_IMODE(mode):o}")
        if path.is_dir() and mode & 0o011:
            found += others_can_reach(path)
    return found


def lacks_tensorflow() -> str | None:
    if importlib.util.find_spec("tensorflow") is None:
        return "TensorFlow is not installed here; `make test` installs it"
    return None


def lacks_jax() -> str | None:
    return None if importlib.util.find_spec("jax") else "JAX is not installed here; `make test` installs it"


def lacks_mpi() -> str | None:
    if importlib.util.find_spec("mpi4py") is None or shutil.which("mpirun", path=Path(sys.executable).parent) is None:
        return "mpi4py or mpirun is not installed here; `make test` installs them"
    return None


def lacks_kubectl() -> str | None:
    return kubectl_fault()


@functools.cache
def kubectl_fault() -> str | None:
    """Older ones read OpenAPI v2 and say things in other words than tests expect."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return f"kubectl is not on PATH; any from 1.{OLDEST_KUBECTL} on will do"
    version = subprocess.run(
        [kubectl, "version", "--client", "-o", "json"], capture_output=True, check=False, timeout=60
    )
    minor = int(json.loads(version.stdout)["clientVersion"]["minor"].rstrip("+"))
    if minor < OLDEST_KUBECTL:
        return f"{kubectl} is version 1.{minor}; the embedded API wants 1.{OLDEST_KUBECTL} or newer"
    return None


def lacks_helm() -> str | None:
    return helm_fault()


@functools.cache
def helm_fault() -> str | None:
    """Version 4 says things in other words than tests expect."""
    helm = helm_program()
    if helm is None:
        return "helm 3 is not here: `make helm` builds it (with go), or any on PATH will do"
    version = subprocess.run([helm, "version", "--short"], capture_output=True, text=True, check=False, timeout=60)
    if not version.stdout.startswith("v3."):
        return f"{helm} is {version.stdout.strip() or 'of no version'}; the tests want helm 3: `make helm` builds it"
    return None


def helm_program() -> Path | None:
    """The one that we have built, else the user's."""
    ours = ROOT / ".tools" / "bin" / "helm"
    found = ours if ours.exists() else shutil.which("helm")
    return Path(found) if found else None


def lacks_helm4() -> str | None:
    return None if HELM_4.exists() else "helm 4 is not here: `make helm4` builds it (with go)"


def lacks_newest_kubectl() -> str | None:
    return None if NEWEST_KUBECTL.exists() else "kubectl 1.36 is not here: `make kubectl` builds it (with go)"


def lacks_jq() -> str | None:
    return None if shutil.which("jq") else "jq is not on PATH; Debian's package is jq"


def lacks_rsyslog() -> str | None:
    if rsyslogd() is None:
        return "rsyslogd is not installed here; Debian's package is rsyslog"
    return None


def rsyslogd() -> str | None:
    """Where users do not look for programs."""
    return shutil.which("rsyslogd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def lacks_promtool() -> str | None:
    return None if promtool() else "promtool is not here: `make promtool` takes it from Debian's packages"


def promtool() -> Path | None:
    """Where `make promtool` puts it, or on PATH."""
    ours = ROOT / ".tools" / "bin" / "promtool"
    found = ours if ours.exists() else shutil.which("promtool")
    return Path(found) if found else None


def lacks_sshd() -> str | None:
    programs = (Path("/usr/sbin/sshd"), *(shutil.which(name) for name in ("ssh", "ssh-keygen")))
    if not all(each and Path(each).exists() for each in programs):
        return "OpenSSH is not installed here; Debian's package is openssh-server"
    return None


@functools.cache
def lacks_image() -> str | None:
    """What building an image and running programs in it need; whether there is a network, the build finds out."""
    if platform.system() != "Linux" or platform.machine() not in {"x86_64", "aarch64"}:
        return "images are built and run on Linux on x86-64 or ARM64"
    if not (ROOT / ".tools" / "bin" / "uv").exists():
        return ".tools/bin/uv is not here; `make test` installs it"
    if shutil.which("go") is None:
        return "kubectl in the image is built with go (1.26 or newer), which is not on PATH"
    if (
        os.getuid() != 0
        or subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode
    ):
        return "only root, with the right to mount and to make a network, can run programs of an image"
    return None


# Marker -> why a test that carries it cannot run on this machine, or None.
NEEDS: Mapping[str, Callable[[], str | None]] = MappingProxyType(
    {
        "tensorflow": lacks_tensorflow,
        "jax": lacks_jax,
        "mpi": lacks_mpi,
        "kubectl": lacks_kubectl,
        "newest_kubectl": lacks_newest_kubectl,
        "image": lacks_image,
        "helm": lacks_helm,
        "helm4": lacks_helm4,
        "jq": lacks_jq,
        "rsyslog": lacks_rsyslog,
        "sshd": lacks_sshd,
        "promtool": lacks_promtool,
        "real": NEWEST.missing_reason,
        "oldest": OLDEST.missing_reason,
    }
)


def required() -> frozenset[str]:
    """Markers whose tests must not be skipped: TARRAGON_REQUIRE=tensorflow,mpi,kubectl,helm,real."""
    names = frozenset(filter(None, os.environ.get("TARRAGON_REQUIRE", "").split(",")))
    if unknown := names - NEEDS.keys():
        raise pytest.UsageError(f"TARRAGON_REQUIRE: {', '.join(sorted(unknown))} is none of {', '.join(NEEDS)}")
    return names


def pytest_configure() -> None:
    required()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("both_releases"):
        metafunc.parametrize("release", BOTH_RELEASES, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.timeout(600))  # as above: hundreds of cases are not to fail at random
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    last_users = {(group_of(item), plane): item for item in items for plane in planes_of(item)}
    for (_, plane), item in last_users.items():
        item.stash[LAST_USER_OF] = item.stash.get(LAST_USER_OF, frozenset()) | {plane}


def group_of(item: pytest.Item) -> str | None:
    """Tests of one group run in one process, one at a time; the machine is small, and some of them are large."""
    if item.get_closest_marker("oldest") and not item.get_closest_marker("image"):
        return f"Kubernetes {OLDEST.name}"
    if item.get_closest_marker("image"):
        # One of them builds it. Some train, too: at most two trainings run at once.
        return "image"
    if item.get_closest_marker("tensorflow") or item.get_closest_marker("jax"):
        # Each starts several processes that train: one such test at a time is enough for any machine.
        return "tensorflow"
    parts = item.path.relative_to(ROOT).parts
    if {"own_control_plane", "emptied_control_plane", "with_gangs"} & set(getattr(item, "fixturenames", ())):
        # Two groups: in one process they take longer than all others together in theirs.
        return "faults" if "real" in parts else "own control plane"
    if item.get_closest_marker("real"):
        # They share a control plane, which takes some seconds to start: one for what asks the API, one for what runs.
        return "real api" if API_TESTS & set(parts) else "real"
    return next((part for part in parts if part in SHARED_CLUSTERS), None)


def planes_of(item: pytest.Item) -> frozenset[str]:
    return SHARED_PLANES.intersection(getattr(item, "fixturenames", ()))


_started_planes: dict[str, tuple[pytest.FixtureDef[object], pytest.FixtureRequest]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Generator[None]:
    if fixturedef.argname in SHARED_PLANES:
        _started_planes[fixturedef.argname] = fixturedef, request
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """End a shared control plane after its last test: idle, it computes a twentieth of a core. If another group of the
    same process wants it, it is started anew.
    """
    yield
    for plane in item.stash.get(LAST_USER_OF, frozenset()) & _started_planes.keys():
        definition, request = _started_planes.pop(plane)
        definition.finish(request)  # type: ignore[arg-type]  # a request of a fixture, which pytest does not export


@pytest.fixture(scope="session", autouse=True)
def _programs_in_go_collect_less_garbage() -> None:
    """A fifth of what a control plane and kubectl compute is that; here memory is cheaper."""
    os.environ.setdefault("GOGC", "400")


@pytest.fixture(scope="session", autouse=True)
def _heard_by_what_we_start() -> None:
    """A shell ignores these for what it runs in the background, and nohup the second one, and that is inherited.

    A handler is not: programs that tests start hear them, and the tests go on, as whoever started them so has meant.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> Release:
    """The newest; tests marked `both_releases` run on the oldest, too."""
    chosen: Release = getattr(request, "param", NEWEST)
    return chosen


@pytest.fixture(scope="session")
def control_plane(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real one that all tests of this process share: use a namespace of your own, and leave it running."""
    plane = ControlPlane.start(tmp_path_factory.mktemp("control-plane"), release)
    yield plane
    plane.stop()


@pytest.fixture
def own_control_plane(release: Release, tmp_path: Path) -> Iterator[ControlPlane]:
    """A real one for a single test, which may break it."""
    plane = ControlPlane.start(tmp_path / "control-plane", release)
    yield plane
    plane.stop()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, lacks in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := lacks()):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("real"):
        report.user_properties.append(REAL)
    demanded = sorted(marker for marker in required() if item.get_closest_marker(marker))
    excused = any(
        lacks() for marker, lacks in NEEDS.items() if marker not in demanded and item.get_closest_marker(marker)
    )
    if report.skipped and demanded and not excused and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"TARRAGON_REQUIRE demands {', '.join(demanded)}, but this test was skipped: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much of what was said was said of a real control plane."""
    counts = {
        outcome: sum(
            REAL in map(tuple, getattr(report, "user_properties", ()))
            for report in terminalreporter.getreports(outcome)
            if outcome != "passed" or report.when == "call"
        )
        for outcome in ("passed", "skipped", "failed", "error")
    }
    if any(counts.values()):
        bad = counts["failed"] + counts["error"]
        summary = f"real cluster: {counts['passed']} passed, {counts['skipped']} skipped"
        terminalreporter.write_line(summary + (f", {bad} failed" if bad else ""))

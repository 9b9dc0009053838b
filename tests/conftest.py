"""What a test may need, and what happens where that is missing: a loud skip, or a failure if it was required."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, settings

# A property must hold however slow or busy the machine is; a time limit would only make its test fail at random.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
OLDEST_KUBECTL = 27
SHARED_CONTROL_PLANE = ROOT.parent / "shared" / "kubernetes"


def lacks_tensorflow() -> str | None:
    if importlib.util.find_spec("tensorflow") is None:
        return "TensorFlow is not installed here; `make test` installs it"
    return None


def lacks_kubectl() -> str | None:
    return kubectl_fault()


@functools.cache
def kubectl_fault() -> str | None:
    """Older ones ask for OpenAPI v2, which the embedded server does not have."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return f"kubectl is not on PATH; any from 1.{OLDEST_KUBECTL} on will do"
    told = subprocess.run([kubectl, "version", "--client", "-o", "json"], capture_output=True, check=False, timeout=60)
    minor = int(json.loads(told.stdout)["clientVersion"]["minor"].rstrip("+"))
    if minor < OLDEST_KUBECTL:
        return f"{kubectl} is version 1.{minor}; the embedded API wants 1.{OLDEST_KUBECTL} or newer"
    return None


def lacks_control_plane() -> str | None:
    if os.environ.get("KUBEBUILDER_ASSETS") or SHARED_CONTROL_PLANE.is_dir():
        return None
    return (
        "no real control plane; set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver "
        "(`go run sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use` fetches one)"
    )


# Marker -> why a test that carries it cannot run on this machine, or None.
NEEDS: Mapping[str, Callable[[], str | None]] = MappingProxyType(
    {"tensorflow": lacks_tensorflow, "kubectl": lacks_kubectl, "real": lacks_control_plane}
)


def required() -> frozenset[str]:
    """Markers whose tests must not be skipped: TARRAGON_REQUIRE=tensorflow,kubectl,real."""
    names = frozenset(filter(None, os.environ.get("TARRAGON_REQUIRE", "").split(",")))
    if unknown := names - NEEDS.keys():
        raise pytest.UsageError(f"TARRAGON_REQUIRE: {', '.join(sorted(unknown))} is none of {', '.join(NEEDS)}")
    return names


def pytest_configure() -> None:
    required()


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("tensorflow"):
            # Each starts several TensorFlow processes: one such test at a time is enough for any machine.
            item.add_marker(pytest.mark.xdist_group("tensorflow"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, lacks in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := lacks()):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    demanded = sorted(marker for marker in required() if item.get_closest_marker(marker))
    if report.skipped and demanded and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"TARRAGON_REQUIRE demands {', '.join(demanded)}, but this test was skipped: {reason}"
    return report

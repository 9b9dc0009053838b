"""What the image is built on. No container engine is needed: the check in the Dockerfile is a line of a shell."""

from __future__ import annotations

import re
import subprocess

import pytest

from tarragon.frameworks.mpi.objects.pod_wiring import KUBECTL_IN_IMAGE
from tests.conftest import ROOT
from tests.deploy.test_files import DEPLOY

TEXT = (DEPLOY / "Dockerfile").read_text()
DIGEST = "sha256:" + "0123456789abcdef" * 4


ARGUMENTS = ("PYTHON_IMAGE", "KUBECTL_IMAGE")


def build_with(**images: str) -> subprocess.CompletedProcess[str]:
    """What the first command of the build says with these images."""
    joined = TEXT.replace("\\\n", " ")
    first = next(line.removeprefix("RUN ") for line in joined.splitlines() if line.startswith("RUN "))
    return subprocess.run(
        ["sh", "-c", first],
        env={**dict.fromkeys(ARGUMENTS, f"i@{DIGEST}"), **images, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_no_stage_of_the_image_has_a_base_that_is_written_down_here() -> None:
    bases = re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE)

    assert set(bases) == {f"${{{each}}}" for each in ARGUMENTS}
    before = TEXT[: TEXT.index("FROM ")]
    assert re.findall(r"^ARG (\S+)$", before, re.MULTILINE) == [*ARGUMENTS], "without a default"


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize(
    "base",
    [
        "python:3.13-slim",
        "python:latest",
        "registry.example.com:5000/python:3.13",
        "python:3.13-slim@",
        "python:3.13-slim@sha256:abc",
        f"python:3.13-slim@sha512:{DIGEST[7:]}",
        f"python:3.13-slim@{DIGEST}0",
        f"python:3.13-slim@{DIGEST.upper()}",
        f"@{DIGEST}",
        "",
    ],
)
def test_an_image_without_a_digest_is_refused(base: str, argument: str) -> None:
    ended = build_with(**{argument: base})

    assert ended.returncode != 0
    assert argument in ended.stderr
    assert "docs/install.md" in ended.stderr


@pytest.mark.parametrize("name", ["python:3.13-slim", "python", "registry.example.com:5000/mirror/python:3.13-slim"])
def test_an_image_with_a_digest_is_taken(name: str) -> None:
    ended = build_with(PYTHON_IMAGE=f"{name}@{DIGEST}", KUBECTL_IMAGE=f"registry.k8s.io/kubectl:v1.36.0@{DIGEST}")

    assert (ended.returncode, ended.stderr) == (0, "")


def test_nobody_has_invented_a_digest() -> None:
    page = (DEPLOY.parent / "docs" / "install.md").read_text()

    assert not re.search(r"sha256:[0-9a-f]{16}", TEXT + page)
    for argument in ARGUMENTS:
        assert f"--build-arg {argument}=" in TEXT
        assert f"--build-arg {argument}=" in page


def test_the_image_says_what_it_was_built_on() -> None:
    last = TEXT[TEXT.rindex("FROM ") :]

    assert "ARG PYTHON_IMAGE\n" in last
    assert "LABEL org.opencontainers.image.base.name=${PYTHON_IMAGE}\n" in last


def test_the_image_has_kubectl_where_launchers_look_for_it() -> None:
    last = TEXT[TEXT.rindex("FROM ") :]

    assert f"COPY --from=kubectl /bin/kubectl {KUBECTL_IN_IMAGE}\n" in last


def test_the_image_is_built_with_the_uv_that_builds_everything_else() -> None:
    pinned = re.search(r"^UV_VERSION=(\S+)$", (ROOT / "tools" / "bootstrap.sh").read_text(), re.MULTILINE)

    assert pinned is not None
    assert f"uv=={pinned[1]}" in TEXT

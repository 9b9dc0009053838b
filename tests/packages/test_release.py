from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarragon import __version__
from tests.conftest import ROOT
from tests.packages.conftest import Installation, uv
from tests.virtualenvs import virtualenv
from tools import release

pytestmark = [pytest.mark.xdist_group("packages"), pytest.mark.timeout(600)]  # builds six packages

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
LINK = re.compile(r"\]\(([^)]+)\)")


def in_folder(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(uv()).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run(
        words, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=500
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with a dated section in its changelog, a tag, and nothing that `make check` finds."""
    if not (ROOT / ".git").exists():
        pytest.skip("the project is not in a git repository here")
    folder = tmp_path_factory.mktemp("release") / "project"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    changes = folder / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("## [Unreleased]", f"## [{__version__}] - 2026-12-01", 1))
    makefile = folder / "Makefile"
    makefile.write_text(re.sub(r"(?m)^check:.*\n\t.*\n", "check:\n\t@true\n", makefile.read_text()))
    subprocess.run([*GIT, "commit", "-qam", "Release"], cwd=folder, check=True)
    subprocess.run([*GIT, "tag", f"v{__version__}"], cwd=folder, check=True)
    return folder


@contextmanager
def package_index(folder: Path) -> Iterator[str]:
    """A real package index that accepts uploads."""
    program = virtualenv(folder / "server", "pypiserver==2.4.2") / "bin/pypi-server"
    (folder / "packages").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(program), "run", "-i", "127.0.0.1", "-p", str(port), "-a", ".", "-P", ".", "--disable-fallback"]
    server = subprocess.Popen(
        [*command, str(folder / "packages")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/simple/", timeout=10).close()  # noqa: S310 - our own server
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.1)  # noqa: TID251 - a server that is not there yet cannot be waited for
        yield url
    finally:
        server.terminate()
        server.wait()


def test_a_release_is_built_checked_described_uploaded_and_installed(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with package_index(tmp_path) as index:
        command = [sys.executable, "tools/release.py", "--output", str(output), "--publish", "--index", f"{index}/"]
        released = in_folder(repository, "env", "UV_PUBLISH_USERNAME=u", "UV_PUBLISH_PASSWORD=p", *command)
        assert (released.returncode, released.stderr) == (0, "")
        environment = tmp_path / "user"
        install = ["pip", "install", "-q", "--python", str(environment / "bin/python")]
        assert in_folder(tmp_path, uv(), "venv", "-q", "--python", sys.executable, str(environment)).returncode == 0
        found = in_folder(
            tmp_path, uv(), *install, "--no-deps", "--index-url", f"{index}/simple/", f"tarragon=={__version__}"
        )
        assert found.returncode == 0, found.stderr

    written = {path.name: path for path in output.iterdir()}
    wheel = f"tarragon-{__version__}-py3-none-any.whl"
    sums = dict(line.split("  ")[::-1] for line in written["SHA256SUMS"].read_text().splitlines())
    assert sums == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in written.items() if name != "SHA256SUMS"
    }
    statement = json.loads(written[f"tarragon-{__version__}.intoto.json"].read_text())
    assert {each["name"]: each["digest"]["sha256"] for each in statement["subject"]} == {
        name: sums[name] for name in (wheel, f"tarragon-{__version__}.tar.gz")
    }
    head = in_folder(repository, "git", "rev-parse", "HEAD").stdout.strip()
    built = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert built[0]["digest"] == {"gitCommit": head}
    bill = json.loads(written[f"tarragon-{__version__}.cdx.json"].read_text())
    assert {"aiohttp", "numpy", "cryptography"} <= {each["name"] for each in bill["components"]}
    assert (environment / "bin/tarragon").exists()
    with tarfile.open(written[f"tarragon-{__version__}.tar.gz"]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()} - {"PKG-INFO"}
    assert packed == set(in_folder(repository, "git", "ls-files").stdout.split())


def test_what_is_not_tagged_noted_and_committed_is_not_released(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", "--no-tags", str(repository), str(other)], check=True)
    (other / "CHANGELOG.md").write_text("# Changelog\n")

    refused = in_folder(other, sys.executable, "tools/release.py", "--output", str(tmp_path / "out"))

    assert refused.returncode == 1
    assert refused.stderr == (
        "release: this is no release:\n"
        "  the tree has changes that are not committed\n"
        f"  HEAD has no tag v{__version__}: git tag -s v{__version__}\n"
        f"  CHANGELOG.md has no section `## [{__version__}] - YYYY-MM-DD`\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_release_goes_to_pypi_only_under_a_name_of_its_own(repository: Path, tmp_path: Path) -> None:
    refused = in_folder(repository, sys.executable, "tools/release.py", "--output", str(tmp_path / "out"), "--publish")

    assert refused.returncode == 1
    assert refused.stderr.startswith("release: the name tarragon on PyPI is another project's: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        ((), []),
        (("SHA256SUMS", "a.whl", "a.sigstore.json"), []),
        (("a.whl",), ["a.whl"]),
        (("SHA256SUMS", "a.whl", "thesis.tex"), ["thesis.tex"]),
    ],
    ids=["empty", "a release", "no release", "a release and more"],
)
def test_only_a_folder_with_a_release_alone_is_emptied_for_the_next(
    files: Sequence[str], foreign: Sequence[str], tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).write_text("0  a.whl\n")

    assert release.foreign_files(tmp_path) == foreign


def test_only_the_upload_gets_the_credentials_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PUBLISH_TOKEN", "secret")
    program = (sys.executable, "-c", "import os; print(os.environ.get('UV_PUBLISH_TOKEN'))")

    assert release.run(*program) == "None\n"
    assert release.run(*program, environment={**os.environ}) == "secret\n"


def test_packages_that_change_after_they_were_built_are_not_published(tmp_path: Path) -> None:
    package = tmp_path / "a.whl"
    package.write_text("built")
    digests = release.digests_of([package])

    release.require_unchanged(digests)
    package.write_text("changed")

    with pytest.raises(release.ReleaseError, match=r"a\.whl has changed since it was built"):
        release.require_unchanged(digests)


def test_the_page_for_an_index_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        metadata = packed.read(f"tarragon-{__version__}.dist-info/METADATA").decode()

    links = LINK.findall(metadata)
    tag = f"https://github.com/tarragon-dev/tarragon/blob/v{__version__}/"
    ours = [link.removeprefix(tag).partition("#")[0] for link in links if link.startswith(tag)]
    assert len(ours) > 30
    assert [path for path in ours if not (ROOT / path).exists()] == []
    assert [link for link in links if not link.startswith("https://")] == []
    assert "MPIJobs" in metadata
    assert "![" not in metadata


def test_a_job_trains_with_what_the_extra_local_brings(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    user = Installation(virtualenv(tmp_path / "local", f"{wheel}[local]"), folder)
    (folder / "job.yaml").write_text(
        "apiVersion: kubeflow.org/v1\n"
        "kind: TFJob\n"
        "metadata: {name: small}\n"
        "spec: {successPolicy: AllWorkers, tfReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [\n"
        '  {name: tensorflow, image: i, command: [python, -c, "print(6 * 7)"]}]}}}}}\n'
    )

    try:
        ran = user("run", "job.yaml")
    finally:
        user("down")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("42") == 2

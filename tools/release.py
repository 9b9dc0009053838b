#!/usr/bin/env python3
"""Build a release from the tag of HEAD, check it, write down how it was made, and publish it if asked.

python tools/release.py [--output FOLDER] [--publish] [--index URL]

Without --publish nothing leaves this machine. FOLDER (dist/release) gets the sdist and the wheel, the same bytes
whenever and wherever they are built; an SBOM of what extras install; a statement of provenance (in-toto, SLSA 1.0),
which is not signed, since that needs the publisher's identity; and SHA256SUMS. `uv publish` reads its credentials from
the environment (UV_PUBLISH_TOKEN, or a trusted publisher).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILD_REQUIREMENTS = "tools/build-requirements.txt"
PYPI_NAME = ""
"""The project's name on PyPI once it is settled, and then `name` in pyproject.toml: `tarragon` is taken there."""
TWINE = "twine==7.0.0"
EXTRAS = ("local", "operator", "simulate")
"""What the SBOM lists beside the requirements of the package: the extras that hold code of ours to run."""


class ReleaseError(Exception):
    """The release cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is released: a commit."""

    name: str
    version: str
    commit: str
    time: int
    """Seconds since 1970; the time of every file in the packages."""
    home: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist/release", metavar="FOLDER")
    parser.add_argument("--publish", action="store_true", help="upload the packages; without it nothing is uploaded")
    parser.add_argument("--index", default="", metavar="URL", help="upload address of another index than PyPI")
    options = parser.parse_args()
    try:
        source = read_source()
        require(list(problems(source)))
        require_only_a_release(options.output)
        if options.publish and not options.index:
            require_a_place_on_pypi(source)
        run("make", "check")
        packages = build(source, options.output)
        digests = digests_of(packages)
        check(packages, source)
        write_statements(packages, source, options.output)
        require_unchanged(digests)
        if options.publish:
            publish(packages, options.index)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"{options.output} has the release {source.version}")
    if not options.publish:
        print("Nothing was published; --publish does that")
    return 0


def read_source() -> Source:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = (ROOT / "tarragon/__init__.py").read_text(encoding="utf-8")
    return Source(
        name=project["name"],
        version=re.findall(r'^__version__ = "(.+)"$', module, re.MULTILINE)[0],
        commit=git("rev-parse", "HEAD"),
        time=int(git("log", "-1", "--format=%ct")),
        home=project["urls"]["Source"],
    )


def problems(source: Source) -> Iterator[str]:
    """What keeps this commit from being a release."""
    if git("status", "--porcelain"):
        yield "the tree has changes that are not committed"
    tag = f"v{source.version}"
    if tag not in git("tag", "--points-at", "HEAD").split():
        yield f"HEAD has no tag {tag}: git tag -s {tag}"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(source.version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        yield f"CHANGELOG.md has no section `## [{source.version}] - YYYY-MM-DD`"


def require(found: Sequence[str]) -> None:
    if found:
        raise ReleaseError("\n  ".join(["this is no release:", *found]))


def require_only_a_release(output: Path) -> None:
    if found := foreign_files(output):
        raise ReleaseError(
            f"{output} would be emptied, and has files that are of no release, such as {found[0]}: "
            "remove them, or name another folder with --output"
        )


def foreign_files(output: Path) -> Sequence[str]:
    """The names of what is in the folder and is neither in its SHA256SUMS nor a signature."""
    sums = output / "SHA256SUMS"
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    known = {sums.name, *(line.partition("  ")[2] for line in lines)}
    found = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    return [name for name in found if name not in known and not name.endswith(".sigstore.json")]


def require_a_place_on_pypi(source: Source) -> None:
    """A name of the project's own, and a home: the page on PyPI is for ever, so its links must lead somewhere."""
    if source.name != PYPI_NAME:
        raise ReleaseError(
            f"the name {source.name} on PyPI is another project's: choose one, and write it into PYPI_NAME of "
            "tools/release.py and `name` of pyproject.toml; or name another index with --index"
        )
    try:
        urllib.request.urlopen(source.home, timeout=30).close()  # noqa: S310 - the URL in pyproject.toml
    except (urllib.error.URLError, TimeoutError) as error:
        raise ReleaseError(f"the home of the project in pyproject.toml, {source.home}, fails: {error}") from error


def build(source: Source, output: Path) -> Sequence[Path]:
    """Builds the sdist from the commit, and the wheel from the sdist. Raises ReleaseError if the tree gives another."""
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        tree, other = Path(folder, "tree"), Path(folder, "other")
        tree.mkdir()
        run("git", "archive", "--output", str(Path(folder, "tree.tar")), source.commit)
        run("tar", "-x", "-f", str(Path(folder, "tree.tar")), "-C", str(tree))
        _build(source, "--sdist", tree, output)
        sdist = next(output.glob("*.tar.gz"))
        _build(source, "--wheel", sdist, output)
        _build(source, "--wheel", tree, other)
        wheel = next(output.glob("*.whl"))
        if wheel.read_bytes() != (other / wheel.name).read_bytes():
            raise ReleaseError("the wheel built from the sdist differs from the one built from the tree")
    return sdist, wheel


def _build(source: Source, what: str, tree: Path, output: Path) -> None:
    constraints = str(ROOT / BUILD_REQUIREMENTS)
    options = ["--no-config", "--no-create-gitignore", "--require-hashes", "--build-constraints", constraints]
    environment = {**without_credentials(), "SOURCE_DATE_EPOCH": str(source.time)}
    run(uv(), "build", "-q", what, *options, "-o", str(output), str(tree), environment=environment)


def check(packages: Sequence[Path], source: Source) -> None:
    """Has twine look at the packages, and runs the wheel in an environment of its own."""
    run(uv(), "tool", "run", "-q", "--from", TWINE, "twine", "check", "--strict", *map(str, packages))
    wheel = str(packages[-1])
    told = run(uv(), "run", "-q", "--no-project", "--isolated", "--with", wheel, "tarragon", "version", "-o", "json")
    if json.loads(told)["version"] != source.version:
        raise ReleaseError(f"the wheel says that it is {told}")


def write_statements(packages: Sequence[Path], source: Source, output: Path) -> None:
    """Writes the SBOM, the provenance and SHA256SUMS."""
    bill = output / f"tarragon-{source.version}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(source), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    statement = output / f"tarragon-{source.version}.intoto.json"
    statement.write_text(json.dumps(provenance(packages, source), indent=1) + "\n", encoding="utf-8")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in (*packages, bill, statement))
    (output / "SHA256SUMS").write_text(sums, encoding="utf-8")


def bill_of_materials(source: Source) -> dict[str, Any]:
    """What uv.lock pins for the package and its extras, as CycloneDX. Equal for equal commits: no serial number."""
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    told = run(uv(), "export", "-q", "--locked", "--no-default-groups", *extras, "--format", "cyclonedx1.5")
    found: dict[str, Any] = json.loads(told)
    found.pop("serialNumber", None)
    found["metadata"].pop("timestamp", None)
    found["metadata"]["component"]["version"] = source.version
    return found


def provenance(packages: Sequence[Path], source: Source) -> dict[str, Any]:
    """Says from what and how the packages were built, as SLSA's provenance in a statement of in-toto."""
    program = f"{source.home}/blob/v{source.version}/tools/release.py"
    inputs = [{"uri": f"git+{source.home}@refs/tags/v{source.version}", "digest": {"gitCommit": source.commit}}]
    inputs += [{"uri": name, "digest": {"sha256": digest(ROOT / name)}} for name in (BUILD_REQUIREMENTS, "uv.lock")]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in packages],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": program,
                "externalParameters": {"tag": f"v{source.version}"},
                "internalParameters": {"SOURCE_DATE_EPOCH": source.time},
                "resolvedDependencies": inputs,
            },
            "runDetails": {"builder": {"id": program}},
        },
    }


def digests_of(packages: Sequence[Path]) -> dict[Path, str]:
    return {path: digest(path) for path in packages}


def require_unchanged(digests: Mapping[Path, str]) -> None:
    """Programs that others wrote have run since the packages were built."""
    for path, before in digests.items():
        if digest(path) != before:
            raise ReleaseError(f"{path} has changed since it was built")


def publish(packages: Sequence[Path], index: str) -> None:
    options = ["--publish-url", index] if index else []
    run(uv(), "publish", *options, *map(str, packages), environment={**os.environ})


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def uv() -> str:
    found = shutil.which("uv", path=f"{ROOT / '.tools/bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise ReleaseError("uv is not here: `make check` installs it")
    return found


def without_credentials() -> dict[str, str]:
    """The environment of every program but the one that uploads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("UV_PUBLISH_")}


def git(*words: str) -> str:
    return run("git", *words).strip()


def run(*words: str, environment: dict[str, str] | None = None) -> str:
    """Returns what the program prints. Raises ReleaseError with that, if it fails. By default without credentials."""
    variables = without_credentials() if environment is None else environment
    ended = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ReleaseError(f"{' '.join(words)} failed:\n{ended.stdout}{ended.stderr}".rstrip())
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main())

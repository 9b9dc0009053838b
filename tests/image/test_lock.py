"""Which of Debian's packages are in the image: the choice, the lock file, and the files that it names."""

from __future__ import annotations

import hashlib
import io
import lzma
import shutil
import subprocess
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest

from tools.image.debian import Package, read_lock, render_lock, unpack
from tools.image.download import fetch
from tools.image.errors import DownloadError, ImageError
from tools.image.lock import (
    ARCHITECTURES,
    LEFT_OUT,
    ROOTS,
    Entry,
    parse_index,
    require_suite,
    select,
    version_key,
)
from tools.image.staging import PYTHON

ORDERED = (
    "1.0~rc1-1",
    "1.0~rc2-1",
    "1.0-1",
    "1.0-1+deb13u1",
    "1.0-1+deb13u2",
    "1.0-1+deb13u10",
    "1.0-2",
    "1.0a-1",
    "1.0+git1-1",
    "1.0.1-1",
    "1.1",
    "1.10",
    "1:0.1",
)


def entry(name: str, version: str, dependencies: str = "") -> Entry:
    return Entry("debian", {"Package": name, "Version": version, "Depends": dependencies})


def test_versions_are_ordered_as_in_debians_policy() -> None:
    assert all(version_key(one) < version_key(other) for one, other in pairwise(ORDERED))


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="there is no dpkg here to ask")
def test_dpkg_orders_versions_like_that() -> None:
    for one, other in pairwise(ORDERED):
        assert subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False).returncode == 0


def test_the_newest_version_of_each_package_is_chosen_with_all_that_it_needs() -> None:
    entries = [
        entry("app", "1", "lib (>= 1) | other, awk"),
        entry("lib", "1"),
        entry("lib", "1+deb13u1", "base:any"),
        entry("base", "3"),
        entry("unrelated", "1"),
    ]

    assert [(each.name, each.version) for each in select(entries, ["app"])] == [
        ("app", "1"),
        ("base", "3"),
        ("lib", "1+deb13u1"),
    ]


def test_a_package_that_debian_does_not_have_is_named() -> None:
    with pytest.raises(ImageError, match="no package lib:"):
        select([entry("app", "1", "lib")], ["app"])


def test_an_index_is_read_stanza_by_stanza() -> None:
    first, second = parse_index("debian", "Package: a\nVersion: 1\nDescription: x\n more\n\nPackage: b\nVersion: 2\n")

    assert (first.name, second.version) == ("a", "2")


def test_the_lock_file_has_the_same_packages_for_each_architecture_and_is_as_it_would_be_written() -> None:
    lock = read_lock()
    names = [[package.name for package in lock.packages[architecture]] for architecture in ARCHITECTURES]

    assert names[0] == names[1] == sorted(names[0])
    assert {*ROOTS, f"{PYTHON}-minimal"} <= {*names[0]}
    assert not LEFT_OUT.keys() & {*names[0]}
    assert render_lock(lock) == (Path(__file__).parents[2] / "tools/image/debian-lock.json").read_text()


def test_a_file_comes_from_the_first_server_that_has_it_and_then_from_the_cache(tmp_path: Path) -> None:
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()

    assert fetch([(tmp_path / "gone").as_uri(), package.as_uri()], digest, cache).read_bytes() == b"content"
    package.unlink()
    assert fetch([package.as_uri()], digest, cache).read_bytes() == b"content"


def test_a_file_with_another_hash_is_refused_and_a_damaged_cache_too(tmp_path: Path) -> None:
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.write_bytes(b"forged")
    digest = hashlib.sha256(b"content").hexdigest()
    cache.mkdir()
    (cache / digest).write_bytes(b"damaged")

    with pytest.raises(DownloadError, match="is not the one with SHA-256"):
        fetch([package.as_uri()], digest, cache)


def archive(*members: tuple[str, str]) -> bytes:
    """A tar file of symbolic links, which have a target, and of empty files."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (tarfile.SYMTYPE, target) if target else (tarfile.REGTYPE, "")
            tar.addfile(member)
    return lzma.compress(written.getvalue())


def in_cache(cache: Path, data: bytes) -> Package:
    """A package of Debian with these files."""
    content = b"!<arch>\n"
    for name, packed in (("control.tar.xz", archive()), ("data.tar.xz", data)):
        content += f"{name:<48}{len(packed):<10}`\n".encode() + packed + b"\n" * (len(packed) % 2)
    digest = hashlib.sha256(content).hexdigest()
    cache.mkdir(exist_ok=True)
    (cache / digest).write_bytes(content)
    fields = dict.fromkeys(("version", "architecture", "source", "path", "sha1"), "")
    return Package(name="p", archive="debian", sha256=digest, **fields)


@pytest.mark.parametrize("last", ["lib/file", "lib/link", "lib/folder/file", "lib"])
def test_no_file_of_a_package_is_written_outside_of_the_image(tmp_path: Path, last: str) -> None:
    outside, root, cache = tmp_path / "outside", tmp_path / "root", tmp_path / "cache"
    outside.mkdir()
    root.mkdir()
    link = str(outside) if last != "lib" else str(outside / "file")
    package = in_cache(cache, archive(("lib", link), (last, "target" if last == "lib/link" else "")))

    with pytest.raises(ImageError, match=f"p has {last}, which would be written outside of the image"):
        unpack(package, cache, root, lambda _: True)
    assert [*outside.iterdir()] == []


def test_files_behind_a_link_within_the_image_are_written_there(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    (root / "usr/lib").mkdir(parents=True)

    unpack(in_cache(cache, archive(("lib", "usr/lib"), ("lib/file", ""))), cache, root, lambda _: True)

    assert (root / "usr/lib/file").exists()


def test_the_signed_list_of_another_suite_is_refused() -> None:
    require_suite("Suite: stable\nCodename: trixie\n", "trixie", "u")

    with pytest.raises(ImageError, match="u is of bookworm, not of trixie"):
        require_suite("Suite: oldstable\nCodename: bookworm\n", "trixie", "u")

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tarragon.base.errors import TarragonError
from tarragon.localcluster.home.home import Home, create_private_folder, write_private_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_tarragon_home_or_a_folder_in_the_users_home(tmp_path: Path) -> None:
    assert Home.from_environment({"TARRAGON_HOME": str(tmp_path)}).folder == tmp_path
    assert Home.from_environment({"HOME": "/home/ada"}).folder == Path("/home/ada/.tarragon")
    assert Home.from_environment({"TARRAGON_HOME": "here"}).folder == Path.cwd() / "here"


def test_a_new_home_and_its_secrets_are_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.prepare()
    home.read_token()

    assert mode(home.folder) == 0o700
    assert mode(home.token) == 0o600


def test_a_private_folder_has_private_parents(tmp_path: Path, open_umask: None) -> None:
    tmp_path.chmod(0o755)
    create_private_folder(tmp_path / "clusters" / "there-443" / "node")

    assert {mode(path) for path in tmp_path.rglob("*")} == {0o700}
    assert mode(tmp_path) == 0o755, "what was there before is its owner's to decide on"


def test_a_file_where_a_private_folder_should_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "crashes").write_text("")

    with pytest.raises(FileExistsError):
        create_private_folder(tmp_path / "crashes")


def test_the_check_of_a_home_leaves_no_files(tmp_path: Path) -> None:
    Home(tmp_path).prepare()

    assert list(tmp_path.iterdir()) == []


def test_the_token_stays_the_same(tmp_path: Path) -> None:
    first = Home(tmp_path).read_token()

    assert len(first) > 30
    assert Home(tmp_path).read_token() == first


def test_a_private_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private_file(tmp_path / "file", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_home_with_a_long_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TarragonError, match="too long") as refused:
        Home(tmp_path / ("x" * 120) / ("y" * 120)).prepare()

    assert "TARRAGON_HOME" in refused.value.remedy


def test_a_file_in_place_of_the_home_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(TarragonError) as refused:
        Home(tmp_path / "home").prepare()
    assert "a file, not a folder" in refused.value.cause

    with pytest.raises(TarragonError) as refused:
        Home(tmp_path / "home" / "deeper").prepare()
    assert "a file, not a folder" in refused.value.cause


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_home_of_another_user_is_rejected(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)

    with pytest.raises(TarragonError, match="belongs to another user"):
        Home(tmp_path).prepare()


def prepare_on(mount_options: str, folder: Path) -> str:
    """The output of `prepare` for a home on a separate file system, mounted in the namespace of a child process."""
    script = f"""
from pathlib import Path
from tarragon.localcluster.home.home import Home
try:
    Home(Path({str(folder)!r})).prepare()
except Exception as error:
    print(type(error).__name__, error)
"""
    shell = f"mount -t tmpfs -o {mount_options} tmpfs '{folder}' && exec '{sys.executable}' -c \"$SCRIPT\""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", shell]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "SCRIPT": script}, timeout=30
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed; it is in util-linux")
    if ran.returncode != 0:
        pytest.skip(f"this machine does not allow users to mount file systems: {ran.stderr}")
    return ran.stdout


def test_a_full_disk_is_reported_before_the_start(tmp_path: Path) -> None:
    output = prepare_on("size=64k", tmp_path)

    assert output.startswith(
        f"TarragonError can't keep the cluster's state in {tmp_path}\nthe disk is full\nfree some space"
    )


def test_a_read_only_file_system_is_reported(tmp_path: Path) -> None:
    assert "the file system is read-only" in prepare_on("size=64m,ro", tmp_path)


def test_a_disk_with_enough_space_is_accepted(tmp_path: Path) -> None:
    assert prepare_on("size=64m", tmp_path) == ""

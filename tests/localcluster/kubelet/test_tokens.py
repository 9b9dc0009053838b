"""Tokens in the volumes of pods are renewed before they expire."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import unavailable
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes import atomic_writer
from tarragon.localcluster.kubelet.volumes.tokens import TokenProjection, TokenRenewer

Json = dict[str, Any]
HOUR = 3600


class Source:
    """Issues tokens by the clock and counts them; fails while `is_away`."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.given = 0
        self.is_away = False

    async def token(self, pod: Pod, wish: TokenProjection) -> str:
        if self.is_away:
            raise unavailable(f"no server for {pod.metadata.name}")
        self.given += 1
        now = int(self.clock.now().timestamp())
        claims = json.dumps({"iat": now, "exp": now + wish.seconds, "number": self.given})
        return f"head.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.signature"


class Stage:
    """A pod whose volume was just created."""

    def __init__(self, folder: Path, seconds: int) -> None:
        self.clock = FakeClock()
        self.source = Source(self.clock)
        self.node = NodeFolder(folder)
        self.keeper = TokenRenewer(self.source, self.node, self.clock)
        token = {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}
        spec = {"volumes": [{"name": "v", "projected": {"sources": [token]}}]}
        self.pod = decode(encode({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec}), Pod)
        self.file = self.node.pod("u").volumes / "v" / "token"
        self.wish = TokenProjection("", seconds)

    async def write(self) -> None:
        token = await self.source.token(self.pod, self.wish)
        atomic_writer.write_files(self.file.parent, {"token": atomic_writer.File(token.encode(), 0o600)})

    async def after(self, seconds: float) -> int:
        """The number of tokens issued until then."""
        self.clock.advance(seconds)
        await self.keeper.renew([self.pod])
        return self.source.given


@pytest.mark.parametrize(("seconds", "renewed"), [(HOUR, 0.8 * HOUR), (600, 480), (30 * 24 * HOUR, 24 * HOUR)])
async def test_a_token_is_renewed_after_most_of_its_lifetime(tmp_path: Path, seconds: int, renewed: float) -> None:
    stage = Stage(tmp_path, seconds)
    await stage.write()

    before = await stage.after(renewed - 1)
    then = await stage.after(1)
    afterwards = await stage.after(renewed - 1)

    assert (before, then, afterwards) == (1, 2, 2)
    assert stage.file.is_symlink(), "programs watch the link"
    assert stat.S_IMODE(stage.file.stat().st_mode) == 0o600


async def test_another_kubelet_reads_from_the_file_when_a_token_is_due(tmp_path: Path) -> None:
    stage = Stage(tmp_path, HOUR)
    await stage.write()
    await stage.after(HOUR / 2)
    stage.keeper = TokenRenewer(stage.source, stage.node, stage.clock)

    assert await stage.after(HOUR / 2) == 2


async def test_a_failed_renewal_is_retried(tmp_path: Path) -> None:
    stage = Stage(tmp_path, HOUR)
    await stage.write()
    stage.source.is_away = True
    meanwhile = await stage.after(HOUR)
    stage.source.is_away = False

    assert (meanwhile, await stage.after(60)) == (1, 2)


async def test_a_volume_that_does_not_exist_yet_is_skipped(tmp_path: Path) -> None:
    stage = Stage(tmp_path, HOUR)

    assert await stage.after(HOUR) == 0
    assert not stage.file.exists()


async def test_a_token_file_is_read_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, HOUR)
    await stage.write()
    await stage.after(0)
    stage.file.resolve().write_bytes(b"garbage")

    assert await stage.after(0.8 * HOUR) == 2

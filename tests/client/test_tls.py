from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tarragon.client.errors import NoCredentials
from tarragon.client.http.credentials import Identity
from tarragon.client.http.tls import Trust


def test_a_client_certificate_where_nothing_can_be_written_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container with a root that is read-only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    with pytest.raises(NoCredentials, match="the client certificate can't be used") as told:
        Trust(b"", checks_nothing=False).shown(Identity("", b"certificate", b"key"))
    assert "no writable directory for temporary files" in told.value.why

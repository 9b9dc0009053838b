from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tarragon.client.errors import CredentialsError
from tarragon.client.http.credentials import ClientIdentity
from tarragon.client.http.tls import TlsContextCache


def test_a_client_certificate_where_nothing_can_be_written_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container with a root that is read-only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    with pytest.raises(CredentialsError, match="the client certificate can't be used") as caught:
        TlsContextCache(b"", checks_nothing=False).context_for(ClientIdentity("", b"certificate", b"key"))
    assert "no writable directory for temporary files" in caught.value.cause

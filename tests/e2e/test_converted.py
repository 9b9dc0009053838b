"""A job of 2017 that left its parameter servers to the operator trains as a job of today, once it is converted."""

from __future__ import annotations

import re

import pytest

from tests.e2e.user import EXAMPLES, User

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_standard_server_that_convert_writes_into_the_manifest_serves(user: User) -> None:
    short = (EXAMPLES / "v1alpha1.yaml").read_text().replace('"6000"', '"300"')
    there = user("convert", user.file("old.yaml", short), "--to", "kubeflow.org/v1")

    ended = user.run(user.file("new.yaml", there.out))

    assert there.code == 0, there.err
    assert "kind: PersistentVolumeClaim" in there.out
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert re.search(r"\[ps-0\] ps 0 serves at grpc://", ended.out), ended.out[-3000:]
    assert re.search(r"\[master-0\] done: steps=30\d ", ended.out), ended.out[-3000:]

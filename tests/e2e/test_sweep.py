"""A sweep as it was made in 2018: a chart, one job for each pair of values, TensorBoard over all of them.

The chart is that of a workshop's slides, unchanged: it needs a claim and an image that its user made.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.charts import helm, items, kubectl
from tests.e2e.user import User, eventually

pytestmark = [
    pytest.mark.helm,
    pytest.mark.kubectl,
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

DATA = Path(__file__).parents[1] / "data"
CHART = DATA / "manifests" / "003-sweep-chart"
# What the image was built for; it is a folder here.
IMAGES = {"your_imagename": {"entrypoint": ["python", "-m", "sweep.task"], "workdir": str(DATA / "programs")}}
AT_ONCE = 2
NODE = f"name=laptop,cpu=4,memory=8Gi,pods={AT_ONCE}"
RATES = ("0.001", "0.1")
"""Two of the chart's three, as each job takes seconds to import TensorFlow; tests/real/test_sweep.py has all three."""
LEARNING_RATES = f"hyperParamValues.learningRate={{{','.join(RATES)}}}"
RUNS = {f"tf-mnist-lr{rate}-d-{layers}" for rate in RATES for layers in (5, 6, 7)}
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: azurefile}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""
BOARD = """\
apiVersion: v1
kind: Pod
metadata: {name: board}
spec:
  containers:
    - name: tensorboard
      image: your_imagename
      command: [tensorboard, --logdir, /tmp/tensorflow, --port, "0", --reload_interval, "1"]
      volumeMounts: [{name: azurefile, subPath: module8-tf-mnist, mountPath: /tmp/tensorflow}]
  volumes: [{name: azurefile, persistentVolumeClaim: {claimName: azurefile}}]
"""


def test_the_jobs_of_a_chart_run_in_turn_and_tensorboard_compares_them(user: User) -> None:
    with serving(user):
        kubectl(user, "create", "-f", "-", given=CLAIM)

        assert "STATUS: deployed" in helm(user, "install", "sweep", str(CHART), "--set", LEARNING_RATES)
        eventually(lambda: re.search(r"^kubeflow-tf-mnist-\S+ +Waiting ", user("list").out, re.MULTILINE))
        states = eventually(lambda: ended(user), 600)

        assert states == ["Succeeded"] * len(RUNS)
        assert at_once(user) == AT_ONCE
        best = accuracies(user)
        assert best.keys() == RUNS
        assert best["tf-mnist-lr0.1-d-5"] > 0.6 > best["tf-mnist-lr0.001-d-5"]

        helm(user, "uninstall", "sweep", "--wait")
        assert items(user, "tfjobs") == []


@contextmanager
def serving(user: User) -> Iterator[None]:
    user.home.mkdir(mode=0o700)
    (user.home / "images.yaml").write_text(yaml.safe_dump(IMAGES))
    going = user.start("up", "--node", NODE)
    going.until("ready")
    yield
    assert user("down").code == 0
    assert going.ended().code == 0


def ended(user: User) -> list[str]:
    """How each of the jobs ended, once all have."""
    jobs = items(user, "tfjobs")
    last = [job.get("status", {}).get("conditions", [{}])[-1].get("type", "") for job in jobs]
    return last if len(jobs) == len(RUNS) and set(last) <= {"Succeeded", "Failed"} else []


def at_once(user: User) -> int:
    """How many containers ran at the same time, at most. To the second: who begins when another ends is after it."""
    times: list[tuple[str, int]] = []
    for pod in items(user, "pods"):
        (status,) = pod["status"]["containerStatuses"]
        run = status["state"]["terminated"]
        times += [(run["startedAt"], 1), (run["finishedAt"], -1)]
    now, most = 0, 0
    for _, change in sorted(times):
        now += change
        most = max(most, now)
    return most


def accuracies(user: User) -> dict[str, float]:
    """The last accuracy of each run, as TensorBoard has it."""
    kubectl(user, "create", "-f", "-", given=BOARD)
    kubectl(user, "wait", "pod/board", "--for=condition=Ready", "--timeout=90s")
    port = int(eventually(lambda: re.search(r" at http://[^:/ ]+:(\d+)/", kubectl(user, "logs", "board")))[1])
    # It serves before it has read all that is there.
    runs = eventually(lambda: found if (found := asked(port, "runs")) and len(found) == len(RUNS) else None)
    scalars = "plugin/scalars/scalars?tag=accuracy&run="
    scalars_of = {run: eventually(partial(asked, port, f"{scalars}{run}")) for run in runs}
    kubectl(user, "delete", "pod", "board")
    return {run: values[-1][2] for run, values in scalars_of.items()}


def asked(port: int, path: str) -> Any:
    """None while nobody answers, or has not read that yet."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/data/{path}", timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None

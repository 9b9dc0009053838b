"""The excerpts of real outputs: what Python 3.11, TensorFlow 2.21, Keras 3.15, numpy 2.4 and g++ programs print.

Folders are replaced: /home/me has the user's own files.
"""

from __future__ import annotations

import pytest

from tarragon.base.number_rows import is_number_row
from tarragon.job.excerpt import telling_excerpt
from tarragon.job.termination_message import telling_line
from tests.conftest import ROOT

OUTPUTS = ROOT / "tests" / "data" / "mpi" / "output"
FAILURES = ROOT / "tests" / "data" / "failures"
SIZE = 20

START_OF_TENSORFLOW = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795777939.109772    9454 port.cc:153] oneDNN custom operations are on. You may see slightly "
    "different numerical results due to floating-point round-off errors from different computation orders. To turn "
    "them off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`.\n"
    "2026-11-27 14:50:41.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is "
    "optimized to use available CPU instructions in performance-critical operations.\n"
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate "
    "compiler flags.\n"
)
"""What every program with TensorFlow prints, of 2.21 and, with a date, of earlier versions."""
TELLING = {
    "assertion": "AssertionError: 3 shards can't be divided among 2 workers",
    "assertion-without-message": "AssertionError",
    "chained-cause": "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder/lock'",
    "cpp-abort": "what():  checkpoint has 3 tensors, model has 4",
    "exception-group": "OSError: shard 1 is unreadable",
    "fatal-abort": "Fatal Python error: Aborted",
    "json-in-message": "ValueError: unknown configuration {'layers': [{'units': 0, 'activation': 'relu'}, {'units': 1, "
    "'activation': 'relu'}, {'units': 2, 'activation': 'relu'}, {'unit … }, {'units': 58, 'activation': 'relu'}, "
    "{'units': 59, 'activation': 'relu'}]}",
    "keras-per-replica": "ValueError: Attempt to convert a value (PerReplica:{ … }) with an unsupported type (<class "
    "'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.",
    "keras-shapes": "ValueError: Exception encountered when calling Sequential.call(). Input 0 with name 'None' of "
    "layer 'dense' is incompatible with the layer: expected axis -1 of input shape to have value 4, but received input "
    "with shape (None, 5)",
    "keras2-shapes": 'ValueError: Input 0 of layer "sequential" is incompatible with the layer: expected shape=(None, '
    "16), found shape=(32, 12)",
    "keyboard": "KeyboardInterrupt",
    "logging-afterwards": "KeyError: 'test'",
    "numpy-array-in-message": "ValueError: unexpected batch array([[  0.        ,   0.14285714,   0.28571429,   "
    "0.42857143, … 128.28571429, 128.42857143]]) of shape (30, 30)",
    "numpy-assert": "AssertionError: Not equal to tolerance rtol=1e-07, atol=0",
    "numpy-broadcast": "ValueError: matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc "
    "signature (n?,k),(k,m?)->(n?,m?) (size 3 is different from 4)",
    "pool": "ValueError: a.jpg is not a JPEG",
    "recursion": "RecursionError: maximum recursion depth exceeded",
    "subprocess-failure": "subprocess.CalledProcessError: Command '['python', '-c', \"import sys; print('no space for "
    "shards', file=sys.stderr); sys.exit(3)\"]' returned non-zero exit status 3.",
    "syntax-error": "SyntaxError: invalid syntax",
    "system-exit": "config.json has no key learning_rate",
    "tf-assert": "tensorflow.python.framework.errors_impl.InvalidArgumentError: replicas differ",
    "tf-graph-error": "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error: Received a "
    "label value of 9 which is outside the valid range of [0, 4).  Label values: 0 1 2 3 9 0 1 2",
    "tf-graph-keras": "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error: "
    "indices[0,0] = 99 is not in [0, 10)",
    "tf-invalid-argument": "tensorflow.python.framework.errors_impl.InvalidArgumentError: Matrix size-incompatible: "
    "In[0]: [30,4], In[1]: [30,4] [Op:MatMul] name:",
    "tf-oom": "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
    "shape[1048576,4194304] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu "
    "[Op:Fill] name:",
}

EXCERPTS = {
    "keras2-shapes": [
        "Traceback (most recent call last):",
        "    model.fit(",
        "ValueError: in user code:",
        '    ValueError: Input 0 of layer "sequential"',
    ],
    "assertion": ["    assert len(shards) % workers == 0, f", "AssertionError: 3 shards can't be divided"],
    "assertion-without-message": ["    assert len(shards) % workers == 0", "AssertionError"],
    "chained-cause": [
        *("Traceback (most recent call last):", '  File "/home/me/chained-cause.py", line 10, in load'),
        "json.decoder.JSONDecodeError: Expecting value",
        "The above exception was the direct cause",
        "DataError: the labels can't be read",
        "During handling of the above exception",
        '  File "/home/me/chained-cause.py", line 20, in main',
        "FileNotFoundError: [Errno 2]",
    ],
    "cpp-abort": ["terminate called after throwing an instance of", "  what():  checkpoint has 3 tensors, model has 4"],
    "exception-group": [
        "  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)",
        '    |   File "/home/me/exception-group.py", line 6, in fetch',
        "    | OSError: shard 1 is unreadable",
    ],
    "fatal-abort": ["Fatal Python error: Aborted", '  File "/home/me/fatal-abort.py", line 10 in train'],
    "json-in-message": ["Traceback", "ValueError: unknown configuration"],
    "keras-per-replica": [
        "Traceback (most recent call last):",
        '  File "/home/me/mwms.py", line 22, in <module>',
        '    if how=="fit": m.fit(ds',
        "ValueError: Attempt to convert a value (PerReplica:{",
        "}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.",
    ],
    "keras-shapes": [
        '  File "/home/me/keras-shapes.py", line 12, in main',
        "    build().fit(",
        "ValueError: Exception encountered when calling Sequential.call().",
        "\x1b[1mInput 0 with name 'None' of layer 'dense' is incompatible with the layer",
    ],
    "logging-afterwards": ["KeyError: 'test'", "WARNING:root:2 data workers were not joined"],
    "numpy-array-in-message": [
        '  File "/home/me/numpy-array-in-message.py", line 5, in <module>',
        "ValueError: unexpected batch array([[",
        "… 23",
        "        128.28571429, 128.42857143]]) of shape (30, 30)",
    ],
    "numpy-assert": [
        "Traceback (most recent call last):",
        '  File "/home/me/numpy-assert.py", line 5, in check',
        "    np.testing.assert_allclose(",
        "AssertionError: ",
        "Not equal to tolerance rtol=1e-07, atol=0",
        "weights differ between workers",
    ],
    "pool": [
        '  File "/home/me/pool.py", line 5, in decode',
        "ValueError: a.jpg is not a JPEG",
        '  File "/home/me/pool.py", line 10, in <module>',
        "ValueError: a.jpg is not a JPEG",
    ],
    "recursion": ['  File "/home/me/recursion.py", line 2, in depth', "RecursionError: maximum recursion depth"],
    "subprocess-failure": [
        "no space for shards",
        '  File "/home/me/subprocess-failure.py", line 6, in prepare',
        "subprocess.CalledProcessError: Command",
    ],
    "syntax-error": ['  File "/home/me/syntax-error.py", line 1', "    def train(:", "SyntaxError: invalid syntax"],
    "system-exit": ["reading the configuration", "config.json has no key learning_rate"],
    "tf-assert": [
        '  File "/home/me/tf-assert.py", line 8, in <module>',
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: replicas differ",
        "Condition x == y did not hold.",
    ],
    "tf-graph-error": [
        "Traceback (most recent call last):",
        '  File "/home/me/tf-graph-error.py", line 12, in <module>',
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:",
        "Received a label value of 9",
    ],
    "tf-graph-keras": [
        "Traceback (most recent call last):",
        "    model.fit(np.full",
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:",
        "indices[0,0] = 99 is not in [0, 10)",
    ],
    "tf-invalid-argument": [
        '  File "/home/me/tf-invalid-argument.py", line 6, in main',
        "    print(tf.linalg.matmul(a, a))",
        "tensorflow.python.framework.errors_impl.InvalidArgumentError:",
    ],
    "tf-oom": ["Traceback", '  File "/home/me/tf-oom.py", line 3', "tensorflow.python.framework.errors_impl.Resource"],
}
"""The beginnings of lines that an excerpt has, in their order."""


def output_of(name: str) -> list[str]:
    return (FAILURES / f"{name}.txt").read_text().split("\n")


def test_every_output_is_in_the_tables() -> None:
    names = {path.stem for path in FAILURES.glob("*.txt")}

    assert set(TELLING) == names
    assert set(EXCERPTS) == names - {"keyboard", "numpy-broadcast"}


@pytest.mark.parametrize(("name", "line"), TELLING.items())
def test_a_failure_is_known_by_its_exception_and_what_that_says(name: str, line: str) -> None:
    assert telling_line("\n".join(output_of(name))) == line


@pytest.mark.parametrize(("name", "beginnings"), EXCERPTS.items())
@pytest.mark.parametrize("before", [0, 300])
def test_an_excerpt_has_the_exception_its_cause_and_the_users_own_line(
    name: str, beginnings: list[str], before: int
) -> None:
    lines = telling_excerpt([*(f"step {number} of 300" for number in range(before)), *output_of(name)], SIZE)

    found = iter(lines)
    assert [start for start in beginnings if not any(line.startswith(start) for line in found)] == []
    assert len(lines) <= SIZE


@pytest.mark.parametrize("name", sorted(TELLING))
def test_an_excerpt_has_few_rows_of_numbers(name: str) -> None:
    lines = telling_excerpt(output_of(name), SIZE)

    assert len(lines) <= SIZE
    assert sum(map(is_number_row, lines)) <= 6


@pytest.mark.parametrize("size", range(1, 30))
def test_an_excerpt_is_as_short_as_asked(size: int) -> None:
    assert len(telling_excerpt(output_of("chained-cause"), size)) <= size


def test_a_traceback_that_the_program_has_survived_is_not_why_it_ended() -> None:
    later = [f"step {number} of 60" for number in range(60)]

    assert telling_line("\n".join([*output_of("logging-afterwards"), *later, "no space left"])) == "no space left"


def test_of_a_traceback_without_its_beginning_the_exception_is_found() -> None:
    lines = output_of("keras-shapes")
    end = lines[lines.index("    build().fit(np.zeros((8, 5)), np.zeros(8), verbose=0)") :]

    assert telling_line("\n".join(end)) == TELLING["keras-shapes"]


def test_of_an_array_without_its_exception_the_words_behind_it_are_told() -> None:
    lines = output_of("numpy-assert")
    end = [*lines[-4:], "[[0. 1.]", " [2. 3.]]"]

    assert telling_line("\n".join(end)) == "DESIRED: array([[1., 1., 1., 1., 1., 1.],"


def test_nothing_is_said_of_no_output() -> None:
    assert telling_excerpt([], SIZE) == []
    assert telling_excerpt(["", " \0"], SIZE) == []


def test_lines_that_come_again_and_again_give_way_to_others() -> None:
    waits = [f"W retrying in {number} s" for number in range(50)]

    assert telling_excerpt(["loading shard 7", *waits, "gave up"], 5) == [
        "loading shard 7",
        "… 48 more lines",
        *waits[-2:],
        "gave up",
    ]


def test_an_excerpt_has_the_last_lines() -> None:
    lines = [f"step {number}" for number in range(30)]

    assert telling_excerpt([*lines, "", "ValueError: 5", ""], 4) == ["step 27", "step 28", "step 29", "ValueError: 5"]


def test_an_excerpt_keeps_what_a_rank_has_said_before_the_boxes_of_mpirun() -> None:
    said = (OUTPUTS / "openmpi4-rank-raises.txt").read_text().split("\n")
    lines = [*(f"step {number}" for number in range(30)), *said]

    found = telling_excerpt(lines, 8)

    assert found[:3] == said[:3]
    assert found[3] == "… 6 more lines"
    assert found[4:] == [line for line in said if line][-4:]


def test_an_excerpt_keeps_the_beginning_of_a_long_box() -> None:
    said = (OUTPUTS / "openmpi5-too-few-slots.txt").read_text().split("\n")

    found = telling_excerpt(said, 20)

    assert "There are not enough slots available in the system to satisfy the 200" in found
    assert found[-2:] == ["launch.", "-" * 74]


@pytest.mark.parametrize("said", ["", "no shards in /data\n", "Traceback (most recent call last):\nValueError: 5\n"])
def test_what_tensorflow_prints_at_its_start_is_not_quoted(said: str) -> None:
    output = f"{START_OF_TENSORFLOW}{said}{START_OF_TENSORFLOW}"

    assert telling_excerpt(output.splitlines(), SIZE) == said.splitlines()
    assert telling_line(output) == (said.splitlines() or [""])[-1]


def test_a_warning_of_tensorflow_is_quoted() -> None:
    warning = "E0000 00:00:1795777939.109772    9454 cuda_executor.cc:1737] INTERNAL: CUDA error: no device"

    assert telling_excerpt([*START_OF_TENSORFLOW.splitlines(), warning], SIZE) == [warning]

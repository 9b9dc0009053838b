"""Conversion of records of Python's logging to JSON, which programs do not notice."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.logs.programs import FIELDS, SOURCE, Container, ended

LOGGED = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(message)s")
log = logging.getLogger("train.loop")
log.warning("loss is %s", 0.5)
try:
    {}["x"]
except KeyError:
    log.exception("no x")
"""


def test_records_have_their_severity_logger_place_and_traceback(any_container: Container) -> None:
    result = any_container.run_python(LOGGED)

    warned, failed = result.lines
    assert (warned["severity"], warned["message"], warned["logger"]) == ("WARNING", "loss is 0.5", "train.loop")
    assert warned[SOURCE] == {"file": "<string>", "line": "5", "function": "<module>"}
    assert warned["replica_type"] == "ps"
    assert failed["severity"] == "ERROR"
    assert failed["message"].startswith("no x\nTraceback (most recent call last):\n")
    assert failed["message"].endswith("KeyError: 'x'")
    assert result.err.count(b"\n") == 2


@pytest.mark.parametrize(
    ("level", "severity"), [(5, "DEBUG"), (10, "DEBUG"), (20, "INFO"), (25, "INFO"), (30, "WARNING"), (50, "CRITICAL")]
)
def test_levels_become_severities(container: Container, level: int, severity: str) -> None:
    program = f"import logging; logging.basicConfig(level=1); logging.log({level}, 'x')"

    assert container.run_python(program).lines[0]["severity"] == severity


def test_an_uncaught_exception_is_one_line_and_the_exit_code_is_one(any_container: Container) -> None:
    result = any_container.run_python("def f():\n  raise ValueError('no')\nf()")

    (line,) = result.lines
    assert (result.code, line["severity"]) == (1, "ERROR")
    assert line["message"].startswith("Traceback (most recent call last):\n")
    assert line["message"].endswith("ValueError: no")


def test_printed_and_logged_lines_keep_their_order(any_container: Container) -> None:
    program = """
import logging, sys
logging.basicConfig(stream=sys.stdout, level=20)
for number in range(50):
    print("printed %d" % number)
    logging.info("logged %d", number)
"""
    assert any_container.run_python(program).messages == [
        f"{word} {number}" for number in range(50) for word in ("printed", "logged")
    ]


def test_the_users_own_sitecustomize_and_usercustomize_run_and_do_not_see_ours(
    any_container: Container, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.mine = __file__; sys.path.append('/added')")
    (own / "usercustomize.py").write_text("import sys; sys.yours = __file__")  # a virtualenv has no usercustomize
    program = (
        "import sys, sitecustomize; print(sys.mine); print(getattr(sys, 'yours', sys.mine)); "
        "print(sitecustomize.__file__); print(sys.path)"
    )

    result = any_container.run(any_container.python, "-c", program, PYTHONPATH=str(own))

    mine, yours, imported, path = result.messages
    assert mine.startswith(str(own))
    assert yours.startswith(str(own))
    assert imported.startswith(str(own))
    assert str(any_container.scripts) not in path
    assert "/added" in path


@pytest.mark.parametrize("fault", ["import missing_thing", "raise ValueError('mine')", "import sys; sys.exit(3)"])
def test_an_error_in_the_users_sitecustomize_is_as_without_ours(
    any_container: Container, tmp_path: Path, fault: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(fault)
    alone = subprocess.run(
        [any_container.python, "-c", "print('runs')"],
        env={**any_container.env, "PYTHONPATH": str(own)},
        capture_output=True,
        check=False,
        timeout=60,
    )

    result = any_container.run(any_container.python, "-c", "print('runs')", PYTHONPATH=str(own))

    assert result.code == alone.returncode
    assert (b'"message":"runs"' in result.out) == (alone.stdout == b"runs\n")
    assert bool(result.err) == bool(alone.stderr)


def test_pythonpath_is_prefixed(any_container: Container, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('found')")

    result = any_container.run(any_container.python, "-c", "import mine", PYTHONPATH=str(tmp_path))

    assert result.messages == ["found"]


@pytest.mark.parametrize("flag", ["-S", "-E", "-s"])
def test_a_python_without_sitecustomize_logs_plain_text(any_container: Container, flag: str) -> None:
    result = any_container.run_python("import logging; logging.basicConfig(); logging.getLogger('a').error('x')", flag)

    (line,) = result.lines
    assert (line["severity"], line["message"], line["logger"]) == ("ERROR", "x", "a")


def test_output_that_another_program_reads_is_not_changed(any_container: Container, tmp_path: Path) -> None:
    """`python train.py 2>&1 | tee`, `$(python tool.py)`, and logs in files."""
    file = tmp_path / "train.log"
    program = f"""
import logging, subprocess, sys
one = "import logging; logging.basicConfig(); logging.error('inner')"
out = subprocess.Popen([sys.executable, "-c", one], stderr=subprocess.PIPE).communicate()[1]
sys.stdout.write(repr(out.decode().strip()) + "\\n")
logging.getLogger().addHandler(logging.FileHandler({str(file)!r}))
logging.error("outer")
"""
    result = any_container.run_python(program)

    assert result.messages[0].lstrip("u") == "'ERROR:root:inner'"
    assert file.read_text() == "outer\n"


def test_multiprocessing_children_log_like_their_parent(any_container: Container, tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text("""
import logging, multiprocessing, sys
def work(number):
    logging.getLogger("child").warning("%s", "x" * 500 + str(number))
if __name__ == "__main__":
    logging.basicConfig()
    if sys.argv[1] != "default":
        multiprocessing.set_start_method(sys.argv[1])
    children = [multiprocessing.Process(target=work, args=(n,)) for n in range(4)]
    for child in children: child.start()
    for child in children: child.join()
    sys.exit(sum(child.exitcode for child in children))
""")
    methods = ["default"] if "2.7" in any_container.python else ["fork", "spawn", "forkserver"]
    for method in methods:
        result = any_container.run(any_container.python, str(script), method)

        assert result.code == 0
        assert sorted(message[-1] for message in result.messages) == ["0", "1", "2", "3"]
        assert {line["severity"] for line in result.lines} == {"WARNING"}


def test_a_formatter_that_writes_json_is_not_replaced(any_container: Container) -> None:
    program = """
import json, logging
class Own(logging.Formatter):
    def format(self, record):
        return json.dumps({"msg": record.getMessage(), "level": record.levelname, "step": 7})
handler = logging.StreamHandler()
handler.setFormatter(Own())
logging.getLogger().addHandler(handler)
logging.error("x")
"""
    (line,) = any_container.run_python(program).lines

    assert (line["step"], line["message"], line["severity"], line["replica_type"]) == (7, "x", "ERROR", "ps")


def test_a_record_that_cannot_be_formatted_is_reported_by_logging(any_container: Container) -> None:
    program = "import logging; logging.basicConfig(); logging.error('%d', 'x'); print('goes on')"

    result = any_container.run_python(program)

    assert result.code == 0
    assert "goes on" in result.messages
    assert any("TypeError" in message for message in result.messages)


def test_a_message_that_is_too_long_loses_its_middle(any_container: Container) -> None:
    program = "import logging; logging.basicConfig(); logging.error('begin' + u'\\u20ac' * 50000 + 'end')"

    (line,) = any_container.run_python(program).lines

    assert line["severity"] == "ERROR"
    assert re.fullmatch(r"begin€+\n\[\.\.\.\]\n€+end", line["message"])


@pytest.mark.parametrize("broken", ["json_logging.py", "json_lines.py", "json_logs.py"])
def test_a_broken_script_of_ours_does_not_end_a_program(any_container: Container, broken: str) -> None:
    """As with a Python version on which the scripts fail; the shell of the pod checks that first."""
    (any_container.scripts / broken).write_text("raise SystemError('broken')")

    ran = subprocess.run(
        [any_container.python, "-c", "import logging; logging.basicConfig(); logging.error('x'); print('y')"],
        env={**any_container.env, "PYTHONPATH": str(any_container.scripts), "TARRAGON_LOG_STREAMS": "1:1"},
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"y\n", b"ERROR:root:x\n")


def test_a_python_without_the_wrapper_processes_its_own_output(any_container: Container) -> None:
    """The image's own command, where only PYTHONPATH leads to the scripts."""
    # An import in a thread shows that Python 2 has released its import lock.
    threaded = "import threading; t = threading.Thread(target=__import__, args=('wsgiref',)); t.start(); t.join(); "
    said = "import os, sys; os.write(2, b'E tensorflow/x.cc:1] c++\\n'); print(sys.stdin.readline()); sys.exit(9)"
    process = subprocess.Popen(
        [any_container.python, "-c", threaded + said],
        env={**any_container.env, "PYTHONPATH": str(any_container.scripts)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    result = ended(process, b"typed")

    assert result.code == 9
    assert [(line["message"], line["severity"]) for line in result.lines] == [("typed", "INFO"), ("c++", "ERROR")]
    assert {line["job"] for line in result.lines} == {FIELDS["job"]}


def test_a_python_inside_another_program_does_not_process_its_output(any_container: Container) -> None:
    """The output of `$(python tool.py)` in an entrypoint is not a log."""
    env = {**any_container.env, "PYTHONPATH": str(any_container.scripts)}
    script = f"x=$({any_container.python} -c 'print(1)'); echo got $x"

    ran = subprocess.run(
        ["sh", "-c", script], env=env, capture_output=True, check=False, timeout=60, start_new_session=True
    )

    assert ran.stdout == b"got 1\n"


def test_a_signal_ends_a_python_that_processes_its_output(any_container: Container) -> None:
    process = subprocess.Popen(
        [any_container.python, "-u", "-c", "import time; print('ready'); time.sleep(60)"],
        env={**any_container.env, "PYTHONPATH": str(any_container.scripts)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["message"] == "ready"

    process.terminate()

    assert ended(process).code == 128 + 15


def test_a_program_that_opens_a_terminal_still_sees_one(container: Container) -> None:
    """A terminal that a program opens itself is not changed."""
    ours, its = pty.openpty()
    program = f"import os; print(os.isatty({its}))"
    process = container.start(container.python, "-c", program, pass_fds=[its])

    assert ended(process).messages == ["True"]
    os.close(ours)
    os.close(its)

"""Whether the steps of a training add up, by what its ranks have written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.support.elastic_trainings import Training, staggered, steps_of
from bench.support.reading_training import BATCH_SIZE, JOURNALS, RESULT, Model, save

TRAINING = Training(name="digits", steps=6)


def rank(folder: Path, name: str, worker: str, steps: Iterable[int], share: int = BATCH_SIZE) -> None:
    """The journal of a rank, named after its start and its number."""
    journals = folder / JOURNALS
    journals.mkdir(exist_ok=True)
    rows = [f"{step} {share}\n" for step in steps]
    (journals / name).write_text("".join([f"{worker} {next(iter(steps))}\n", *rows]))


def trained(folder: Path, steps: Iterable[int] = range(6)) -> None:
    model = Model()
    for step in steps:
        model.apply(model.gradient(model.batch(step)))
    save(model, TRAINING.steps, folder / RESULT)


def test_steps_of_two_workers_and_then_of_one_add_up(tmp_path: Path) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(4), BATCH_SIZE // 2)
    rank(tmp_path, "0001-01", "digits-worker-1", range(4), BATCH_SIZE // 2)
    rank(tmp_path, "0002-00", "digits-worker-0", range(4, 6))
    trained(tmp_path)

    found = steps_of(TRAINING, tmp_path)

    assert found.problems == []
    assert found.by_worker == {"digits-worker-0": 4, "digits-worker-1": 2}
    assert (found.total, found.redone, found.starts) == (6, 0, 2)


def test_steps_after_the_checkpoint_from_which_a_training_goes_on_count_once(tmp_path: Path) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(5))
    rank(tmp_path, "0002-00", "digits-worker-0", range(3, 6))
    trained(tmp_path)

    found = steps_of(TRAINING, tmp_path)

    assert found.problems == []
    assert (found.total, found.redone) == (6, 2)


def test_an_incomplete_line_of_a_killed_rank_is_no_step(tmp_path: Path) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(5))
    with (tmp_path / JOURNALS / "0001-00").open("a") as journal:
        journal.write("5 1")
    rank(tmp_path, "0002-00", "digits-worker-0", range(5, 6))
    trained(tmp_path)

    found = steps_of(TRAINING, tmp_path)

    assert found.problems == []
    assert found.total == 6


def test_ranks_that_were_killed_before_they_began_change_nothing(tmp_path: Path) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(4))
    (tmp_path / JOURNALS / "0002-00").touch()
    rank(tmp_path, "0003-00", "digits-worker-0", range(4, 6))
    trained(tmp_path)

    found = steps_of(TRAINING, tmp_path)

    assert found.problems == []
    assert (found.total, found.starts) == (6, 2)


@pytest.mark.parametrize("second", [range(5, 6), range(4, 5)])
def test_a_lost_step_is_a_problem(tmp_path: Path, second: range) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(4))
    rank(tmp_path, "0002-00", "digits-worker-0", second)
    trained(tmp_path)

    assert "5 steps count, of which 5 are different, of 6" in steps_of(TRAINING, tmp_path).problems


def test_a_step_without_the_share_of_a_worker_is_a_problem(tmp_path: Path) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(6), BATCH_SIZE // 2)
    rank(tmp_path, "0001-01", "digits-worker-1", range(5), BATCH_SIZE // 2)
    trained(tmp_path)

    assert f"step 5 has {BATCH_SIZE // 2} images instead of {BATCH_SIZE}" in steps_of(TRAINING, tmp_path).problems


@pytest.mark.parametrize("applied", [[0, 1, 2, 2, 3, 4, 5], [0, 1, 2, 4, 5]])
def test_a_gradient_that_was_applied_twice_or_never_is_a_problem(tmp_path: Path, applied: list[int]) -> None:
    rank(tmp_path, "0001-00", "digits-worker-0", range(6))
    trained(tmp_path, applied)

    [problem] = steps_of(TRAINING, tmp_path).problems

    assert problem.startswith("the model differs by up to ")


def test_a_training_that_left_nothing_is_a_problem(tmp_path: Path) -> None:
    assert "there is no result" in steps_of(TRAINING, tmp_path).problems


def test_the_same_seed_gives_the_same_arrivals() -> None:
    steps, counts = {"short": 1, "long": 9}, {"short": 5, "long": 2}

    first, again = (staggered(steps, counts, seed=1, apart=8.0) for _ in range(2))

    assert first == again
    assert sorted(each.steps for each in first) == [1] * 5 + [9] * 2
    assert staggered(steps, counts, seed=2, apart=8.0) != first

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.job.log_progress import LogProgress
from tarragon.job.progress import Progress, Source, Unit, amount_text
from tarragon.job.progress_lines import progress_line

NOW = dt.datetime(2026, 11, 24, 12, 0, tzinfo=dt.UTC)
LOGS = Path(__file__).parents[1] / "data/logs/progress"
"""Written by Keras 3.14 and tqdm 4.67, as they came through a pipe."""


def lines_of(name: str) -> list[str]:
    return (LOGS / name).read_bytes().decode().split("\n")


def printed_progress(lines: Sequence[str]) -> Progress | None:
    return LogProgress().after(lines).progress(NOW)


def amount(*lines: str) -> str:
    progress = printed_progress(lines)
    return "" if progress is None else amount_text(progress)


def amounts(states: list[str]) -> list[str]:
    """The amounts after each of the states of a bar."""
    log, found = LogProgress(), []
    for state in states:
        log = log.after([state])
        progress = log.progress(NOW)
        found.append("" if progress is None else amount_text(progress))
    return found


# ----------------------------------------------------------------------------------------------------- single lines


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("step 12 of 100", "step 12/100 (12 %)"),
        ("step 55 of 4000", "step 55/4,000 (1 %)"),
        ("step 55 of 4000, loss 0.31, accuracy 0.9", "step 55/4,000 (1 %)"),
        ("Step 12/100: loss=0.3", "step 12/100 (12 %)"),
        ("2026-11-24 10:00:00,123 INFO train: step: 12/100 - loss: 0.3", "step 12/100 (12 %)"),
        ("INFO:root:Iteration [12 / 100] took 0.3 s", "step 12/100 (12 %)"),
        (" iteration       10/     100 | consumed samples: 640 | lm loss: 1.0E+01 |", "step 10/100 (10 %)"),
        ('{"step": 12, "total_steps": 100, "loss": 0.3}', "step 12/100 (12 %)"),
        ("Train step 12 out of 100 done", "step 12/100 (12 %)"),
        ("INFO:tensorflow:loss = 0.3, step = 200 (2.4 sec)", "step 200"),
        ("completed step: 12, seconds: 1.20, TFLOP/s/device: 5.1, loss: 9.8", "step 12"),
        ("Epoch 3/10", "2/10 epochs (20 %)"),
        ("Epoch 3/10, loss: 0.3", "3/10 epochs (30 %)"),
        ("Epoch [3/10] train_loss=0.3", "3/10 epochs (30 %)"),
        ("Epoch [3/10], Step [100/500], Loss: 0.3", "step 1,100/5,000 (22 %)"),
        ("Train Epoch: 2 [6400/60000 (11%)]\tLoss: 0.3", "step 66,400"),
        ("Epoch: [3][ 120/5005]  Time 0.3 Loss 6.9", "step 10,130"),
        ("epoch 1/3 [####      ] 10/20 loss=0.100", "step 10/60 (16 %)"),
        ("epoch 1/3 [          ]  0/20", "step 0/60 (0 %)"),
        ("Epoch [2/3]: 50% |=====>....| 10/20 (50%) - loss: 0.3", "step 30/60 (50 %)"),
        ("Epoch 2/3 - █████░░░░░  50.0% 10/20, loss 0.3", "step 30/60 (50 %)"),
        ("Epoch 2/3 step 10/20 [=====>    ] 50 % loss 0.3", "step 30/60 (50 %)"),
        ("Epoch 2/3 |█████     | 10 of 20 batches, loss 0.3", "step 30/60 (50 %)"),
        (" 37%|███▋      | 37/100 [00:12<00:20,  3.1it/s]", "step 37/100 (37 %)"),
        ("Training:  46%|████▌     | 1.15k/2.50k [00:00<00:00, 3.58kstep/s, loss=0.31]", "step 1,150/2,500 (46 %)"),
        ("Epoch 2/3:  50%|█████     | 10/20 [00:00<00:00, 97.09it/s, loss=0.5]", "step 30/60 (50 %)"),
        ("Epoch 2:  50%|█████     | 10/20 [00:00<00:00, 97.09it/s, v_num=0, train_loss=0.5]", "step 50"),
        ("Epoch 1/3  ━━━━━━━━━━╸━━━━━ 37/100 0:00:12 • 0:00:20 3.10it/s v_num: 0", "step 137/400 (34 %)"),
        ("[1,0]<stdout>: step 12 of 100", "step 12/100 (12 %)"),
        ("[prterun-host-12@1,0]<stdout>: step 12 of 100", "step 12/100 (12 %)"),
        ("[0] step 12 of 100", "step 12/100 (12 %)"),
        ("\x1b[32mstep\x1b[0m \x1b[1m12\x1b[0m of 100", "step 12/100 (12 %)"),
    ],
)
def test_a_line_that_counts_the_steps_of_a_training_is_progress(line: str, says: str) -> None:
    assert amount(line) == says


@pytest.mark.parametrize(
    "line",
    [
        "",
        "2026/11/24",
        "11/24 12:00:00 starting",
        "24/11/2026 step",
        "rank 1/4",
        "worker 3/8 is ready",
        "shard 2/16",
        "wrote /data/step/12/100",
        "reading part-12/100.tfrecord",
        "reading step-12/100",
        "Step 1 of 3: installing packages",
        "Step 2/5 - preprocessing",
        "step 101 of 100",
        "step 0 of 0",
        "Step 2/5 [####      ] 40 %",
        "epoch 1/3 [####      ] 10/20 MB",
        "epoch 1/3 [####      ] 10/20 validation",
        "epoch 1/3 val [####      ] 10/20 loss=0.3",
        "validation of epoch 1/3 [####      ] 10/20 loss=0.3",
        "epoch 1/3 [####      ] 10/20/30",
        "Downloading [####      ] 10/20",
        "step 12/100/3",
        "step 12 of 100.5 MB",
        "eval step 12/100",
        "Validation: step 12 of 100",
        "warmup step 3/10",
        "Loading batch 3/10",
        "continuing from step 55 of 100",
        "saved the checkpoint of step 55, loss 0.3",
        "step 12",
        "batch 32, loss 0.3",
        "batch size: 32, loss: 0.3",
        "step 12345678901234567890 of 123456789012345678901",
        "Epoch 00003: val_loss improved from 0.3 to 0.2",
        "epoch 3.5 of 10",
        "global_step/sec: 41.2",
        "Tests passed: 12/100",
        "12/100",
        "1/2 teaspoon",
        "Downloading shards:  67%|██████▋   | 2/3 [00:00<00:00, 19.9B/s]",
        "Map (num_proc=4):  25%|##5       | 10/40 [00:00<00:00, 98.90 examples/s]",
        "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 97.09it/s]",
        "Sanity Checking DataLoader 0:  50%|█████     | 1/2 [00:00<00:00, 97.09it/s]",
        "[1,3]<stdout>: step 12 of 100",
        "[3] step 12 of 100",
        "{'eval_loss': 0.3, 'epoch': 1.0}",
        "\u0661/\u0662 \u00b2 step \u00b2 of \u00b3",
    ],
)
def test_a_line_that_counts_something_else_is_no_progress(line: str) -> None:
    assert amount(line) == ""


def test_bare_numbers_are_progress_once_they_grow() -> None:
    assert amounts(["12/100", "13/100", "hello", "20/100 loss=0.3"]) == [
        "",
        "step 13/100 (13 %)",
        "step 13/100 (13 %)",
        "step 20/100 (20 %)",
    ]
    assert amounts(["12/100", "13/200", "3/4"]) == ["", "", ""]


def test_a_log_of_tarragons_json_is_read_as_its_messages() -> None:
    line = (
        '{"severity": "INFO", "message": "step 12 of 100", "job": "", "namespace": "", "pod": "", "uid": "",'
        ' "replica_type": "", "replica_index": "", "runtime_id": "", "logging.googleapis.com/labels": {}}'
    )

    assert amount(line) == "step 12/100 (12 %)"


def test_what_a_log_says_is_marked_as_such_and_has_its_metrics() -> None:
    progress = LogProgress().after(["step 12 of 100: loss=0.31 lr=0.1 accuracy=0.9"]).progress(NOW, "uid-1")

    assert progress == Progress(
        updated_at=NOW,
        done=12,
        total=100,
        unit=Unit.STEPS,
        metrics={"loss": "0.31", "accuracy": "0.9"},
        pod_uid="uid-1",
        source=Source.LOG,
    )


# ------------------------------------------------------------------------------------------------------------- Keras


def test_keras_bars_count_the_steps_of_all_epochs() -> None:
    states = [state for line in lines_of("keras.log") for state in line.split("\r")]

    assert [*dict.fromkeys(amounts(states))] == [
        "0/3 epochs (0 %)",
        "step 1/30 (3 %)",
        "step 10/30 (33 %)",
        "step 11/30 (36 %)",
        "step 20/30 (66 %)",
        "step 21/30 (70 %)",
        "step 30/30 (100 %)",
    ]


def test_the_last_state_of_each_line_is_enough() -> None:
    assert [*dict.fromkeys(amounts(lines_of("keras.log")))] == [
        "0/3 epochs (0 %)",
        "step 10/30 (33 %)",
        "step 20/30 (66 %)",
        "step 30/30 (100 %)",
    ]


def test_keras_with_a_line_per_epoch_is_read_too() -> None:
    assert amount(*lines_of("keras-verbose-2.log")[:4]) == "step 20/30 (66 %)"


def test_the_bar_of_an_evaluation_is_not_that_of_the_training() -> None:
    before = ["Epoch 2/3", "10/10 - 0s - 5ms/step - loss: 0.6922"]
    evaluation = "4/4 - 0s - 3ms/step - loss: 0.9916"

    progress = printed_progress([*before, evaluation])

    assert amount(*before, evaluation) == amount(*before) == "step 20/30 (66 %)"
    assert progress is not None
    assert progress.loss == "0.6922"


def test_keras_2_is_read_too() -> None:
    bar = "100/938 [==>...........................] - ETA: 1s - loss: 0.3 - accuracy: 0.9"

    assert amount("Epoch 1/2", bar) == "step 100/1,876 (5 %)"


def test_bars_of_several_workers_show_metrics_at_the_ends_of_epochs_only() -> None:
    bar = "{}/60 [==>...........................] - ETA: 1s - loss: 2.566 - accuracy: 3.03"
    states = [*("Epoch 1/2", bar.format(4), bar.format(60)), "60/60 [====] - 1s 9ms/step - loss: 0.53 - accuracy: 0.8"]
    log, seen = LogProgress(bars_sum_metrics=True), []
    for line in [*states, "Epoch 2/2", bar.format(7)]:
        log = log.after([line])
        seen.append(log.progress(NOW))

    assert [None if each is None else (each.done, each.loss) for each in seen] == [
        *((0, ""), (4, ""), (60, ""), (60, "0.53"), (60, "0.53"), (67, "0.53"))
    ]
    assert LogProgress().after(["Epoch 1/2", bar.format(4)]).metrics["loss"] == "2.566"


def test_a_fit_of_one_epoch_that_is_called_again_has_an_unknown_end() -> None:
    once = ["Epoch 1/1", "10/10 - 0s - 5ms/step - loss: 0.7"]

    assert amount(*once, *once, "Epoch 1/1", "4/10 - 0s - 5ms/step - loss: 0.7") == "step 24"


def test_epochs_whose_number_grows_have_an_unknown_end() -> None:
    assert amount("Epoch 1/1", "10/10 - 0s - 5ms/step", "Epoch 2/2", "10/10 - 0s - 5ms/step") == "step 20"


# -------------------------------------------------------------------------------------------------------------- tqdm


def test_a_bar_of_tqdm_counts_and_says_what_is_left() -> None:
    progress = printed_progress([" 37%|███▋      | 37/100 [00:12<01:20,  3.1it/s, loss=0.3]"])

    assert progress is not None
    assert (progress.done, progress.total, progress.remaining_seconds, progress.loss) == (37, 100, 80, "0.3")


def test_a_bar_for_each_epoch_counts_the_steps_of_all_epochs() -> None:
    states = [state for line in lines_of("tqdm-of-epochs.log") for state in line.split("\r")]

    assert [*dict.fromkeys(amounts(states))] == [
        "",
        "step 0/40 (0 %)",
        "step 10/40 (25 %)",
        "step 20/40 (50 %)",
        "step 30/40 (75 %)",
        "step 40/40 (100 %)",
    ]


def test_a_bar_that_begins_again_without_a_word_about_epochs_has_an_unknown_end() -> None:
    bars = [f"{share}%|███| {done}/469 [00:12<00:20, 3.1it/s]" for share, done in ((90, 420), (100, 469), (10, 46))]

    assert amounts(bars) == ["step 420/469 (89 %)", "step 469/469 (100 %)", "step 515"]


def test_the_bar_of_a_validation_does_not_replace_that_of_the_training() -> None:
    training, validation = " 37%|███| 1480/4000 [00:12<00:20, 3.1it/s]", "100%|███| 13/13 [00:01<00:00, 9.1it/s]"

    assert amount(training, validation) == "step 1,480/4,000 (37 %)"
    assert amount(validation, training) == "step 1,480/4,000 (37 %)"


def test_the_metrics_that_huggingface_writes_between_its_bars_are_shown() -> None:
    bar = "  8%|▊         | 8/100 [00:01<00:12,  7.4it/s]"

    progress = printed_progress([bar, "{'loss': 0.693, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.3}"])

    assert progress is not None
    assert progress.loss == "0.693"


# ---------------------------------------------------------------------------------------------------- epochs and steps


def test_steps_of_a_line_of_their_own_are_counted_over_all_epochs() -> None:
    of_epoch = ["Epoch 1/3", "step 50/100", "step 100/100", "Epoch 2/3", "step 1/100"]
    of_training = ["Epoch 1/3", "step 50/300", "step 100/300", "Epoch 2/3", "step 101/300"]

    assert amount(*of_epoch) == "step 101/300 (33 %)"
    assert amount(*of_training) == "step 101/300 (33 %)"


def epochs_named_behind_their_steps(line: str) -> list[str]:
    steps = [f"step {step}/10" for step in (1, 4, 10)]
    return [each for epoch in (1, 2, 3) for each in (*steps, line.format(epoch))]


@pytest.mark.parametrize("line", ["epoch {}/3", "epoch {}/3 loss=0.3"])
def test_an_epoch_named_behind_its_steps_is_over_and_further_steps_are_of_the_next(line: str) -> None:
    assert amounts(epochs_named_behind_their_steps(line)) == [
        "step 1/10 (10 %)",
        "step 4/10 (40 %)",
        "step 10/10 (100 %)",
        "step 10/30 (33 %)",
        "step 11/30 (36 %)",
        "step 14/30 (46 %)",
        "step 20/30 (66 %)",
        "step 20/30 (66 %)",
        "step 21/30 (70 %)",
        "step 24/30 (80 %)",
        "step 30/30 (100 %)",
        "step 30/30 (100 %)",
    ]


def test_steps_of_the_training_stay_such_where_an_epoch_is_named_behind_its_own() -> None:
    lines = ["step 10/30", "epoch 1/3 loss 0.3", "step 13/30", "step 20/30", "epoch 2/3 loss 0.3", "step 23/30"]

    assert amounts(lines) == [
        "step 10/30 (33 %)",
        "step 10/30 (33 %)",
        "step 13/30 (43 %)",
        "step 20/30 (66 %)",
        "step 20/30 (66 %)",
        "step 23/30 (76 %)",
    ]


def test_a_bar_before_the_first_epoch_may_be_anything() -> None:
    bar = "100%|███| 13/13 [00:12<00:00, 3.1it/s]"

    assert amounts([bar, "Epoch 1/3", "1/10 ━━━━ 0s 2ms/step - loss: 0.7"])[1:] == [
        "0/3 epochs (0 %)",
        "step 1/30 (3 %)",
    ]


def test_an_epoch_named_in_a_log_that_is_read_from_its_middle_has_only_begun() -> None:
    assert amounts(["step 9/10", "step 10/10", "Epoch 3/3"])[-1] == "step 20/30 (66 %)"


def bars_of_keras(steps: int, epochs: int) -> list[str]:
    bars = [f"{step}/{steps} ━━━━━━━━ 0s 31ms/step - loss: 0.3" for step in range(1, steps + 1)]
    return [line for epoch in range(1, epochs + 1) for line in (f"Epoch {epoch}/{epochs}", *bars)]


def lines_below_epochs(steps: int, epochs: int) -> list[str]:
    lines = [f"step {step}/{steps}" for step in range(1, steps + 1)]
    return [line for epoch in range(1, epochs + 1) for line in (f"Epoch {epoch}/{epochs}", *lines)]


@pytest.mark.parametrize("early", [("step 1/5", "step 5/5"), ("1/5", "2/5", "5/5"), ("step 1/5", "step 2/5")])
@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_steps_before_the_first_epoch_do_not_stand_for_bars_of_another_total(early: Sequence[str], epochs: int) -> None:
    states = [line for line in amounts([*early, *bars_of_keras(4, epochs)])[len(early) + 1 :] if line]

    assert [*dict.fromkeys(states)] == [
        f"step {step}/{4 * epochs} ({100 * step // (4 * epochs)} %)" for step in range(1, 4 * epochs + 1)
    ]


def test_steps_before_the_first_epoch_do_not_stand_for_lines_of_another_total() -> None:
    assert amounts(["step 1/5", "step 5/5", *lines_below_epochs(4, 2)]) == [
        "step 1/5 (20 %)",
        "step 5/5 (100 %)",
        "step 5/10 (50 %)",
        "0/2 epochs (0 %)",
        "0/2 epochs (0 %)",
        "step 3/8 (37 %)",
        "step 4/8 (50 %)",
        "step 4/8 (50 %)",
        "step 5/8 (62 %)",
        "step 6/8 (75 %)",
        "step 7/8 (87 %)",
        "step 8/8 (100 %)",
    ]


def test_steps_before_the_first_epoch_that_go_on_behind_it_are_those_of_the_training() -> None:
    validation = "4/4 ━━━━━━━━ 0s 3ms/step - loss: 0.4"
    lines = [line for epoch in (1, 2, 3) for line in ("step 5/10", "step 10/10", f"epoch {epoch}/3", validation)]

    assert amounts(lines)[3:] == [
        "step 4/12 (33 %)",
        *("step 15/30 (50 %)", "step 20/30 (66 %)", "step 20/30 (66 %)", "step 20/30 (66 %)"),
        *("step 25/30 (83 %)", "step 30/30 (100 %)", "step 30/30 (100 %)", "step 30/30 (100 %)"),
    ]


def test_a_validation_behind_an_epoch_that_named_its_loss_does_not_replace_the_steps() -> None:
    lines = ["step 10/10", "epoch 1/3 loss=0.3", "4/4 ━━━━━━━━ 0s 3ms/step - loss: 0.4", "step 1/10"]

    assert amounts(lines)[1:] == ["step 10/30 (33 %)", "step 10/30 (33 %)", "step 11/30 (36 %)"]


@given(
    st.lists(st.tuples(st.sampled_from(["step {}/{}", "{}/{}"]), st.integers(1, 5), st.sampled_from([5, 12]))),
    st.sampled_from([bars_of_keras, lines_below_epochs]),
    st.integers(1, 3),
    st.data(),
)
def test_steps_before_the_first_epoch_change_nothing_once_others_are_counted(
    early: list[tuple[str, int, int]], log: Callable[[int, int], list[str]], epochs: int, data: st.DataObject
) -> None:
    lines = log(4, epochs)
    read = data.draw(st.integers(2, len(lines)))
    before = [line.format(done, total) for line, done, total in early]

    assert amount(*before, *lines[:read]) == amount(*lines[:read])


@given(
    st.lists(st.sampled_from(["epoch 1/3", "epoch 2/3 loss=0.3", *(f"step {n}/10" for n in (1, 5, 10))]), max_size=9)
)
def test_a_log_that_was_counted_in_steps_is_not_counted_in_epochs_again(lines: list[str]) -> None:
    found = [amount for amount in amounts(lines) if amount]

    assert found == sorted(found, key=lambda amount: "epochs" not in amount)


def test_steps_without_a_total_do_not_replace_those_with_one() -> None:
    assert amount("step 12 of 100", "loss = 0.3, step = 13") == "step 12/100 (12 %)"


# ------------------------------------------------------------------------------------------------------ hostile input


def test_an_unfinished_line_ends_before_its_last_word() -> None:
    assert LogProgress().after(["step 12 of 10"], is_cut=True).progress(NOW) is None
    bars = "\r1/10 ━━━━ 0s 2ms/step - loss: 0.7\r9/10 ━━━━ 0s 2ms/step - loss: 0.7\r10/1"
    assert amount_text(LogProgress().after(["Epoch 1/2", bars], is_cut=True).progress(NOW)) == "step 9/20 (45 %)"  # type: ignore[arg-type]


def progress_of_unfinished(text: str) -> tuple[str, str]:
    """The amount and the loss that the end of a line says which is still being written."""
    progress = LogProgress().after([text], is_cut=True).progress(NOW)
    return ("", "") if progress is None else (amount_text(progress), progress.loss)


@pytest.mark.parametrize(
    ("text", "amount", "loss"),
    [
        ("\repoch 1/3 [##  ] 9/20 loss=0.120\repoch 1/3 [##  ] 10/20 loss=0.1", "step 10/60 (16 %)", "0.120"),
        ("\repoch 1/3 step 12 of 20, loss=0.120\repoch 1/3 step 13 of 20, loss=0.1", "step 13/60 (21 %)", "0.120"),
        ("\repoch 1/3 step 13 of 20, loss=0.100 ", "step 13/60 (21 %)", "0.100"),
        ("\repoch 1/3 step 13 of 20, loss=0.100,acc=0.9", "step 13/60 (21 %)", "0.100"),
        ("\repoch 1/3 step 13 of 20, loss=0.100 acc=0.9", "step 13/60 (21 %)", "0.100"),
        ("\repoch 1/3 step 13 of 20, loss=0.100\r", "step 13/60 (21 %)", "0.100"),
        ("\repoch 1/3 step 1 of 1,0", "", ""),
        ("\repoch 1/3 step 13 of 20, loss=0.1", "step 13/60 (21 %)", ""),
        ("\repoch 1/3 step 20 of 20, loss=0.120\repoch 2/3 step 1 of 20, loss=0.1", "step 21/60 (35 %)", "0.120"),
        ("\repoch 1/3 step 13 of 20, loss=0.120\repoch 1/3 val [#  ] 1/5 loss=0.1", "step 13/60 (21 %)", "0.120"),
        ("\repoch 1/3 step 3 of 5, loss=0.120\repoch 1/3 step 13 of 20, loss=0.1", "step 13/60 (21 %)", ""),
    ],
)
def test_an_unfinished_line_says_its_last_loss_that_is_surely_whole(text: str, amount: str, loss: str) -> None:
    assert progress_of_unfinished(text) == (amount, loss)


def test_the_end_of_an_epoch_does_not_take_its_loss_from_a_bar_that_sums_over_workers() -> None:
    bars = "\r60/60 [====] - ETA: 0s - loss: 2.566\r60/60 [====] - 1s 9ms/step - loss: 0.5"

    assert progress_of_unfinished(bars) == ("step 60/60 (100 %)", "")


def test_the_last_state_of_a_line_of_megabytes_is_found_at_once() -> None:
    line = "".join(f"\r {i // 10_000}%|███| {i}/1000000 [00:12<00:20, 3.1it/s]" for i in range(100_000))
    start = process_time()

    assert amount(line) == "step 99,999/1,000,000 (9 %)"
    assert process_time() - start < 1


NUMBERS = st.integers(0, 10**18).map(str) | st.sampled_from(["0", "1", "9" * 400, "1e999", "nan", "1.5k"])
WORDS = st.sampled_from(
    (
        *(
            "step",
            "epoch",
            "Epoch",
            "of",
            "/",
            "[",
            "]",
            ":",
            "=",
            " ",
            "\r",
            "\x1b[1m",
            "━━",
            "%|██|",
            "loss",
            "{",
            '"',
        ),
        *("iteration", "[00:12<00:20,", "0s", "- ", "max_steps", "\n", "\t", "٣", "<", "[1,0]<stdout>:", "0:00:12 •"),
    )
)
PIECES = st.lists(st.one_of(NUMBERS, WORDS, st.text(max_size=3)), max_size=40).map("".join)


@given(st.lists(PIECES, max_size=12), st.booleans())
def test_whatever_is_printed_nothing_is_raised_and_no_more_is_done_than_there_is(
    lines: list[str],
    is_cut: bool,  # noqa: FBT001 - hypothesis passes it by name
) -> None:
    progress = LogProgress().after(lines, is_cut=is_cut).progress(NOW)

    assert progress is None or progress.done is not None
    if progress is not None and progress.done is not None:
        assert 0 <= progress.done <= (progress.total or progress.done) <= 10**15
        assert all(len(name) <= 63 and len(value) <= 253 for name, value in progress.metrics.items())


@pytest.mark.parametrize(
    "piece",
    [
        "step ",
        "1/",
        "a:",
        "loss ",
        "[",
        " ",
        "━",
        "0.",
        "epoch 1/2 ",
        "epoch 1/2 [#",
        "epoch 1/2 |---",
        "\x1b[",
        "a.b-",
        "1%|",
        ":",
        "\x1b]",
        "loss=1",
        "'\"",
    ],
)
def test_the_time_for_a_line_does_not_grow_faster_than_its_length(piece: str) -> None:
    for line in (piece * (2048 // len(piece)), piece * (1024 * 1024 // len(piece)), piece * 400 + "\r" + piece * 500):
        start = process_time()
        progress_line(line)
        progress_line(line, is_cut=True)
        assert process_time() - start < 0.5

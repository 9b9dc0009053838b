"""How far a training is by what its log says: joins what single lines say to the progress of the whole training."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.job.progress import MAX_COUNT, Progress, Source, Unit
from tarragon.job.progress_lines import Count, ProgressLine, progress_line


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """What the lines of a log that were read so far say about the progress of a training."""

    epoch: Count | None = None
    """The epoch that the log is in, from 1. Its total is that of the training."""
    is_epoch_over: bool = False
    steps: Count | None = None
    """The steps of the epoch, or of the training."""
    steps_are_of_epoch: bool | None = None
    """Whether the steps begin anew with each epoch; None while that is not known."""
    steps_are_of_bar: bool = False
    epochs_are_named_at_end: bool = False
    """Whether a line that names an epoch is behind its steps, also one without a loss."""
    may_begin_below_epoch: bool = False
    """Whether a first epoch without a loss may be a title, and the steps before it those of other work."""
    with_first_steps: LogProgress | None = None
    """What the log says if these were not of other work, as it seems: in lines of their own, they go on."""
    laps: int = 0
    """How often everything that seems to be the training was done and has begun anew."""
    has_unknown_end: bool = False
    """Whether the training went on after what seemed to be its end."""
    bare: Count | None = None
    """The last line that was nothing but two numbers."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    is_end_pending: bool = False
    """Whether the last bar said that its epoch is not over, as one with all steps done may: another one follows."""
    bars_sum_metrics: bool = False
    """Whether bars show sums over the workers until their epoch is over: then the metrics are those at its end."""

    def after(self, lines: Sequence[str], *, is_cut: bool = False) -> LogProgress:
        """Return what the log says with these lines, too. `is_cut` says that the last one is still being written."""
        state, last = self, len(lines) - 1
        for number, line in enumerate(lines):
            state = state.after_line(progress_line(line, is_cut=is_cut and number == last))
        return state

    def after_line(self, line: ProgressLine) -> LogProgress:
        """Return what the log says with this line, too."""
        state = self
        if line.is_bare:
            if not _is_next(self.bare, line.steps):
                return replace(self, bare=line.steps)
            state = replace(state, bare=line.steps)
        if line.epoch is not None:
            state = _in_epoch(state, line, line.epoch)
        if line.steps is not None:
            counted = _with_steps(state, line, line.steps)
            if counted is state:  # those of a validation
                return state
            state = replace(counted, is_end_pending=line.is_before_end, steps_are_of_bar=line.is_bar)
        if not line.metrics or (line.is_before_end and self.bars_sum_metrics):
            return state
        return replace(state, metrics={**state.metrics, **line.metrics})

    def progress(self, now: dt.datetime, pod_uid: str = "") -> Progress | None:
        """Return the progress as of `now`; None while the log says nothing about it."""
        unit, count = _overall(self)
        if count is None:
            return None
        return Progress(
            updated_at=now,
            done=min(count.done, MAX_COUNT),
            total=None if count.total is None or count.total > MAX_COUNT else count.total,
            unit=unit,
            remaining_seconds=count.seconds_left,
            metrics=self.metrics,
            pod_uid=pod_uid,
            source=Source.LOG,
        )


def _is_next(before: Count | None, steps: Count | None) -> bool:
    """Whether two lines of numbers show that they count: the same total, and more done."""
    return before is not None and steps is not None and before.total == steps.total and before.done <= steps.done


def _in_epoch(state: LogProgress, line: ProgressLine, epoch: Count) -> LogProgress:
    # Keras names an epoch at its beginning; most others tell of it at its end, with a loss.
    is_over = line.steps is None and (bool(line.metrics) or state.epochs_are_named_at_end)
    known = state.epoch
    if known is None and _has_steps_in_lines(state) and line.steps is None:
        return _behind_steps(state, epoch, is_over=is_over)
    if known is None:
        return replace(_without_steps(state), epoch=epoch, is_epoch_over=is_over, laps=0, has_unknown_end=False)
    if epoch.total is None and known.total is not None and epoch.done <= known.total:
        epoch = replace(epoch, total=known.total)
    if epoch.done != known.done:
        # `fit(initial_epoch=3, epochs=4)`, called in a loop, has a total that grows.
        grows = epoch.total != known.total and epoch.done == known.done + 1
        state = replace(state, has_unknown_end=state.has_unknown_end or grows)
        return replace(_without_steps(state), epoch=epoch, is_epoch_over=is_over)
    if not is_over and _is_repeated(state, line):
        return replace(_without_steps(state), laps=state.laps + 1, has_unknown_end=True)
    return replace(state, epoch=epoch, is_epoch_over=is_over or state.is_epoch_over)


def _has_steps_in_lines(state: LogProgress) -> bool:
    """Whether lines of their own have counted steps. A bar may be that of a download, or of a validation."""
    return state.steps is not None and bool(state.steps.total) and not state.steps_are_of_bar


def _behind_steps(state: LogProgress, epoch: Count, *, is_over: bool) -> LogProgress:
    """Return the state after the first line that names an epoch, where steps were counted before it.

    These are of the epoch, unless so many are done as those of the whole training would be. They are counted on in
    steps: a job whose progress changes its unit seems to be another one.
    """
    is_at_end = epoch.done == 1  # before the first epoch there are no steps
    over = epoch.done if is_over or is_at_end else epoch.done - 1
    done, total = (state.steps.done, state.steps.total or 0) if state.steps is not None else (0, 0)
    epochs = epoch.total or 0
    of_training = (over - 1) * total < done * epochs <= over * total
    known = replace(state, steps_are_of_epoch=not of_training)
    return replace(
        _without_steps(known),
        epoch=epoch,
        is_epoch_over=is_over or is_at_end,
        epochs_are_named_at_end=is_at_end,
        may_begin_below_epoch=is_at_end and not is_over,
        laps=0,
        has_unknown_end=False,
    )


def _is_repeated(state: LogProgress, line: ProgressLine) -> bool:
    """Whether `fit(epochs=1)` is called in a loop: the only epoch begins again after its end."""
    steps = state.steps
    return line.steps is None and not line.metrics and steps is not None and steps.done == steps.total


def _without_steps(state: LogProgress) -> LogProgress:
    """Return the state at the beginning of an epoch: its steps are known from the one before, but none is done."""
    if state.steps is None or state.steps_are_of_epoch is False:
        return state
    return replace(state, steps=replace(state.steps, done=0, seconds_left=None))


def _with_steps(state: LogProgress, line: ProgressLine, steps: Count) -> LogProgress:
    if steps.total is None:
        return state if _has_total(state) else replace(state, steps=steps)
    epoch = state.epoch
    if epoch is None:
        return _of_training(state, steps)
    if _are_first_of_training(state, steps, epoch):
        state = _begun_below_epoch(state)
    elif state.with_first_steps is not None and _go_on(state.with_first_steps, line, epoch):
        state = replace(state.with_first_steps, may_begin_below_epoch=False, metrics=state.metrics)
    if line.is_bar or line.epoch is not None:
        return _of_epoch(state, steps)
    begun = _in_next_epoch(state, steps, epoch)
    return _of_either(begun, steps, begun.epoch or epoch)


def _are_first_of_training(state: LogProgress, steps: Count, epoch: Count) -> bool:
    """Whether other work was counted before the first epoch: steps with another total follow what was its title.

    A validation looks the same until the steps go on, unless the epoch was named with its loss.
    """
    is_of_other = state.steps is not None and state.steps.total != steps.total
    return state.may_begin_below_epoch and epoch.done == 1 and is_of_other


def _go_on(before: LogProgress, line: ProgressLine, epoch: Count) -> bool:
    """Whether the line counts on, in the first epoch, what was counted before it."""
    is_same = before.steps is not None and line.steps is not None and before.steps.total == line.steps.total
    return is_same and not line.is_bar and line.epoch is None and epoch.done == 1


def _begun_below_epoch(state: LogProgress) -> LogProgress:
    """Return the state as if nothing had been counted before the line that named the first epoch."""
    return replace(
        state,
        steps=None,
        steps_are_of_epoch=None,
        is_epoch_over=False,
        epochs_are_named_at_end=False,
        may_begin_below_epoch=False,
        with_first_steps=state,
    )


def _in_next_epoch(state: LogProgress, steps: Count, epoch: Count) -> LogProgress:
    """Return the state in which these steps are done: after the end of an epoch they are of the next one."""
    is_of_other = state.steps is not None and state.steps.total != steps.total
    is_last = epoch.total is not None and epoch.done >= epoch.total
    if not state.is_epoch_over or is_of_other or is_last:
        return state
    return replace(_without_steps(state), epoch=replace(epoch, done=epoch.done + 1), is_epoch_over=False)


def _has_total(state: LogProgress) -> bool:
    counts = (state.epoch, state.steps)
    return any(count is not None and count.total is not None for count in counts)


def _of_training(state: LogProgress, steps: Count) -> LogProgress:
    """Count steps where no epoch is named. A second bar is a validation, unless the first one is over."""
    known = state.steps
    if known is None or known.total is None:
        return replace(state, steps=steps)
    if known.total == steps.total:
        has_begun_anew = steps.done < known.done
        return replace(
            state,
            steps=steps,
            laps=state.laps + has_begun_anew,
            has_unknown_end=state.has_unknown_end or has_begun_anew,
        )
    is_over = known.done == known.total and not state.laps
    is_larger = (steps.total or 0) > known.total
    return replace(state, steps=steps, laps=0, has_unknown_end=False) if is_over or is_larger else state


def _of_epoch(state: LogProgress, steps: Count) -> LogProgress:
    """Count the steps of an epoch. Its first bar is that of the training; others are validations."""
    known = state.steps if state.steps_are_of_epoch else None
    is_other = known is not None and known.total != steps.total and known.done > 0
    has_ended = known is not None and known.done == known.total
    is_end = state.is_end_pending and steps.done == steps.total
    if state.is_epoch_over or is_other or (has_ended and not is_end):
        return state
    return replace(state, steps=steps, steps_are_of_epoch=True)


def _of_either(state: LogProgress, steps: Count, epoch: Count) -> LogProgress:
    """Count steps that a line of their own names: those of all epochs lie where the number of the epoch says."""
    of_epoch = state.steps_are_of_epoch
    if of_epoch is None and steps.total and epoch.total:
        before, within = (epoch.done - 1) * steps.total, steps.done * epoch.total
        is_later = within > epoch.done * steps.total
        of_epoch = True if is_later or within < before else False if before else None
    return replace(state, steps=steps, steps_are_of_epoch=of_epoch)


def _overall(state: LogProgress) -> tuple[Unit, Count | None]:
    """Return the count of the whole training, and what it counts."""
    unit, count = _of_all_epochs(state, state.epoch) if state.epoch is not None else (Unit.STEPS, state.steps)
    if count is None or not state.has_unknown_end:
        return unit, count
    return unit, Count(done=state.laps * (count.total or 0) + count.done)


def _of_all_epochs(state: LogProgress, epoch: Count) -> tuple[Unit, Count | None]:
    steps = state.steps
    if steps is not None and (state.steps_are_of_epoch is False or epoch.total is steps.total is None):
        return Unit.STEPS, steps
    before = epoch.done if state.is_epoch_over else max(0, epoch.done - 1)
    if steps is not None and steps.total is not None and state.steps_are_of_epoch:
        done = before * steps.total + (0 if state.is_epoch_over else steps.done)
        return Unit.STEPS, Count(done=done, total=None if epoch.total is None else epoch.total * steps.total)
    return Unit.EPOCHS, None if epoch.total is None else Count(done=min(before, epoch.total), total=epoch.total)

"""Recognises in one line of a log how far a training is: bars of Keras, tqdm, Lightning; `step 12 of 100`; others.

A line that is misunderstood costs more than one that is missed, because a scheduler believes the result: two numbers
count only where a word, a bar or what follows shows that they count the steps of a training. A line is cut to a bounded
length before any pattern sees it, and no pattern repeats without bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tarragon.job.log_rendering import render_line
from tarragon.job.progress import MAX_COUNT, MAX_SECONDS

MAX_LENGTH = 2048
"""Characters of a line, or of one state of a bar, beyond which it is not looked at."""
MAX_JSON_LENGTH = 16 * 1024
"""Characters of a line of JSON beyond which it is not parsed."""
_TAIL = 4 * MAX_LENGTH
"""Characters at the end of a line in which the last states of a bar are looked for."""
_MOST_STATES = 4
"""How many of the last states of a bar are looked at: the last one may be blank, or cut."""
_MOST_METRICS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A count, such as the 12 of 100 in `step 12/100`."""

    done: int
    total: int | None = None
    seconds_left: int | None = None
    """The seconds that are left, where a bar says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLine:
    """What one line says. `epoch.done` is the number of the epoch that the line is about, from 1."""

    epoch: Count | None = None
    steps: Count | None = None
    is_bar: bool = False
    is_bare: bool = False
    """Whether the line is nothing but two numbers: another such line has to show that they are a progress."""
    is_before_end: bool = False
    """Whether it is a bar of Keras 2 of an epoch that is not over: such a bar says when that will be."""
    metrics: Mapping[str, str] = field(default_factory=dict)


_NOTHING = ProgressLine()

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]{0,16}[ -/]?[@-~]|\][^\x07\x1b]{0,64}(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x1b]"
)
_RANK = re.compile(r"\[(?:(?:[\w.@-]{0,80}@)?\d{1,6},)?(?P<rank>\d{1,6})\](?:<std(?:out|err)>)?:?\s{0,2}(?=[^\s\d\[/])")
"""The tag by which mpirun says which rank has written a line: `[1,0]<stdout>:`, `[0] `."""
_CUT_WORD = re.compile(r"(?:[^\s|,]|,(?=\d|\Z)){0,40}\Z")
"""The last word of an unfinished line: its number may be half a number. A comma may be inside of a number: `1,000`."""

_RATIO = r"(?P<done>\d{1,15})\s{0,8}(?:/|of|out of)\s{0,8}(?P<total>\d{1,15})(?![\d/]|[.:]\d)"


def _counter_of(words: str) -> re.Pattern[str]:
    """Return the pattern of `step 12 of 100`, `step: 12/100`, `Step [12/100]`, `step = 12` and the like."""
    number = rf"(?:{_RATIO}|(?P<only>\d{{1,15}})(?![\d/]|[.:]\d))[\])]?"
    return re.compile(rf"(?<![\w/.-])(?:{words})[\"']?\s{{0,4}}[#:=]?\s{{0,8}}[\[(]?\s{{0,8}}{number}", re.IGNORECASE)


_EPOCH = _counter_of(r"(?:train(?:ing)?[_ ])?epochs?(?:\(train\))?")
_STEP = _counter_of(r"(?:(?:global|train|training|current|completed)[_ ])?(?P<word>step|iteration|iter|batch)s?")
_TOTAL_STEPS = re.compile(r"(?<!\w)(?:total|max)[_ ]steps[\"']?\s{0,2}[:=]\s{0,2}(?P<total>\d{1,15})(?![\d.])")
_STEPS_OF_EPOCH = re.compile(r"[\s,;:-]{0,4}[\[(]\s{0,8}" + _RATIO)
"""What follows the epoch in `Epoch: [3][ 120/5005]` and in `Train Epoch: 1 [6400/60000 (11%)]`."""
_SHARE = r"\d{1,3}(?:\.\d{1,2})?\s?%"
_BLOCKS = "█▉▊▋▌▍▎▏░▒▓■□━╸╺─"
_DRAWN_BAR = re.compile(
    rf"[\s,;:|-]{{0,4}}(?:{_SHARE}\s{{0,2}})?"
    rf"(?:\[[#=>.*_ {_BLOCKS}-]{{3,120}}\]|\|[#=>.*_ {_BLOCKS}-]{{3,120}}\||[{_BLOCKS}][{_BLOCKS} ]{{2,120}})"
    rf"(?:\s{{0,4}}{_SHARE})?"
)
"""A bar that a program draws itself, such as `[####    ] 50 %`, `|===>  |`, `█████░░░`."""
_STEPS_BEHIND_BAR = re.compile(
    rf"{_DRAWN_BAR.pattern}\s{{0,4}}[\[(]?\s{{0,8}}{_RATIO}[\])]?(?:\s{{0,2}}(?:steps|batches|iterations|iters|it)\b)?",
    re.IGNORECASE,
)
"""What follows the epoch in `epoch 1/3 [####    ] 10/20`."""
_BARE = re.compile(r"[\[(]?\s{0,6}" + _RATIO + r"[\])]?")

_KERAS = re.compile(
    _RATIO + r"\s{1,4}(?:[━╸╺─]{1,80}\s{1,4}(?:- )?|\[[=>.]{1,80}\]\s{1,4}- |- )(?:ETA: )?"
    r"(?:\d{1,9}s|\d{1,3}(?::\d\d){1,2})(?!\S)"
)
_TITLE_OF_KERAS = re.compile(r"Epoch \d{1,9}/\d{1,9}")
_METRICS_OF_KERAS = re.compile(
    r"(?:\s{1,2}\d{1,9}(?:us|ms|s)/(?:step|epoch|sample))?(?:\s{1,4}-\s{1,2}[\w./-]{1,60}: [-+]?[\w.+-]{1,24})*+"
)
"""What follows the time in a bar of Keras: `314ms/step - loss: 1.7056 - val_loss: 2e-3`."""
_TQDM = re.compile(
    r"(?:(?P<title>[^|]{0,80}):)?\s{0,4}\d{1,3}%\|[^|]{0,400}\|\s{1,4}(?P<done>\d[\d.]{0,12}[kMGT]?)"
    r"/(?P<total>\d[\d.]{0,12}[kMGT]?)\s\[[\d:]{4,12}<(?P<left>[\d:]{4,12}|\?)"
)
_LIGHTNING = re.compile(
    r"Epoch (?P<epoch>\d{1,9})/(?P<last>\d{1,9})\s{1,4}[━╸╺─][━╸╺─ ]{1,120}" + _RATIO + r"\s{1,4}\d{1,4}:\d\d:\d\d •"
)
"""The bar of Lightning with rich. Its epochs count from 0, and it names the last one instead of their number."""
_TITLE_EPOCH = re.compile(
    r"epoch\s?[\[(]?(?P<done>\d{1,9})(?:\s?/\s?(?P<total>\d{1,9}))?[\])]?\s{0,4}\Z", re.IGNORECASE
)

_METRIC = r"(?:[A-Za-z_][\w./-]{0,40}[\"']?\s{0,4}[=:]|(?:loss|accuracy|acc|lr)\s)\s{0,4}[-+]?\.?\d"
_FOLLOWS = re.compile(
    r"[\s,;:|/)(\]\[}{\"'\u2013\u2014-]{0,12}"
    r"(?:\Z|(?<=\| )|\d[\d.]{0,15}(?:%|\s?m?s\b|\s?sec)|(?:done|completed?|finished|took|elapsed)\b|" + _METRIC + ")",
    re.IGNORECASE,
)
"""What may follow the steps of a training: nothing, a time, a metric. `Step 1 of 3: installing` are others."""
_OTHER_WORK = re.compile(
    r"eval|valid|\bval\b|test|predict|infer|warm|sanity|download|upload|load|fetch|extract|convert|copy|\bmap\b|filter"
    r"|token|shard|setup|install|build|compil|prepar|process|calibrat|sampl|generat|cach|restor|resum|continu|sav|writ"
    r"|retry|attempt|search|trial|fold|worker|node|file|data",
    re.IGNORECASE,
)
"""Words before a count, or in the title of a bar, that say that it does not count the steps of the training."""
_TRAINING = re.compile(r"train|epoch|step|iter|fit|progress|learn|optimi", re.IGNORECASE)

_PAIR = re.compile(
    r"(?<![\w./-])(?P<name>[A-Za-z_][\w./-]{0,40})[\"']?(?:\s{0,4}[=:]\s{0,4}[\"']?|(?<=loss)\s|(?<=accuracy)\s)"
    r"(?P<value>[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?)(?![\w.:/])",
    re.IGNORECASE,
)
_MEANT = re.compile(r"loss|acc|perplexity|reward|auc|f1", re.IGNORECASE)
_MULTIPLES = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}


def progress_line(line: str, *, is_cut: bool = False) -> ProgressLine:
    """Return what the line says. `is_cut` says that its end is missing, as it is still being written.

    Metrics are mostly at the end of a bar: those that are cut are the ones of the state before.
    """
    read = (found for state in _states(line, is_cut=is_cut) if (found := _read(state)) is not _NOTHING)
    last = next(read, _NOTHING)
    before = next(read, _NOTHING) if is_cut else _NOTHING
    return replace(last, metrics={**before.metrics, **last.metrics}) if _are_of_one_bar(before, last) else last


def is_only_progress(line: str) -> bool:
    """Whether the line is a bar of Keras, tqdm or Lightning, of whatever work, or Keras's title of an epoch.

    A bar has no new line at its end: what the program writes next follows it in the same line, and that says more.
    """
    text = _ESCAPES.sub("", line[:MAX_LENGTH]).strip()
    if _LIGHTNING.match(text) is not None or _TITLE_OF_KERAS.fullmatch(text) is not None:
        return True
    if _TQDM.match(text) is not None:
        return text.endswith("]")
    keras = _KERAS.match(text)
    return keras is not None and _METRICS_OF_KERAS.fullmatch(text, keras.end()) is not None


# --------------------------------------------------------------------------------------------------- what a line shows


def _are_of_one_bar(before: ProgressLine, after: ProgressLine) -> bool:
    """Whether one is a state of a bar and the other a later one. The last one of Keras 2 may have other metrics."""
    one, other = ((line.is_bar, line.is_before_end, _total(line.epoch), _total(line.steps)) for line in (before, after))
    return one == other


def _total(count: Count | None) -> int | None:
    return None if count is None else count.total


def _states(line: str, *, is_cut: bool) -> Iterator[str]:
    """Yield the last states of a line that a program has overwritten again and again, the last one first."""
    tag = _RANK.match(line[:128])
    if tag is not None and int(tag["rank"]):
        return
    if line.startswith("{") and len(line) <= MAX_JSON_LENGTH:
        line = render_line(line)
    end = line[-_TAIL:]
    # Behind a carriage return at the end of an unfinished line, the next state begins: the one before it is whole.
    *earlier, last = (end if is_cut else end.rstrip("\r\n")).split("\r")
    states = [*earlier, _CUT_WORD.sub("", last) if is_cut else last]
    if len(line) > _TAIL:
        states = states[1:]  # its beginning is missing
    for state in reversed(states[-_MOST_STATES:]):
        if len(state) <= MAX_LENGTH:
            text = _ESCAPES.sub("", state)
            yield (_RANK.sub("", text, count=1) if tag is not None and text.startswith("[") else text).strip()


def _read(text: str) -> ProgressLine:
    if not text or not any(character.isdigit() for character in text):
        return _NOTHING
    for read in (_tqdm, _lightning, _keras, _words, _bare):
        found = read(text)
        if found is not None:
            return found
    # HuggingFace's Trainer writes metrics into lines of their own, between the states of its bar.
    metrics = _metrics(text) if text.startswith("{") else {}
    return ProgressLine(metrics=metrics) if metrics else _NOTHING


# ---------------------------------------------------------------------------------------------------------------- bars


def _tqdm(text: str) -> ProgressLine | None:
    found = _TQDM.match(text)
    if found is None:
        return None
    title = found["title"] or ""
    epoch = _TITLE_EPOCH.search(title)
    if _OTHER_WORK.search(title) or (title and not _TRAINING.search(title)):
        return _NOTHING
    steps = _count(_amount(found["done"]), _amount(found["total"]), _seconds(found["left"]))
    number = None if epoch is None else _epoch_of_title(epoch)
    return ProgressLine(epoch=number, steps=steps, is_bar=True, metrics=_metrics(text[found.end() :]))


def _epoch_of_title(found: re.Match[str]) -> Count | None:
    """Return the epoch that a bar names: Lightning's `Epoch 3`, without a total, counts from 0."""
    if found["total"] is None:
        return Count(done=int(found["done"]) + 1)
    return _count(int(found["done"]), int(found["total"]))


def _lightning(text: str) -> ProgressLine | None:
    found = _LIGHTNING.match(text)
    if found is None:
        return None
    epoch = _count(int(found["epoch"]) + 1, int(found["last"]) + 1)
    return _bar(found, epoch, text)


def _keras(text: str) -> ProgressLine | None:
    found = _KERAS.match(text)
    return None if found is None else replace(_bar(found, None, text), is_before_end="ETA: " in found[0])


def _bar(found: re.Match[str], epoch: Count | None, text: str) -> ProgressLine:
    steps = _count(int(found["done"]), int(found["total"]))
    return ProgressLine(epoch=epoch, steps=steps, is_bar=True, metrics=_metrics(text[found.end() :]))


# --------------------------------------------------------------------------------------------------------------- words


def _words(text: str) -> ProgressLine | None:
    """Read `step 12 of 100`, `Epoch 3/10`, `Epoch [3/10], Step [100/500], Loss: 0.3` and the like."""
    epoch = _EPOCH.search(text)
    step = _STEP.search(text, 0 if epoch is None else epoch.end())
    if step is not None and step["only"] is not None and step["word"].lower() == "batch":
        step = None  # more likely a size
    first, last = epoch or step, step or epoch
    if first is None or last is None or _OTHER_WORK.search(text[: first.start()]):
        return None
    metrics = _metrics(text)
    of_epoch = None if epoch is None or step is not None else _steps_of_epoch(text, epoch.end())
    if of_epoch is not None and epoch is not None:
        steps = _count(int(of_epoch["done"]), int(of_epoch["total"]))
        return ProgressLine(epoch=_counter(epoch, text), steps=steps, metrics=metrics)
    drawn = _DRAWN_BAR.match(text, step.end()) if epoch is not None and step is not None else None
    if not _FOLLOWS.match(text, last.end() if drawn is None else drawn.end()):
        return None
    return _of_counters(
        None if epoch is None else _counter(epoch, text), None if step is None else _counter(step, text), metrics
    )


def _steps_of_epoch(text: str, end: int) -> re.Match[str] | None:
    """Return the two numbers behind an epoch, which ends at `end`: what its bar says, or those in brackets."""
    behind_bar = _STEPS_BEHIND_BAR.match(text, end)
    if behind_bar is not None and _FOLLOWS.match(text, behind_bar.end()):
        return behind_bar
    return _STEPS_OF_EPOCH.match(text, end)


def _of_counters(epoch: Count | None, steps: Count | None, metrics: Mapping[str, str]) -> ProgressLine | None:
    """Return a line of counters. A number without a total only counts beside metrics: the others count other things."""
    is_counting = any(count is not None and count.total is not None for count in (epoch, steps))
    has_steps = steps is not None
    if not is_counting and not (has_steps and metrics):
        return None
    return ProgressLine(epoch=epoch, steps=steps, metrics=metrics)


def _counter(found: re.Match[str], text: str) -> Count | None:
    if found["only"] is None:
        return _count(int(found["done"]), int(found["total"]))
    total = _TOTAL_STEPS.search(text)
    done = int(found["only"])
    return _count(done, int(total["total"])) if total is not None else _count(done, None)


def _bare(text: str) -> ProgressLine | None:
    """Read `12/100`, with nothing else in the line but metrics."""
    found = _BARE.match(text)
    if found is None or not _FOLLOWS.match(text, found.end()):
        return None
    steps = _count(int(found["done"]), int(found["total"]))
    return None if steps is None else ProgressLine(steps=steps, is_bare=True, metrics=_metrics(text[found.end() :]))


# ------------------------------------------------------------------------------------------------------------- numbers


def _count(done: int, total: int | None, seconds_left: int | None = None) -> Count | None:
    """Return the count; None if it cannot be one."""
    if done > MAX_COUNT or (total is not None and not 0 < max(done, 1) <= total <= MAX_COUNT):
        return None
    return Count(done=done, total=total, seconds_left=seconds_left)


def _amount(text: str) -> int:
    """Return the value of an amount of tqdm, such as `37` or `1.25k`; -1 if it is none."""
    digits, multiple = (text[:-1], _MULTIPLES[text[-1]]) if text[-1] in _MULTIPLES else (text, 1)
    try:
        return round(float(digits) * multiple)
    except ValueError:
        return -1


def _seconds(text: str) -> int | None:
    """Return the seconds of `1:02:03`; None for anything else."""
    try:
        parts = [int(part) for part in text.split(":")]
    except ValueError:
        return None
    seconds = 0
    for part in parts[:4]:
        seconds = seconds * 60 + part
    return min(seconds, MAX_SECONDS)


def _metrics(text: str) -> dict[str, str]:
    """Return the losses and accuracies that the line has, as written."""
    found: dict[str, str] = {}
    for pair in _PAIR.finditer(text):
        if len(found) < _MOST_METRICS and _MEANT.search(pair["name"]):
            found[pair["name"]] = pair["value"]
    return found

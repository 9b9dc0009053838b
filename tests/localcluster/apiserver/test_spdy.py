"""SPDY/3.1: frames as bytes, and streams over them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import time
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.apiserver.http.byte_streams import BUFFERED as HEARD
from tarragon.localcluster.apiserver.http.byte_streams import ReceiveQueue
from tarragon.localcluster.apiserver.http.forwarding import forward_spdy
from tarragon.localcluster.apiserver.http.spdy.frames import (
    ADLER32,
    DICTIONARY,
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Headers,
    Ping,
    ProtocolError,
    Reset,
    SynReply,
    SynStream,
    WindowUpdate,
)
from tarragon.localcluster.apiserver.http.spdy.session import BUFFERED, Session, Stream

STREAMS = st.integers(min_value=1, max_value=2**31 - 1)
NUMBERS = st.integers(min_value=0, max_value=2**31 - 1)
NAMES = st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=20)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
MAPS = st.dictionaries(NAMES, VALUES, max_size=5)
FRAMES = st.one_of(
    st.builds(SynStream, stream=STREAMS, headers=MAPS, fin=st.booleans()),
    st.builds(SynReply, stream=STREAMS, headers=MAPS, fin=st.booleans()),
    st.builds(Headers, stream=STREAMS, headers=MAPS, fin=st.booleans()),
    st.builds(Data, stream=STREAMS, data=st.binary(max_size=300), fin=st.booleans()),
    st.builds(Reset, stream=STREAMS, status=NUMBERS),
    st.builds(Ping, number=NUMBERS),
    st.builds(GoAway, last=NUMBERS, status=NUMBERS),
    st.builds(WindowUpdate, stream=STREAMS, delta=NUMBERS),
)


def joined(frames: list[Frame]) -> list[Frame]:
    """Pieces of data that belong together, as one."""
    whole: list[Frame] = []
    for frame in frames:
        last = whole[-1] if whole else None
        if isinstance(frame, Data) and isinstance(last, Data) and last.stream == frame.stream and not last.fin:
            whole[-1] = Data(stream=frame.stream, data=last.data + frame.data, fin=frame.fin)
        else:
            whole.append(frame)
    return whole


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        yield data[start:end]


def test_the_dictionary_is_the_one_that_every_other_implementation_has() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == ADLER32


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(min_value=0), max_size=8))
def test_frames_are_understood_however_their_bytes_are_cut(frames: list[Frame], cuts: list[int]) -> None:
    encoder, decoder = Encoder(), Decoder()
    data = b"".join(map(encoder.encode, frames))

    heard = [frame for piece in pieces(data, cuts) for frame in decoder.feed(piece)]

    assert joined(heard) == joined(frames)


@given(st.binary(max_size=400), st.booleans())
def test_nonsense_is_refused_or_understood_but_breaks_nothing(data: bytes, begins_well: bool) -> None:  # noqa: FBT001
    begin = Encoder().encode(SynStream(stream=1, headers={"a": "b"})) if begins_well else b""
    with contextlib.suppress(ProtocolError):
        assert None not in list(Decoder().feed(begin + data))


def test_headers_that_swell_are_refused() -> None:
    swollen = Encoder().encode(SynStream(stream=1, headers={"a": "a" * 100_000}))

    with pytest.raises(ProtocolError, match="too long"):
        list(Decoder().feed(swollen))


def test_tiny_frames_cost_no_more_each_when_many_come_at_once() -> None:
    def cost(frames: int) -> float:
        data, begin = Encoder().encode(Data(stream=1, data=b"")) * frames, time.process_time()
        assert sum(1 for _ in Decoder().feed(data)) == frames
        return time.process_time() - begin

    few = min(cost(4_000) for _ in range(3))

    assert cost(128_000) < few * 32 * 4


class Line:
    """A client at the other end of a session's wire."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: list[Frame] = []

    async def read(self) -> bytes:
        return await self.said.get()

    async def write(self, data: bytes) -> None:
        self.heard += self.decoder.feed(data)

    def say(self, *frames: Frame) -> None:
        self.said.put_nowait(b"".join(map(self.encoder.encode, frames)))

    def hang_up(self) -> None:
        self.said.put_nowait(b"")


async def opened(line: Line, session: Session, number: int = 1, **headers: str) -> Stream:
    line.say(SynStream(stream=number, headers=headers))
    stream = await session.accept()
    assert stream is not None
    return stream


async def test_a_stream_is_read_to_its_end_while_the_other_half_goes_on() -> None:
    line = Line()
    async with Session(line) as session:
        stream = await opened(line, session, streamtype="data")
        line.say(Data(stream=1, data=b"one"), Data(stream=1, data=b"two", fin=True))

        assert stream.headers == {"streamtype": "data"}
        said = b""
        while data := await stream.read():
            said += data
        assert said == b"onetwo"
        await stream.write(b"answer")
        await stream.close()
    assert joined([frame for frame in line.heard if isinstance(frame, Data)]) == [
        Data(stream=1, data=b"answer", fin=True)
    ]
    assert line.heard[0] == SynReply(stream=1, headers={})


async def test_a_ping_is_answered_and_what_was_read_acknowledged() -> None:
    line = Line()
    async with Session(line) as session:
        stream = await opened(line, session)
        line.say(Ping(number=3), Data(stream=1, data=b"four"))
        assert await stream.read() == b"four"

    assert Ping(number=3) in line.heard
    assert WindowUpdate(stream=1, delta=4) in line.heard


async def test_others_have_their_turn_while_a_client_says_what_nobody_waits_for() -> None:
    line = Line()
    line.say(*[Data(stream=9, data=b"")] * 10_000, GoAway(last=0))
    turns = 0
    async with Session(line) as session:
        ended = asyncio.create_task(session.ended())
        while not ended.done():
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait
            turns += 1

    assert turns > 10


async def test_a_stream_that_nobody_reads_holds_its_client_up_and_loses_nothing() -> None:
    line = Line()
    chunk = bytes(BUFFERED)
    async with Session(line) as session:
        stream = await opened(line, session)
        line.say(Data(stream=1, data=chunk), Data(stream=1, data=b"more"), Data(stream=1, data=b"", fin=True))

        said = b""
        while data := await stream.read():
            assert len(data) <= BUFFERED + len(chunk)
            said += data
        assert said == chunk + b"more"


async def test_who_resets_a_stream_hears_nothing_more() -> None:
    line = Line()
    async with Session(line) as session:
        stream = await opened(line, session)
        line.say(Reset(stream=1, status=5))
        assert await stream.read() == b""

        with pytest.raises(ConnectionError):
            await stream.write(b"anything")


async def test_a_client_that_has_gone_ends_everything() -> None:
    line = Line()
    async with Session(line) as session:
        stream = await opened(line, session)
        line.hang_up()

        assert await stream.read() == b""
        assert await session.accept() is None


async def test_a_client_that_speaks_no_spdy_is_one_that_has_gone() -> None:
    line = Line()
    async with Session(line) as session:
        line.said.put_nowait(b"GET / HTTP/1.1\r\n\r\n\x80\x02")

        async with asyncio.timeout(60):
            line.hang_up()
            assert await session.accept() is None


async def test_a_client_waits_once_too_many_bytes_of_it_do_however_few_messages_they_are() -> None:
    heard = ReceiveQueue()
    for said in (b"first", bytes(HEARD)):
        await heard.put(said)
    waiting = asyncio.create_task(heard.put(b"last"))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
    assert not waiting.done()

    assert await heard.get() == b"first"
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
    assert not waiting.done()
    assert len(await heard.get()) == HEARD
    await waiting

    assert await heard.get() == b"last"


class Talkative:
    """A client that says one thing after the other, each when the one before has been answered."""

    def __init__(self, *said: list[Frame]) -> None:
        encoder = Encoder()
        self._said = iter([b"".join(map(encoder.encode, frames)) for frames in said])
        self._answered = asyncio.Event()
        self._answered.set()
        self.most = 0

    async def read(self) -> bytes:
        await self._answered.wait()
        self._answered.clear()
        self.most = max(self.most, streams_in_memory())
        return next(self._said, b"")

    async def write(self, data: bytes) -> None:
        assert data
        self._answered.set()


@pytest.fixture
def _only_new_objects() -> Iterator[None]:
    """Exempts the million objects that already exist from the thirty garbage collections of a test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def streams_in_memory() -> int:
    gc.collect()
    return sum(type(one) is Stream for one in gc.get_objects())


@pytest.mark.usefixtures("_only_new_objects")
async def test_streams_that_are_opened_and_reset_at_once_leave_nothing_behind() -> None:
    before = streams_in_memory()
    numbers = range(1, 6001, 2)
    gone = [frame for n in numbers for frame in (SynStream(stream=n, headers={}), Reset(stream=n, status=5))]

    async with Session(Talkative([*gone, SynStream(stream=6001, headers={})])) as session:
        stream = await session.accept()

        assert stream is not None
        assert stream.number == 6001
        assert streams_in_memory() == before + 1


@pytest.mark.usefixtures("_only_new_objects")
async def test_half_a_connection_that_was_reset_is_not_kept() -> None:
    before = streams_in_memory()
    opened = [SynStream(stream=n, headers={"requestid": str(n), "streamtype": "error"}) for n in range(1, 61, 2)]
    resets = [Reset(stream=one.stream, status=5) for one in opened]
    said: list[list[Frame]] = [[reset, one] for reset, one in zip(resets, opened[1:], strict=False)]
    client = Talkative([opened[0]], *said)

    async def nowhere(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise AssertionError(port)

    await forward_spdy(client, nowhere)

    assert client.most <= before + 3

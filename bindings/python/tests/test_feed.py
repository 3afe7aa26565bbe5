"""Books and the NBBO while packets come."""

import struct

import pytest

import tapeworks


def packets(path):
    """The frames of a plain pcap file of ns: written here, so that nothing of ours reads it."""
    data = path.read_bytes()
    magic = struct.unpack_from("<I", data)[0]
    assert magic == 0xA1B23C4D
    at = 24
    while at < len(data):
        seconds, nanoseconds, captured, _ = struct.unpack_from("<IIII", data, at)
        yield seconds * 10**9 + nanoseconds, data[at + 16 : at + 16 + captured]
        at += 16 + captured


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "session.pcap"
    tapeworks.generate(path, messages=40_000, seed=11)
    return path


def state(feed):
    levels = lambda levels: [(level.price_e9, level.size, level.orders) for level in levels]
    books, tops = {}, {}
    for symbol in feed.symbols:
        nbbo = feed.nbbo(symbol)
        side = lambda side: side and (side.price_e9, side.size, side.venue)
        tops[symbol] = (side(nbbo.bid), side(nbbo.ask), nbbo.state)
        for venue in feed.venues:
            book = feed.book(symbol, venue)
            books[symbol, venue] = (levels(book.bids), levels(book.asks), book.is_stale)
    return books, tops


def test_frames_one_by_one_give_what_the_file_gives(plain):
    file, ours = tapeworks.Feed(plain), tapeworks.Feed()
    messages, middle = 0, len(list(packets(plain))) // 2
    for at, (received, frame) in enumerate(packets(plain)):
        messages += ours.frame(frame, received)
        if at == middle:
            # Behind this packet, and before the next.
            assert file.advance(received + 1)
            assert state(file) == state(ours)
            assert any(bids for bids, _, _ in state(ours)[0].values())
    assert not file.advance()
    assert state(file) == state(ours)
    assert file.messages == ours.messages == messages == tapeworks.stats(plain)["messages"]
    assert file.finish()["messages"] == messages == ours.finish()["messages"]
    with pytest.raises(tapeworks.UsageError, match="finished"):
        file.messages


def test_payloads_give_what_frames_give(plain):
    frames, payloads = tapeworks.Feed(), tapeworks.Feed()
    for received, frame in packets(plain):
        frames.frame(frame, received)
        header = 14 + (frame[14] & 15) * 4
        group = ".".join(map(str, frame[30:34]))
        port = struct.unpack_from(">H", frame, header + 2)[0]
        payloads.packet(frame[header + 8 :], received, f"{group}:{port}")
    assert state(frames) == state(payloads)


def test_the_nbbo_at_a_time_is_that_of_the_records(plain):
    frame = tapeworks.read(plain, "cmbp-1", errors="ignore").to_df()
    middle = frame["ts_recv"].iloc[len(frame) // 2].value
    feed = tapeworks.Feed(plain)
    assert feed.advance(middle + 1) and feed.time <= middle
    until = frame[frame["ts_recv"].astype("int64") <= middle].groupby("symbol", observed=True).last()
    compared = 0
    for symbol, row in until.iterrows():
        nbbo = feed.nbbo(symbol)
        if nbbo.bid and nbbo.ask:
            assert (nbbo.bid.price, nbbo.ask.price) == (row["bid_px_00"], row["ask_px_00"])
            assert (nbbo.bid.size, nbbo.ask.size) == (row["bid_sz_00"], row["ask_sz_00"])
            compared += 1
    assert compared > 10


def test_orders_stand_in_the_order_of_their_execution(plain):
    feed = tapeworks.Feed(plain)
    first, last = feed.time, tapeworks.stats(plain)
    feed.advance(last["first_time"])
    frame = tapeworks.read(plain, "trades", errors="ignore").to_df()
    feed.advance(frame["ts_recv"].iloc[len(frame) // 2])
    found = 0
    for symbol in feed.symbols:
        orders, book = feed.orders(symbol, "XNAS"), feed.book(symbol, "XNAS", depth=1)
        for side, levels in (("B", book.bids), ("A", book.asks)):
            at_best = [size for _, of, price, size in orders if of == side and levels and price == levels[0].price]
            assert sum(at_best) == sum(level.size for level in levels)
            found += len(at_best)
    assert first is None and found > 10


def test_damaged_bytes_are_counted_and_break_nothing(plain):
    feed = tapeworks.Feed()
    for at, (received, frame) in enumerate(packets(plain)):
        damaged = bytearray(frame)
        if at % 3 == 0:
            damaged[at % len(frame)] ^= 0xFF
        feed.frame(bytes(damaged[: len(frame) - at % 7]), received)
    assert feed.finish()["problems"]["total"] > 100


def test_what_is_unknown_is_none_and_a_wrong_address_an_error(plain):
    feed = tapeworks.Feed(plain)
    feed.advance()
    assert feed.nbbo("NOSUCH") is None and feed.book("NOSUCH", "XNAS") is None
    assert feed.orders("NOSUCH", "XNAS") == []
    for ask in (feed.book, feed.orders):
        with pytest.raises(tapeworks.UsageError, match="unknown venue 'XXXX': expected .*XNAS"):
            ask("NOSUCH", "XXXX")
    with pytest.raises(tapeworks.UsageError, match="no address"):
        feed.packet(b"", 1, "somewhere")


def test_a_feed_does_not_go_back(plain):
    feed = tapeworks.Feed(plain)
    feed.advance(tapeworks.stats(plain)["last_time"])
    assert feed.advance(feed.time) is True, "it is there already"
    with pytest.raises(tapeworks.UsageError, match="it does not go back"):
        feed.advance(feed.time - 1)

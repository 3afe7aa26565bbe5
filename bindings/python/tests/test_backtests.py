"""What backtesting packages make of our records."""

import numpy
import pytest

import tapeworks

hftbacktest = pytest.importorskip("hftbacktest")


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A day of ITCH, its busiest symbol, and its orders as a DBN file."""
    folder = tmp_path_factory.mktemp("day")
    path = folder / "day.pcap"
    tapeworks.generate(path, scenario="session", messages=20_000, symbols=10, seed=2)
    symbol = tapeworks.stats(path)["busiest_symbols"][0]["symbol"]
    dbn = folder / "orders.dbn"
    tapeworks.read(path, "mbo", symbols=symbol).write(str(dbn))
    return path, symbol, dbn


def test_hftbacktest_gets_what_its_own_converter_makes_of_the_dbn_file(day, tmp_path):
    from hftbacktest.data.utils import databento

    path, symbol, dbn = day
    ours = tapeworks.read(path, "mbo", symbols=symbol, prices="decimal").to_hftbacktest(tmp_path / "events.npz")
    theirs = databento.convert(str(dbn), symbol)
    assert len(ours) == len(theirs) > 1_000
    # Its converter takes times through floating-point numbers, so that events of one microsecond may change places.
    for name in ("exch_ts", "local_ts"):
        assert numpy.abs(numpy.sort(ours[name]) - numpy.sort(theirs[name])).max() < 2_000
    # Nor does it know of cancellations and executions that leave a part.
    part = (ours["ev"] & 0xFF) == hftbacktest.MODIFY_ORDER_EVENT
    assert 10 < part.sum() < len(ours) / 2
    whole = lambda events: sorted(zip(events["ev"].tolist(), events["order_id"].tolist()))
    changed = ours.copy()
    changed["ev"][part] -= hftbacktest.MODIFY_ORDER_EVENT - hftbacktest.CANCEL_ORDER_EVENT
    assert whole(changed) == whole(theirs)
    added = (ours["ev"] & 0xFF) == hftbacktest.ADD_ORDER_EVENT
    theirs_added = theirs[(theirs["ev"] & 0xFF) == hftbacktest.ADD_ORDER_EVENT]
    essence = lambda events: sorted(zip(events["order_id"].tolist(), events["px"].tolist(), events["qty"].tolist()))
    assert essence(ours[added]) == essence(theirs_added)
    saved = numpy.load(tmp_path / "events.npz")["data"]
    assert saved.dtype == ours.dtype and numpy.array_equal(saved["ev"], ours["ev"])


def test_the_books_of_hftbacktest_are_ours(day):
    path, symbol, _ = day
    events = tapeworks.read(path, "mbo", symbols=symbol).to_hftbacktest()
    asset = (
        hftbacktest.BacktestAsset()
        .data(events)
        .linear_asset(1.0)
        .constant_order_latency(0, 0)
        .no_partial_fill_exchange()
        .l3_fifo_queue_model()
        .trading_value_fee_model(0.0, 0.0)
        .tick_size(0.0001)
        .lot_size(1.0)
    )
    backtest = hftbacktest.HashMapMarketDepthBacktest([asset])
    feed = tapeworks.Feed(path, symbols=symbol)
    now, compared = int(events["local_ts"][0]), 0
    first, last = now, int(events["local_ts"][-1])
    for part in range(1, 8):
        until = first + (last - first) * part // 8
        assert backtest.elapse(until - now) == 0
        now = until
        feed.advance(until + 1)
        depth, book = backtest.depth(0), feed.book(symbol, "XNAS", depth=1)
        if book.bids and book.asks:
            assert depth.best_bid == pytest.approx(book.bids[0].price) and depth.best_bid_qty == book.bids[0].size
            assert depth.best_ask == pytest.approx(book.asks[0].price) and depth.best_ask_qty == book.asks[0].size
            compared += 1
    backtest.close()
    assert compared > 3


def test_records_of_several_symbols_are_refused(day):
    path, _, _ = day
    with pytest.raises(tapeworks.UsageError, match="10 symbols"):
        tapeworks.read(path, "mbo").to_hftbacktest()
    with pytest.raises(tapeworks.UsageError, match="mbo"):
        tapeworks.read(path, "trades").to_hftbacktest()

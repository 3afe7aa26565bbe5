"""What nautilus_trader reads from a catalogue of ours."""

import warnings

import pytest

import tapeworks
from tapeworks import _nautilus
from tapeworks._nautilus import UNITS

pytest.importorskip("nautilus_trader")
from nautilus_trader.model.book import OrderBook  # noqa: E402
from nautilus_trader.model.data import QuoteTick, TradeTick  # noqa: E402
from nautilus_trader.model.enums import AggressorSide, BookAction, BookType, OrderSide  # noqa: E402
from nautilus_trader.persistence.catalog import ParquetDataCatalog  # noqa: E402


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A day of ITCH, and its busiest symbols."""
    path = tmp_path_factory.mktemp("day") / "day.pcap"
    tapeworks.generate(path, scenario="session", messages=20_000, symbols=10, seed=2)
    return path, [one["symbol"] for one in tapeworks.stats(path)["busiest_symbols"][:2]]


@pytest.fixture(scope="module")
def catalog(day, tmp_path_factory):
    """The catalogue, and how many records of each schema were written."""
    path, symbols = day
    folder = tmp_path_factory.mktemp("catalog")
    written = {}
    for schema, prices in (("definition", "float"), ("mbo", "fixed"), ("mbp-1", "decimal"), ("trades", "float"), ("cmbp-1", "float")):
        reader = tapeworks.read(path, schema, symbols=symbols, prices=prices)
        if schema.endswith("mbp-1"):
            with pytest.warns(tapeworks.DataWarning, match="quotes without a bid or an offer are left out"):
                written[schema] = reader.to_nautilus(folder)
        else:
            written[schema] = reader.to_nautilus(folder)
    return ParquetDataCatalog(str(folder)), written


def rows(path, schema, symbol, publisher=2):
    records = tapeworks.read(path, schema, symbols=symbol, prices="fixed")
    return [record for record in records if schema.startswith("c") or record.publisher_id == publisher]


def raw(price_e9):
    return round(price_e9) * 10**7


def test_instruments_are_equities_with_the_round_lots_of_the_directory(day, catalog):
    path, symbols = day
    files, written = catalog
    instruments = {str(instrument.id): instrument for instrument in files.instruments()}
    assert set(written["definition"]) <= set(instruments)
    assert {f"{symbol}.{venue}" for symbol in symbols for venue in ("XNAS", "NBBO")} <= set(instruments)
    lots = {record.symbol: record.min_lot_size_round_lot for record in tapeworks.read(path, "definition") if record.publisher_id == 2}
    for symbol in symbols:
        equity = instruments[f"{symbol}.XNAS"]
        assert type(equity).__name__ == "Equity" and int(equity.lot_size) == lots[symbol]
        assert equity.price_precision == 4 and str(equity.price_increment) == "0.0100"
        assert str(equity.quote_currency) == "USD"


def test_quotes_and_trades_are_those_of_the_records(day, catalog):
    path, symbols = day
    files, written = catalog
    for symbol in symbols:
        for schema, venue in (("mbp-1", "XNAS"), ("cmbp-1", "NBBO")):
            expected = [
                (raw(one.bid_px_00), raw(one.ask_px_00), one.bid_sz_00, one.ask_sz_00, one.ts_event, one.ts_recv)
                for one in rows(path, schema, symbol)
                if one.action != "T" and one.bid_px_00 is not None and one.ask_px_00 is not None
            ]
            found = [
                (one.bid_price.raw, one.ask_price.raw, int(one.bid_size), int(one.ask_size), one.ts_event, one.ts_init)
                for one in files.quote_ticks(instrument_ids=[f"{symbol}.{venue}"])
            ]
            assert found == expected and len(found) == written[schema][f"{symbol}.{venue}"] > 100
        sides = {AggressorSide.BUYER: "B", AggressorSide.SELLER: "A", AggressorSide.NO_AGGRESSOR: "N"}
        trades = files.trade_ticks(instrument_ids=[f"{symbol}.XNAS"])
        found = [(one.price.raw, int(one.size), sides[one.aggressor_side], one.ts_event, one.ts_init) for one in trades]
        expected = [
            (raw(one.price), one.size, one.side or "N", one.ts_event, one.ts_recv) for one in rows(path, "trades", symbol)
        ]
        assert found == expected and len(found) > 20
        assert len({str(one.trade_id) for one in trades}) == len(trades)


def test_the_books_of_nautilus_trader_are_ours(day, catalog):
    path, symbols = day
    files, written = catalog
    for symbol in symbols:
        instrument = next(one for one in files.instruments() if str(one.id) == f"{symbol}.XNAS")
        deltas = files.order_book_deltas(instrument_ids=[str(instrument.id)])
        assert len(deltas) == written["mbo"][str(instrument.id)] > 1_000
        actions = {delta.action for delta in deltas}
        assert {BookAction.ADD, BookAction.UPDATE, BookAction.DELETE} <= actions
        book = OrderBook(instrument.id, BookType.L3_MBO)
        feed = tapeworks.Feed(path, symbols=symbol)
        compared = 0
        for place, delta in enumerate(deltas):
            book.apply_delta(delta)
            is_last = place + 1 == len(deltas) or deltas[place + 1].ts_init > delta.ts_init
            if place % 50 < 10 and is_last:
                feed.advance(delta.ts_init + 1)
                ours = feed.book(symbol, "XNAS")
                for levels, others in ((ours.bids, book.bids()), (ours.asks, book.asks())):
                    found = [(level.price.raw, int(level.size()), len(level.orders())) for level in others]
                    assert found == [(raw(level.price_e9), level.size, level.orders) for level in levels]
                    compared += len(found)
        assert compared > 500
        # Each event of the venue ends.
        assert deltas[-1].flags & 0x80


def test_what_the_catalogue_cannot_have_is_refused(day, tmp_path):
    path, symbols = day
    for options, match in (({"schema": "status"}, "not status"), ({"price_precision": 10}, "0 to 9 digits")):
        reader = tapeworks.read(path, options.pop("schema", "trades"), symbols=symbols)
        with pytest.raises(tapeworks.UsageError, match=match):
            reader.to_nautilus(tmp_path, **options)
    cheap = next(one.symbol for one in tapeworks.read(path, "trades") if round(one.price * 1e4) % 100)
    with pytest.raises(tapeworks.UsageError, match=rf"^{cheap}\.\w+: the price .* more than 2 digits: give price_precision="):
        tapeworks.read(path, "trades", symbols=cheap).to_nautilus(tmp_path, price_precision=2)
    assert ParquetDataCatalog(str(tmp_path)).query(TradeTick) == [] == ParquetDataCatalog(str(tmp_path)).query(QuoteTick)


def everything(folder):
    """The files of a catalogue, with their bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_error_leaves_the_catalogue_as_it_was(day, tmp_path):
    path, _ = day
    trades = list(tapeworks.read(path, "trades", prices="fixed"))
    first = next(one for one in trades if one.price % 10**7)
    # Until then all prices of the other symbols have two digits. One of them traded before, so it would be written first.
    other = next(one.symbol for one in trades if one.symbol != first.symbol)
    read = tapeworks.read(path, "trades", symbols=[other, first.symbol], end=first.ts_recv + 1)
    with pytest.raises(tapeworks.UsageError, match=rf"^{first.symbol}\.XNAS: the price"):
        read.to_nautilus(tmp_path, price_precision=2)
    assert everything(tmp_path) == {}


def test_an_instrument_keeps_its_digits(day, tmp_path):
    path, symbols = day
    tapeworks.read(path, "trades", symbols=symbols[0]).to_nautilus(tmp_path, price_precision=9)
    before = everything(tmp_path)
    assert before
    for schema in ("definition", "mbo"):
        with pytest.raises(tapeworks.UsageError, match=f"^{symbols[0]}.XNAS: the catalogue has it with 9 digits: give price_precision=9"):
            tapeworks.read(path, schema, symbols=symbols[0]).to_nautilus(tmp_path)
    assert everything(tmp_path) == before


def test_a_venue_of_ones_own_is_no_name_for_two(tmp_path):
    path = tmp_path / "two.pcap"
    tapeworks.generate(path, venues="nasdaq=1,bx=1", messages=4_000, symbols=3, seed=2)
    for schema in ("definition", "trades", "mbo"):
        with pytest.raises(tapeworks.UsageError, match="[.]SIM would have the records of (XNAS and XBOS|XBOS and XNAS): leave venue= out"):
            tapeworks.read(path, schema).to_nautilus(tmp_path / "catalog", venue="SIM")
    assert everything(tmp_path / "catalog") == {}
    # The NBBO has one name anyway.
    with pytest.warns(tapeworks.DataWarning, match="left out"):
        written = tapeworks.read(path, "cmbp-1").to_nautilus(tmp_path / "catalog", venue="SIM")
    assert len(written) == 3 and {name.rpartition(".")[2] for name in written} == {"SIM"}


@pytest.mark.filterwarnings("ignore::tapeworks.DataWarning")
def test_a_quote_of_an_interval_has_the_time_of_its_end(day, tmp_path):
    path, symbols = day
    for schema, venue in (("bbo-1m", "XNAS"), ("cbbo-1m", "NBBO")):
        read = lambda: tapeworks.read(path, schema, symbols=symbols[0], prices="fixed", errors="ignore")
        read().to_nautilus(tmp_path)
        quotes = ParquetDataCatalog(str(tmp_path)).quote_ticks(instrument_ids=[f"{symbols[0]}.{venue}"])
        both = [one for one in read() if one.bid_px_00 is not None and one.ask_px_00 is not None]
        assert [(one.ts_event, one.ts_init) for one in quotes] == [(one.ts_recv, one.ts_recv) for one in both]
        # Intervals with a trade are among them: its time is another one.
        assert any(one.ts_event is not None and one.ts_event != one.ts_recv for one in both)


def test_a_book_without_its_beginning_is_warned_of(day, tmp_path):
    path, symbols = day
    times = [one.ts_recv for one in tapeworks.read(path, "mbo", symbols=symbols[0])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tapeworks.read(path, "mbo", symbols=symbols[0]).to_nautilus(tmp_path / "whole")
    with pytest.warns(tapeworks.DataWarning, match=rf"^{symbols[0]}.XNAS: \d+ cancellations are of orders that no record has added") as seen:
        tapeworks.read(path, "mbo", symbols=symbols[0], start=times[len(times) // 2]).to_nautilus(tmp_path / "part")
    assert seen[0].filename == __file__


def test_modifications_and_clears_are_those_of_the_records(tmp_path):
    to = _nautilus._Catalogue(str(tmp_path), 4, None)
    instrument_id = to.id_of("ABC", 2, False)
    clear = ("R", None, None, None, None, 0, 4, 50, 51)
    rows = [
        ("A", "B", 10 * UNITS, 100, 1, 0x80, 1, 20, 21),
        ("M", "B", 11 * UNITS, 70, 1, 0x80, 2, 30, 31),
        # Of 70, not of 100.
        ("C", "B", 11 * UNITS, 30, 1, 0x80, 3, 40, 41),
        clear,
        ("A", "A", 12 * UNITS, 5, 1, 0x80, 5, 60, 61),
        ("C", "A", 12 * UNITS, 5, 1, 0x80, 6, 70, 71),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deltas = _nautilus._deltas(to, instrument_id, iter(rows))
    found = [
        (one.action, one.order.side, one.order.price.raw, int(one.order.size), one.order.order_id, one.flags, one.sequence)
        for one in deltas
    ]
    buy, sell, none = OrderSide.BUY, OrderSide.SELL, OrderSide.NO_ORDER_SIDE
    assert found == [
        (BookAction.ADD, buy, raw(10 * UNITS), 100, 1, 0x80, 1),
        (BookAction.UPDATE, buy, raw(11 * UNITS), 70, 1, 0x80, 2),
        (BookAction.UPDATE, buy, raw(11 * UNITS), 40, 1, 0x80, 3),
        (BookAction.CLEAR, none, 0, 0, 0, 0, 4),
        (BookAction.ADD, sell, raw(12 * UNITS), 5, 1, 0x80, 5),
        (BookAction.DELETE, sell, raw(12 * UNITS), 5, 1, 0x80, 6),
    ]
    assert [(one.ts_event, one.ts_init) for one in deltas] == [(row[7], row[8]) for row in rows]
    # What was cleared is gone: to cancel it is to cancel what is not known.
    with pytest.warns(tapeworks.DataWarning, match="^ABC.XNAS: 1 cancellations are of orders"):
        _nautilus._deltas(to, instrument_id, iter([rows[0], clear, rows[2]]))
    book = OrderBook(instrument_id, BookType.L3_MBO)
    for delta in deltas[:3]:
        book.apply_delta(delta)
    (level,) = book.bids()
    assert (level.price.raw, int(level.size())) == (raw(11 * UNITS), 40)
    book.apply_delta(deltas[3])
    assert book.bids() == book.asks() == []


@pytest.mark.filterwarnings("ignore::tapeworks.DataWarning")
def test_another_venue_is_that_of_all_instruments(day, tmp_path):
    path, symbols = day
    written = tapeworks.read(path, "trades", symbols=symbols[0]).to_nautilus(tmp_path / "new", venue="SIM")
    assert list(written) == [f"{symbols[0]}.SIM"]
    quotes = tapeworks.read(path, "bbo-1m", symbols=symbols[0], errors="ignore").to_nautilus(tmp_path / "new", venue="SIM")
    files = ParquetDataCatalog(str(tmp_path / "new"))
    assert len(files.quote_ticks()) == quotes[f"{symbols[0]}.SIM"] > 10
    (equity,) = files.instruments()
    assert str(equity.id) == f"{symbols[0]}.SIM" and int(equity.lot_size) == 100


def test_records_are_in_the_catalogue_once(day, tmp_path):
    path, symbols = day
    read = lambda **options: tapeworks.read(path, "trades", symbols=symbols[0], **options)
    written = read().to_nautilus(tmp_path, venue="SIM")
    # The same again replaces itself.
    assert read().to_nautilus(tmp_path, venue="SIM") == written
    with pytest.raises(tapeworks.UsageError, match=f"{symbols[0]}.SIM: the catalogue has a TradeTick of these times already"):
        read(limit=10_000).to_nautilus(tmp_path, venue="SIM")
    files = ParquetDataCatalog(str(tmp_path))
    assert len(files.trade_ticks(instrument_ids=[f"{symbols[0]}.SIM"])) == written[f"{symbols[0]}.SIM"]
    assert len(files.instruments()) == 1

"""What a user's editor knows of the package: for mypy and pyright alone, nothing here runs."""

import ssl
from typing import Any, Dict, List, Optional, Union

from typing_extensions import assert_type

import tapeworks


def records_have_their_kind(stream: tapeworks.Stream) -> None:
    for record in stream:
        assert_type(
            record, Union[tapeworks.StreamNbbo, tapeworks.StreamTrade, tapeworks.StreamGap, tapeworks.StreamLagged]
        )
        assert_type(record.event, int)
        if isinstance(record, tapeworks.StreamNbbo):
            assert_type(record.bid_price, Optional[float])
            assert_type(record.bid_price_e9, Optional[int])
            assert_type(record.is_snapshot, bool)
        elif isinstance(record, tapeworks.StreamTrade):
            assert_type(record.price, float)
            assert_type(record.symbol, str)
        elif isinstance(record, tapeworks.StreamGap):
            assert_type(record.missing, int)
        else:
            assert_type(record, tapeworks.StreamLagged)


def a_stream_takes_what_it_says() -> int:
    def on_record(record: tapeworks.StreamRecord) -> None:
        print(tapeworks.VENUES[2], record.event)

    tls = ssl.create_default_context()
    with tapeworks.Stream("wss://localhost", ["nbbo"], symbols="A,B", token="x", tls=tls, reconnect=False) as stream:
        return stream.run(on_record, seconds=1)


async def it_is_asynchronous_too(stream: tapeworks.Stream, live: tapeworks.Live) -> List[int]:
    async for record in live:
        assert_type(record, tapeworks.Record)
    return [record.event async for record in stream]


def errors_have_facts() -> None:
    try:
        next(iter(tapeworks.Stream("127.0.0.1:1")))
    except tapeworks.StreamError as error:
        assert_type(error.address, str)
        assert_type(error.reason, str)
        assert_type(error.status, Optional[int])


def writers_say_what_they_wrote(reader: tapeworks.Reader) -> None:
    assert_type(reader.to_nautilus("catalog", price_precision=2), Dict[str, int])
    assert_type(tapeworks.generate("day.pcap", line_b=True, loss=100), Dict[str, Any])
    assert_type(tapeworks.batch(["a", "b"], "days", schema=["mbo"], executor="ray", jobs=2), Dict[str, Any])

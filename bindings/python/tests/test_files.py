"""dump, stats, study and generate."""

import pytest

import tapeworks


def test_a_dump_has_each_message(session, busy):
    # A packet without messages is an object of the transport alone.
    messages = [one for one in tapeworks.dump(session) if "protocol" in one["transport"]]
    assert len(messages) == tapeworks.stats(session)["messages"] > 25_000
    assert all("message" in one and "fields" in one for one in messages)
    few = list(tapeworks.dump(session, limit=5, symbols=busy[0]))
    assert len(few) == 5


def test_a_dump_that_is_left_ends(session):
    for one in tapeworks.dump([session] * 50):
        assert "message" in one
        break


def test_a_damaged_file_is_an_error_at_the_end_of_its_dump(tmp_path):
    whole, cut = tmp_path / "whole.pcap", tmp_path / "cut.pcap"
    tapeworks.generate(whole, messages=5_000, seed=1)
    cut.write_bytes(whole.read_bytes()[:-5])
    count = 0
    with pytest.raises(tapeworks.InputError) as caught:
        for _ in tapeworks.dump(cut):
            count += 1
    assert count > 1_000 and caught.value.packet > 100 and caught.value.path == str(cut)


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcap"
    made = tapeworks.generate(one, messages=5_000, seed=5, venues="nasdaq=3,memx", date="2025-11-14")
    tapeworks.generate(two, messages=5_000, seed=5, venues=["nasdaq=3", "memx"], date="2025-11-14")
    assert one.read_bytes() == two.read_bytes() and made["bytes"] == one.stat().st_size
    with pytest.raises(tapeworks.OutputError, match="exists"):
        tapeworks.generate(one)
    for wrong in ({"venues": "moon"}, {"scenario": "calm"}, {"venues": "nasdaq=x"}, {"date": "never"}):
        with pytest.raises(tapeworks.UsageError):
            tapeworks.generate(tmp_path / "three.pcap", **wrong)
    with pytest.raises(tapeworks.UsageError, match="ends in"):
        tapeworks.generate(tmp_path / "three.txt")


def test_a_study_says_how_long_the_queue_became(session):
    found = tapeworks.study(session, [100, 750], window_ns=1_000_000)
    assert found["messages"] > 25_000 and len(found["servers"]) == 2
    with pytest.raises(tapeworks.UsageError):
        tapeworks.study(session, [])


def test_a_session_has_the_lines_and_faults_that_were_asked_for(tmp_path):
    def packets(name, **options):
        path = tmp_path / name
        report = tapeworks.generate(path, messages=5_000, symbols=5, venues="nasdaq", seed=3, **options)
        return report["packets"], tapeworks.read(path, "trades", errors="ignore")

    one, reader = packets("one.pcap")
    two, both = packets("two.pcap", line_b=True)
    assert two == 2 * one and both.to_arrow().drop_columns("line") == reader.to_arrow().drop_columns("line")
    assert {channel["lines"] for channel in both.summary["channels"]} == {2}
    fewer, lossy = packets("lossy.pcap", loss=100_000)
    assert len(lossy.to_arrow()) < len(tapeworks.read(tmp_path / "one.pcap", "trades").to_arrow()) and fewer < one
    assert sum(channel["missing_messages"] for channel in lossy.summary["channels"]) > 100
    more, repeated = packets("repeated.pcap", duplicates=100_000)
    assert more > one and len(repeated.to_arrow()) > 0
    assert sum(channel["repeated_messages"] for channel in repeated.summary["channels"]) > 100

    def steps_back(name):
        transports = [one["transport"] for one in tapeworks.dump(tmp_path / name) if "message" in one]
        sequences = [transport["sequence"] for transport in transports if "sequence" in transport]
        return sum(after < before for before, after in zip(sequences, sequences[1:]))

    same, reordered = packets("reordered.pcap", reorder=100_000)
    assert same == one and steps_back("one.pcap") == 0 and steps_back("reordered.pcap") > 100
    # One line has no other that fills its gaps: what comes behind them is late.
    assert len(reordered.to_arrow()) > 0 and sum(channel["late_messages"] for channel in reordered.summary["channels"]) > 100


@pytest.mark.parametrize("announced", [True, False])
def test_generated_days_and_restarts_are_read_whole(tmp_path, announced):
    path = tmp_path / "days.pcap"
    made = tapeworks.generate(
        path, messages=8_000, symbols=5, venues="nasdaq,bzx", days=2, restarts=1, announced=announced, line_b=True, late_copies=5_000
    )
    assert made["last_ns"] - made["first_ns"] > 2 * 86_400 * 10**9, "a weekend lies between"
    reader = tapeworks.read(path, "trades")
    assert len(reader.to_arrow()) > 0
    channels = reader.summary["channels"]
    assert sum(channel["messages"] for channel in channels) == made["messages"] and len(channels) == 8
    assert all(channel["missing_messages"] == channel["implausible_packets"] == 0 for channel in channels)
    with pytest.raises(tapeworks.UsageError, match="days must be at least 1"):
        tapeworks.generate(path, days=0, overwrite=True)


def test_each_publisher_has_a_venue():
    assert tapeworks.VENUES[2] == "XNAS" and tapeworks.VENUES[9001] == "IEXG"

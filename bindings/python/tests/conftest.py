"""Generated sessions, and the captures of the repository."""

import pathlib

import pytest

import tapeworks

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def capture():
    """A real capture of Nasdaq's ITCH, with a gap."""
    return ROOT / "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap"


@pytest.fixture(scope="session")
def session(tmp_path_factory):
    """A whole day of four venues."""
    path = tmp_path_factory.mktemp("session") / "session.pcap.zst"
    tapeworks.generate(path, messages=30_000, seed=7)
    return path


@pytest.fixture(scope="session")
def busy(session):
    """Its two busiest symbols."""
    return [one["symbol"] for one in tapeworks.stats(session)["busiest_symbols"][:2]]

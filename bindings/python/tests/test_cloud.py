"""Batches with addresses, by threads and by Ray, in a server of moto that speaks S3's protocol. A package without the feature `cloud` refuses
addresses."""

import logging
import os

import pytest

import tapeworks
from batches import SCHEMAS, assert_same, captures, contents

#: Whether the package is built with the feature: the test step says so.
HAS_CLOUD = os.environ.get("TAPEWORKS_CLOUD") == "1"


@pytest.fixture(scope="module")
def client():
    """A client of a server, which the environment names."""
    boto3 = pytest.importorskip("boto3") if not os.environ.get("CI") else __import__("boto3")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    ours = {
        "AWS_ENDPOINT": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    client = boto3.client("s3", endpoint_url=address)
    client.create_bucket(Bucket="days")
    yield client
    server.stop()
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


def objects(client, prefix):
    """What a run has made below a prefix."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="days", Prefix=f"{prefix}/")
    keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
    names = {key.removeprefix(f"{prefix}/"): key for key in keys}
    return {
        name: client.get_object(Bucket="days", Key=key)["Body"].read() for name, key in names.items() if not name.startswith(".tasks/")
    }


@pytest.mark.skipif(HAS_CLOUD, reason="the package takes addresses")
def test_a_package_without_the_feature_refuses_addresses(tmp_path):
    with pytest.raises(tapeworks.UsageError, match="s3://days/in: object stores need a build with the feature"):
        tapeworks.batch("s3://days/in", tmp_path / "out")
    with pytest.raises(tapeworks.UsageError, match="s3://days/out: addresses are"):
        tapeworks.batch(__file__, "s3://days/out")


@pytest.mark.skipif(not HAS_CLOUD, reason="the package is built without the feature cloud")
@pytest.mark.parametrize("executor", ["threads", "ray"])
def test_a_batch_in_a_store_has_the_bytes_of_one_in_a_folder(client, tmp_path, executor):
    if executor == "ray" and not os.environ.get("CI"):
        pytest.importorskip("ray")
    inputs, out = captures(tmp_path / "in", messages=3_000), f"{executor}/out"
    for path in sorted((tmp_path / "in").iterdir()):
        client.upload_file(str(path), "days", f"{executor}/in/{path.name}")
    with pytest.warns(tapeworks.DataWarning):
        tapeworks.batch(inputs, tmp_path / "out", schema=SCHEMAS, buckets=4)
    expected = contents(tmp_path / "out")
    given = {"schema": SCHEMAS, "buckets": 4, "jobs": 2, "executor": executor, "work": tmp_path / "work"}
    with pytest.warns(tapeworks.DataWarning, match=f"s3://days/{executor}/in/noise.pcap: neither a capture"):
        summary = tapeworks.batch(f"s3://days/{executor}/in/**", f"s3://days/{out}", **given)
    found = objects(client, out)
    assert b"s3://days/" in found.pop("manifest.json") and expected.pop("manifest.json")
    assert_same(found, expected)
    assert summary["manifest"] == f"s3://days/{out}/manifest.json" and summary["performed"] == summary["tasks"]
    with pytest.warns(tapeworks.DataWarning):
        again = tapeworks.batch(f"s3://days/{executor}/in/**", f"s3://days/{out}", **given)
    assert again["resumed"] == summary["tasks"]
    assert list((tmp_path / "work").iterdir()) == []

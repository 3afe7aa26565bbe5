"""`tapeworks batch` with addresses of Google Cloud Storage. No server for tests that we know takes the conditions of Google's XML API, which is
otherwise that of S3. So this is moto's server of S3 behind a translation of ours, as Google's documentation of `x-goog-if-generation-match` has it."""

import json
from pathlib import Path

from any_store import SETTINGS, Batch, against, arguments, check, killed, large, leased, same_bytes
from with_batch_cloud import BUCKET, Between, Server

# moto wants a signature, and does not check it.
SIGNATURE = "AWS4-HMAC-SHA256 Credential=test/20251114/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def taken(headers: dict, prefix: str) -> dict:
    """The headers whose names begin so, which the request has no longer."""
    return {name.lower(): headers.pop(name) for name in list(headers) if name.lower().startswith(prefix)}


def signed(headers: dict):
    """A request as moto takes it."""
    taken(headers, "authorization")
    headers["Authorization"] = SIGNATURE


class Google(Between):
    """Answers as Google does. An object has a generation, which changes when the object does; here it is made of the entity tag."""

    def __init__(self, server: Server):
        super().__init__(server)
        # The entity tags, by generation.
        self.tags = {}
        # Whether requests had conditions, by what was wanted.
        self.wanted = {"none": 0, "generation": 0}
        self.rule = self.translate
        self.answer = self.name_generation
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.listener.server_port}", "disable_oauth": True, "client_email": "", "private_key": "",
            "private_key_id": "",
        }
        self.environment = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}

    def translate(self, _method, _path, headers):
        """Google's condition as S3's."""
        signed(headers)
        for name, value in taken(headers, "x-goog-").items():
            if name != "x-goog-if-generation-match":
                continue
            if value == "0":
                headers["If-None-Match"] = "*"
                self.wanted["none"] += 1
            else:
                headers["If-Match"] = self.tags.get(value, '"of-no-object"')
                self.wanted["generation"] += 1

    def name_generation(self, fields):
        """An answer with an entity tag has a generation."""
        tag = next((value for name, value in fields.items() if name.lower() == "etag"), None)
        if tag is not None:
            generation = str(int(tag.strip('"').split("-")[0][:15], 16))
            self.tags[generation] = tag
            fields["x-goog-generation"] = generation


class OfGoogle(Server):
    """The server, with what the program needs to reach it as Google's."""

    root = f"gs://{BUCKET}"

    def __init__(self):
        super().__init__()
        self.google = Google(self)
        self.environment = self.google.environment


def missing(batch: Batch, captures: Path):
    """What is not there is named, and a store that overlooks conditions is refused."""
    root = batch.server.root
    for words in (["gs://nowhere/in/**", "--out", f"{root}/none"], [captures, "--out", "gs://nowhere/days"]):
        line = batch.refused(*words, *SETTINGS)
        check("gs://nowhere" in line and "NoSuchBucket" in line, "a bucket that is not there is named")
    line = batch.refused(f"{root}/empty/**", "--out", f"{root}/none", *SETTINGS)
    check("no file matches" in line, "a pattern that nothing matches is named")

    def blind(_method, _path, headers):
        signed(headers)
        taken(headers, "x-goog-")

    batch.server.google.rule = blind
    line = batch.refused(captures, "--out", f"{root}/blind", *SETTINGS)
    check("has no conditional puts" in line, "a store without conditions is refused")


def checks(batch: Batch, captures: Path, days: Path, work: Path):
    same_bytes(batch, captures, days)
    killed(batch, days)
    leased(batch, captures)
    large(batch, work)
    wanted = batch.server.google.wanted
    check(all(wanted.values()), f"puts had conditions: {wanted}")
    missing(batch, captures)


if __name__ == "__main__":
    against(OfGoogle(), arguments(__doc__).parse_args(), checks)

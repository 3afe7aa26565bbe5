"""`tapeworks batch` with addresses, against Azurite, Microsoft's own server of Azure's blobs for tests: the bytes of a run in folders, a run that is
killed, one beside another, and containers, keys and objects that are not there. What does not
depend on the store is in `with_batch_cloud.py`."""

import base64
import hashlib
import hmac
import http.client
import subprocess
import urllib.parse
import xml.etree.ElementTree as ElementTree
from email.utils import formatdate
from pathlib import Path

from any_store import SETTINGS, Batch, against, arguments, check, killed, large, leased, same_bytes

CONTAINER = "captures"
ROOT = f"az://{CONTAINER}"

# The account of every Azurite, as its documentation has it.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"


class Server:
    """Azurite in a process of its own, all in memory. This script's requests are signed by hand: Azure's "Authorize with Shared Key"."""

    root = ROOT

    def __init__(self, folder: Path):
        program = ["node", folder / "node_modules/azurite/dist/src/blob/main.js", "--blobPort", "0", "--inMemoryPersistence"]
        # It refuses versions of the protocol that are newer than itself.
        program += ["--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if "successfully" in line:
                self.address = line.split()[-1]
                break
        else:
            raise SystemExit(f"Azurite ended with {self.process.wait()}")
        self.environment = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": self.address}
        self.request("PUT", "", {"restype": "container"})

    def request(self, method: str, name: str, query=None, body=b"", headers=None) -> bytes:
        """A request for the container, or for a blob of it."""
        query, path = query or {}, f"/{ACCOUNT}/{CONTAINER}{name and '/'}{urllib.parse.quote(name)}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION, **(headers or {})}
        signed = [method, "", "", str(len(body) or ""), *[""] * 8]
        signed += [f"{key}:{headers[key]}" for key in sorted(headers)]
        # The account is there twice: it is in the path, too.
        signed += [f"/{ACCOUNT}{path}", *(f"{key}:{query[key]}" for key in sorted(query))]
        signature = hmac.new(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature.digest()).decode()}"
        connection = http.client.HTTPConnection(self.address.removeprefix("http://"))
        connection.request(method, f"{path}?{urllib.parse.urlencode(query)}", body, {**headers, "Content-Length": str(len(body))})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {content.decode()}")
        return content

    def put(self, name: str, content: bytes):
        self.request("PUT", name, body=content, headers={"x-ms-blob-type": "BlockBlob"})

    def upload(self, folder: Path, prefix: str):
        """A folder as blobs."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def keys(self, prefix: str) -> dict:
        """The entity tags of the blobs below a prefix, by their names below it."""
        listed = self.request("GET", "", {"restype": "container", "comp": "list", "prefix": f"{prefix}/"})
        blobs = ElementTree.fromstring(listed).iter("Blob")
        return {one.findtext("Name")[len(prefix) + 1:]: one.findtext("Properties/Etag") for one in blobs}

    def files(self, prefix: str) -> dict:
        """What a run has made below a prefix."""
        names = [name for name in self.keys(prefix) if not name.startswith(".tasks/")]
        return {name: self.request("GET", f"{prefix}/{name}") for name in names}


def missing(batch: Batch, captures: Path):
    """What is not there is named."""
    for words in (["az://nowhere/in/**", "--out", f"{ROOT}/none"], [captures, "--out", "az://nowhere/days"]):
        line = batch.refused(*words, *SETTINGS)
        check("az://nowhere" in line and "ContainerNotFound" in line, "a container that is not there is named")
    line = batch.refused(f"{ROOT}/empty/**", "--out", f"{ROOT}/none", *SETTINGS)
    check("no file matches" in line, "a pattern that nothing matches is named")
    wrong = base64.b64encode(b"the key of another account").decode()
    line = batch.refused(f"{ROOT}/in", "--out", f"{ROOT}/none", *SETTINGS, environment={"AZURE_STORAGE_ACCOUNT_KEY": wrong})
    check(f"{ROOT}/in" in line and wrong not in line, "a wrong key is refused, and not shown")


def blocks(batch: Batch):
    """The results of several blocks."""
    [name] = [name for name in batch.server.keys("large-days") if name.endswith(".csv")]
    listed = batch.server.request("GET", f"large-days/{name}", {"comp": "blocklist", "blocklisttype": "committed"})
    count = len(list(ElementTree.fromstring(listed).iter("Block")))
    check(count > 1, f"it was put in {count} blocks")


def checks(batch: Batch, captures: Path, days: Path, work: Path):
    same_bytes(batch, captures, days)
    killed(batch, days)
    leased(batch, captures)
    missing(batch, captures)
    large(batch, work)
    blocks(batch)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--server", required=True, type=Path, help="the folder with Azurite")
    given = parser.parse_args()
    against(Server(given.server.resolve()), given, checks)

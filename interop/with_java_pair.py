"""The Java client of a pair of plants that are killed under load: each record once, as a later replay and the journal's files have it.

The primary is killed; the other plant takes over, and the client goes on there. The first comes back as the standby, the second is killed, and the
client is back at the first.

Usage: with_java_pair.py --tapeworks PROGRAM --client FOLDER --work FOLDER, where the client's FOLDER has tapeworks-client.jar.
"""

import socket
import subprocess
import threading
import time

from with_databento_plant import configure, exported, ports, same
from with_java_plant import Client, arguments, stop

#: How long anything may take.
PATIENCE = 90
#: Records between two deeds.
SOME = 2_000


class Plant:
    """A plant and what it logs."""

    def __init__(self, program, config):
        self.process = subprocess.Popen(
            [program, "plant", config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def says(self, text):
        """Waits until it has logged a text."""
        until(lambda: any(text in line for line in list(self.log)), lambda: f"'{text}' is not logged:\n{''.join(self.log)}")

    def kill(self):
        self.process.kill()
        self.process.wait()


def until(is_so, otherwise):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.01)


def gets(client, count):
    """Waits until a client has so many records."""

    def has_ended():
        return client.process.poll() is not None

    until(lambda: len(client.lines) >= count or has_ended(), lambda: f"only {len(client.lines)} of {count} records came")
    assert not has_ended(), f"the client ended: {client.errors}"


def end(client):
    """Ends a client that has all. Returns how often it went on at which server."""
    client.process.terminate()
    client.process.wait(PATIENCE)
    for thread in client.threads:
        thread.join()
    return [line.split()[-1] for line in client.errors if line.startswith("goes on at ")]


def pair(folder, messages, rate):
    """Writes the configurations of the venues and of two plants. Returns them and the addresses for clients."""
    venues, plant, port = configure(folder, messages, rate)
    text = plant.read_text()
    listen, *links = [f"127.0.0.1:{number}" for number in ports(socket.SOCK_STREAM, 3)]
    clients = [f"127.0.0.1:{port}", listen]
    plants = []
    for at, role in enumerate(("primary", "standby")):
        section = f'[pair]\nlisten = "{links[at]}"\npeer = "{links[1 - at]}"\nrole = "{role}"\ntakeover_after = "700ms"\n'
        own = text.replace("[journal]", f"{section}[journal]").replace('"journal"', f'"journal-{at}"').replace(clients[0], clients[at])
        plants.append(folder / f"plant-{at}.toml")
        plants[at].write_text(own)
    return venues, plants, clients


def main():
    options, folder = arguments(__doc__, "java-pair")
    # So slow that the venues still send when the second plant is killed.
    venues, configs, addresses = pair(folder, 60_000, 6_000)
    jar = f"{options.client}/tapeworks-client.jar"
    plants, clients, exchange = [None, None], [], None
    try:
        plants[0] = Plant(options.tapeworks, configs[0])
        plants[0].says("clients are served")
        plants[1] = Plant(options.tapeworks, configs[1])
        plants[0].says("in step")
        plants[1].says("clients are served")
        orders = Client(jar, ",".join(addresses), TAPEWORKS_START="0")
        # This one is of the standby first.
        nbbo = Client(jar, ",".join(reversed(addresses)), "cmbp-1", TAPEWORKS_START="0")
        clients = [orders, nbbo]
        serve = [options.tapeworks, "exchange", "serve", venues]
        exchange = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for killed in (0, 1):
            gets(orders, len(orders.lines) + SOME)
            plants[killed].kill()
            plants[1 - killed].says("took over")
            gets(orders, len(orders.lines) + SOME)
            if killed == 0:
                plants[0] = Plant(options.tapeworks, configs[0])
                plants[1].says("in step")
        assert exchange.poll() is None, "the venues ended before the second plant was killed"
        assert exchange.wait(PATIENCE) == 0, f"the venues ended with {exchange.returncode}"
        counts = []
        for client, schema in ((orders, "mbo"), (nbbo, "cmbp-1")):
            # A client that comes now: a replay of the journal.
            late = Client(jar, addresses[0], schema, TAPEWORKS_START="0")
            clients.append(late)
            until(lambda: any("Finished" in line for line in late.errors), lambda: f"{schema}: the replay does not end")
            gets(client, len(late.lines))
            gets(late, len(client.lines))
            places = end(client)
            end(late)
            differ = [at for at, (one, other) in enumerate(zip(client.lines, late.lines)) if one != other]
            assert not differ, f"{schema}: record {differ[0]} is {client.lines[differ[0]]}, a replay has {late.lines[differ[0]]}"
            assert len(client.lines) == len(late.lines), f"{schema}: {len(client.lines)} records, a replay has {len(late.lines)}"
            expected = [addresses[1], addresses[0]] if client is orders else [addresses[0]]
            assert places == expected, f"{schema}: it went on at {places}, expected {expected}"
            counts.append(len(client.lines))
        stop(plants[0].process)
    finally:
        for one in [plant.process for plant in plants if plant] + [client.process for client in clients] + [exchange]:
            if one:
                one.kill()
    export = [options.tapeworks, "journal", "export", configs[0], "--out", folder / "days", "--schema", "mbo", "--format", "dbn"]
    # 3: messages are missing. What a killed plant had not journaled, and the lines have lost, may be past recovery.
    done = subprocess.run(export, stdout=subprocess.DEVNULL)
    assert done.returncode in (0, 3), f"the export ended with {done.returncode}"
    same("mbo, Java", "mbo", orders.orders(), exported(folder / "days", "mbo"))
    print(f"the Java client has each of {counts[0]} orders and {counts[1]} changes of the NBBO once, over a pair whose plants were killed in turn")


if __name__ == "__main__":
    main()

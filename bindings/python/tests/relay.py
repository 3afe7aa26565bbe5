"""A way to a server that breaks."""

import select
import socket
import struct
import threading


class Relay(threading.Thread):
    """Passes connections to a server on, and cuts each but the last after so many bytes."""

    def __init__(self, port, cuts, is_reset=False):
        super().__init__(daemon=True)
        self.to, self.cuts, self.is_reset = port, cuts, is_reset
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = 0

    def run(self):
        for left in [*self.cuts, None]:
            client, _ = self.listener.accept()
            self.connections += 1
            upstream = socket.create_connection(("127.0.0.1", self.to))
            try:
                self.pass_on(client, upstream, left)
            except OSError:
                pass
            if self.is_reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            upstream.close()

    def said(self, data):
        """What the server gets of what the client says."""
        return data

    def pass_on(self, client, upstream, left):
        while True:
            for source in select.select([client, upstream], [], [])[0]:
                data = source.recv(4096)
                if not data:
                    return
                if source is client:
                    upstream.sendall(self.said(data))
                    continue
                client.sendall(data if left is None else data[:left])
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        return

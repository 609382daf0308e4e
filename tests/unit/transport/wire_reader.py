"""What the far end reads: bytes of the gateway as frames."""

import json

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, TextMessage


class WireReader:
    """A client's side of the wire. `frames` has all that came: objects, "ping", and a close code at the end."""

    def __init__(self):
        self.frames = []
        self._wire = Connection(ConnectionType.CLIENT)

    def read(self, data):
        """Take bytes; returns the frames in them."""
        new = []
        self._wire.receive_data(data)
        for event in self._wire.events():
            match event:
                case TextMessage():
                    new.append(json.loads(event.data))
                case Ping():
                    new.append("ping")
                case CloseConnection():
                    new.append(int(event.code))
                case _:
                    raise AssertionError(event)
        self.frames += new
        return new

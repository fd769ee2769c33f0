"""What is in the streams of a NATS server, by a client that is not the product's."""

import asyncio
import ssl
from typing import NamedTuple

import nats
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import StreamConfig

TIMEOUT = 10


class Record(NamedTuple):
    subject: str
    data: bytes
    headers: dict
    sequence: int


class NatsClient:
    """Makes and reads streams; each call has a connection of its own. `login` is as nats.connect wants it."""

    def __init__(self, server, host="127.0.0.1", **login):
        self.server = server
        self.login = {"servers": server.url(host), **login}
        if server.certificates:
            self.login["tls"] = ssl.create_default_context(cafile=server.certificates.ca)

    def add_stream(self, name, subjects, **config):
        self._run(lambda js: js.add_stream(StreamConfig(name=name, subjects=subjects, **config)))

    def update_stream(self, name, subjects, **config):
        self._run(lambda js: js.update_stream(StreamConfig(name=name, subjects=subjects, **config)))

    def delete_stream(self, name):
        self._run(lambda js: js.delete_stream(name))

    def purge_stream(self, name):
        self._run(lambda js: js.purge_stream(name))

    def count(self, stream):
        return self._run(lambda js: js.stream_info(stream)).state.messages

    def records(self, stream):
        """All messages of a stream, in its order."""
        return self._run(lambda js: _records(js, stream))

    def _run(self, work):
        async def run():
            connection = await nats.connect(**self.login, connect_timeout=TIMEOUT, allow_reconnect=False)
            try:
                return await work(connection.jetstream(timeout=TIMEOUT))
            finally:
                await connection.close()

        return asyncio.run(run())


async def _records(js, stream):
    left = (await js.stream_info(stream)).state.messages
    found = []
    reader = await js.subscribe("", stream=stream, ordered_consumer=True) if left else None
    while left > 0:
        try:
            message = await reader.next_msg(timeout=TIMEOUT)
        except NatsTimeout:
            raise AssertionError(f"{left} messages of stream {stream} could not be read") from None
        found.append(Record(message.subject, message.data, message.headers or {}, message.metadata.sequence.stream))
        left -= 1
    return found

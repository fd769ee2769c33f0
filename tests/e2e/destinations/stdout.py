"""JSON lines in a file. There is no server, so only what a line says and how often it is there can be asked."""

import base64
import json

from .base import Destination, Message, Place

NO_SERVER = "a file has no server"


class StdoutDestination(Destination):
    name = "stdout"
    lacks = {
        "a server": NO_SERVER,
        "a proxy": NO_SERVER,
        "refusing": "a file refuses nothing",
        "a password": NO_SERVER,
        "missing": "a file is created",
        "tls": NO_SERVER,
    }

    def fresh(self):
        return StdoutPlace(self.folder)


class StdoutPlace(Place):
    count = 0

    def __init__(self, folder):
        StdoutPlace.count += 1
        self.path = folder / f"{StdoutPlace.count}.jsonl"

    def sink(self, port=None, **options):
        return {"type": "stdout", "path": str(self.path), **options}

    def arrived(self):
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [as_message(json.loads(line)) for line in lines]


def as_message(line):
    return Message(line["key"].encode(), payload(line), line["headers"], line["id"])


def payload(line):
    """JSON stands in the line as it is, other text as a string, and what is no text in base64."""
    if "payload_base64" in line:
        return base64.b64decode(line["payload_base64"])
    value = line["payload"]
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()

"""SQS, as ElasticMQ has it: a queue for each test, standard or FIFO. A guard in front of it has TLS, and checks signatures,
which ElasticMQ does not. `server` is the door to it: elasticmq.py says why."""

import base64
import itertools
import json
import time

from tests.servers import Door, ElasticMQ
from tests.servers.certificates import make_certificates
from tests.servers.sqs_guard import Key, SqsGuard, refusal

from .base import Destination, Message, Missing, Place, Refusal

KEY = Key("AKIDRELAY", "relay-secret")
POISON = "poison"
IDLE_S = 0.3            # a queue that was empty for so long has nothing more

_numbers = itertools.count(1)


class SqsDestination(Destination):
    """Standard queues. What they are sent in order may be received in another."""

    name = "sqs"
    suffix = ""
    keeps_order = False
    patience = 240      # ElasticMQ needs half a millisecond of a processor for each row
    limit = 700_000     # 1 MiB in base64

    def __init__(self, folder):
        super().__init__(folder)
        self.certificates = make_certificates(folder, names="DNS:localhost")
        self.queues = ElasticMQ().start()
        self.server = Door(self.queues.port).start()
        self.guard = SqsGuard(self.queues, [KEY])
        self.secure = SqsGuard(self.queues, [KEY], self.certificates)

    def close(self):
        self.guard.close()
        self.secure.close()
        super().close()
        self.queues.close()

    def recover(self):
        super().recover()
        self.guard.answer = None
        self.queues.client().delete_queues()    # what nobody has read would slow down the next test

    def fresh(self):
        return SqsPlace(self, f"queue-{next(_numbers)}{self.suffix}")

    def refuse(self, call):
        """One entry of a batch is refused, and the others are stored."""
        entries = call.members.get("Entries", [])
        bad = [entry["Id"] for entry in entries if POISON in entry["MessageBody"]]
        if not bad:
            return None
        rest = [entry for entry in entries if entry["Id"] not in bad]
        stored = self.queues.client().call("SendMessageBatch", QueueUrl=call.members["QueueUrl"], Entries=rest) if rest else {}
        failed = [{"Id": number, "SenderFault": True, "Code": "InvalidMessageContents", "Message": "no"} for number in bad]
        return 200, stored | {"Failed": failed}


class SqsFifoDestination(SqsDestination):
    """FIFO queues keep the order of each group."""

    variant = "-fifo"
    suffix = ".fifo"
    keeps_order = True

    def refuse(self, call):
        """The whole batch is refused for one of its entries."""
        if any(POISON in entry["MessageBody"] for entry in call.members.get("Entries", [])):
            return refusal("BatchRequestTooLong", "the batch is too long")
        return None


class SqsPlace(Place):

    def __init__(self, destination, queue):
        self.destination = destination
        self.queue = queue
        self.route = {"topic": queue}
        self.client = destination.queues.client()
        self.url = self.client.create_queue(queue)
        self.seen, self.numbers = [], {}

    def sink(self, port=None, **options):
        return self._sink(f"http://127.0.0.1:{port or self.destination.server.port}", **options)

    def _sink(self, endpoint, **options):
        # Where a proxy swallows the answer, the suite does not want to wait for the default of 30 s.
        return {"type": "sqs", "region": "eu-central-1", "endpoint": endpoint, "access_key_id": KEY.id, "answer_timeout": "5s",
                "secret_access_key_file": self.destination.secret("key", KEY.secret), **options}

    def received(self, count, timeout=30):
        """A message is handed out once, so what was seen before counts."""
        started = last = time.monotonic()
        while True:
            messages = self.client.receive(self.url)
            self.seen += map(as_message, messages)
            self.numbers |= {seen.id: int(message["Attributes"].get("SequenceNumber", 0))
                             for seen, message in zip(self.seen[-len(messages):], messages)}
            now = time.monotonic()
            if messages:
                last = now
            elif now >= started + timeout or (len(self.seen) >= count and now >= last + IDLE_S):
                return self.seen
            else:
                time.sleep(0.05)

    def stored(self):
        """What is there now, of a FIFO queue: in the order in which it came in, whatever group it belongs to."""
        return sorted(self.received(0, timeout=0), key=lambda message: self.numbers[message.id])

    def refusing(self):
        self.destination.guard.answer = self.destination.refuse
        sink = self._sink(f"http://127.0.0.1:{self.destination.guard.port}")
        return Refusal(sink, {"payload": json.dumps({POISON: "x" * 20_000})})

    def wrong_password(self, password):
        return self._secured(secret_access_key_file=self.destination.secret("wrong-key", password))

    def missing(self):
        later = f"later-{self.queue}"

        def create():
            self.url = self.client.create_queue(later)

        return Missing(self.sink(), {"topic": later}, later, create)

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(endpoint=f"https://127.0.0.1:{self.destination.secure.port}")

    def _secured(self, **replaced):
        options = {"endpoint": f"https://localhost:{self.destination.secure.port}",
                   "tls_ca_file": str(self.destination.certificates.ca)} | replaced
        return self._sink(**options)


def as_message(message):
    """What docs/sinks.md tells a consumer to do."""
    attributes = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
    attributes |= json.loads(attributes.pop("postrider-headers", "{}"))
    encoding = attributes.pop("postrider-encoding", None)
    body = {None: message["Body"].encode(), "empty": b"", "null": None}.get(encoding)
    if encoding == "base64":
        body = base64.b64decode(message["Body"], validate=True)
    key = attributes.pop("postrider-key", None)
    return Message(None if key is None else key.encode(), body, attributes, attributes["id"])

"""Webhooks: a path of one receiver for each test."""

import itertools
from urllib.parse import unquote

from tests.servers.webhook import AUTHORIZATION, SECRETS, Webhook

from .base import Destination, Message, Missing, Place, Refusal

PREFIX = "postrider-"

_numbers = itertools.count(1)


class WebhookDestination(Destination):
    name = "webhook"

    def __init__(self, folder):
        super().__init__(folder)
        self.server = Webhook().start()

    def recover(self):
        super().recover()
        self.server.behave()

    def fresh(self):
        return WebhookPlace(self, next(_numbers))


class WebhookPlace(Place):

    def __init__(self, destination, number):
        self.destination = destination
        self.server = destination.server
        self.path = f"/in/{number}/"
        self.secured = f"/secured/{number}/"

    def sink(self, port=None, **options):
        # Where a proxy swallows the answer, the suite does not want to wait for the default of 20 s.
        return {"type": "webhook", "url": self.server.url(self.path, port), "allow_private": True, "answer_timeout": "5s",
                "secret_file": self.destination.secret("secret", SECRETS[0]), **options}

    def arrived(self):
        return [as_message(record) for path in (self.path, self.secured) for record in self.server.records(path)]

    def refusing(self):
        self.server.answer(self.path, contains="poison", status=422)
        return Refusal(self.sink(), {"payload": '{"poison": "xxxxxxxx"}'})

    def missing(self):
        self.server.answer(self.path, status=404)
        return Missing(self.sink(), {}, f"http://127.0.0.1:{self.server.port} answered 404", self.server.behave)

    def wrong_password(self, password):
        return self._secured(authorization_file=self.destination.secret("wrong-authorization", f"Bearer {password}"))

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(url=f"https://127.0.0.1:{self.server.tls_port}{self.secured}")

    def _secured(self, **replaced):
        return self.sink(**{
            "url": f"https://localhost:{self.server.tls_port}{self.secured}", "tls_ca_file": str(self.server.certificates.ca),
            "authorization_file": self.destination.secret("authorization", AUTHORIZATION), **replaced})


def as_message(record):
    headers = {name.removeprefix(PREFIX): unquote(value) for name, value in record["headers"].items()}
    key = headers.get("key") if PREFIX + "key" in record["headers"] else None
    null = record["headers"].get(PREFIX + "payload") == "null"
    return Message(None if key is None else key.encode(), None if null else record["body"], headers,
                   unquote(record["headers"]["webhook-id"]))

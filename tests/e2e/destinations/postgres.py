"""An event store on a server of its own, so that nothing rides in the transaction of the outbox."""

import json
from urllib.parse import urlencode

from tests.e2e.scene import new_database
from tests.servers import Postgres
from tests.servers.certificates import make_certificates

from .base import Destination, Message, Missing, Place, Refusal

STORE = """
CREATE TABLE {table} (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_type text NOT NULL, entity_id text NOT NULL, version bigint NOT NULL, event_type text,
    message_id text NOT NULL UNIQUE, payload bytea, headers jsonb, created_at timestamptz,
    UNIQUE (entity_type, entity_id, version))
"""
POISON = "poison"
GUARDED = "guarded"         # the user that needs a password, and TLS
PASSWORD = "store-secret"


class PostgresDestination(Destination):
    name = "postgres"

    def __init__(self, folder):
        super().__init__(folder)
        self.server = Postgres(15, {"fsync": "off"}).start()
        self.database = new_database(self.server)
        self._guard()

    def fresh(self):
        return PostgresPlace(self)

    def _guard(self):
        """TLS for who wants it, and a user who must have it."""
        self.certificates = make_certificates(self.folder, names="DNS:localhost")
        self.server.add_file("server.crt", self.certificates.certificate.read_text())
        self.server.add_file("server.key", self.certificates.key.read_text())
        rules = self.server.data / "pg_hba.conf"
        rules.write_text(f"hostssl all {GUARDED} all scram-sha-256\nhost all {GUARDED} all reject\n" + rules.read_text())
        self.database.execute(f"CREATE ROLE {GUARDED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        self.database.execute("ALTER SYSTEM SET ssl = on")
        self.database.execute("SELECT pg_reload_conf()")


class PostgresPlace(Place):
    count = 0

    def __init__(self, destination):
        PostgresPlace.count += 1
        self.destination = destination
        self.database = destination.database
        self.table = f"public.store_{PostgresPlace.count}"
        self.database.execute(STORE.format(table=self.table))

    def sink(self, port=None, **options):
        return {"type": "postgres", "url": self._url(port or self.destination.server.port), "table": self.table, **options}

    def arrived(self):
        rows = self.database.execute(
            f"SELECT entity_id, payload, headers, message_id FROM {self.table} ORDER BY position")
        return [Message(key.encode(), value, headers or {}, number) for key, value, headers, number in rows]

    def refusing(self):
        self.database.execute(
            f"ALTER TABLE {self.table} ADD CONSTRAINT taste CHECK (strpos(encode(payload, 'escape'), '{POISON}') = 0)")
        return Refusal(self.sink(), {"payload": json.dumps({POISON: "x" * 1000})})

    def wrong_password(self, password):
        return self._secured(password_file=self.destination.secret("wrong-password", password))

    def missing(self):
        name = f"{self.table}_later"

        def create():
            self.table = name
            self.database.execute(STORE.format(table=name))

        return Missing(self.sink(table=name), {}, name, create)

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(host="127.0.0.1")

    def _secured(self, host="localhost", **replaced):
        verified = {"sslmode": "verify-full", "sslrootcert": self.destination.certificates.ca}
        return self.sink(
            url=self._url(self.destination.server.port, f"{GUARDED}@{host}", **verified),
            **{"password_file": self.destination.secret("password", PASSWORD), **replaced})

    def _url(self, port, where="postgres@127.0.0.1", **parameters):
        return f"postgresql://{where}:{port}/{self.database.name}?{urlencode(parameters)}"

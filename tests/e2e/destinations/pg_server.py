"""A PostgreSQL of its own as the other side, with TLS for who wants it, and a user who must have it."""

from urllib.parse import urlencode

from tests.e2e.scene import new_database
from tests.servers import Postgres
from tests.servers.certificates import make_certificates

from .base import Destination, Place

POISON = "poison"
GUARDED = "guarded"         # the user that needs a password, and TLS
PASSWORD = "store-secret"


class PgServer(Destination):
    """On a server of its own, nothing rides in the transaction of the outbox."""

    def __init__(self, folder):
        super().__init__(folder)
        self.server = Postgres(15, {"fsync": "off"}).start()
        self.database = new_database(self.server)
        self._guard()

    def _guard(self):
        self.certificates = make_certificates(self.folder, names="DNS:localhost")
        self.server.add_file("server.crt", self.certificates.certificate.read_text())
        self.server.add_file("server.key", self.certificates.key.read_text())
        rules = self.server.data / "pg_hba.conf"
        rules.write_text(f"hostssl all {GUARDED} all scram-sha-256\nhost all {GUARDED} all reject\n" + rules.read_text())
        self.database.execute(f"CREATE ROLE {GUARDED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        self.database.execute("ALTER SYSTEM SET ssl = on")
        self.database.execute("SELECT pg_reload_conf()")


class PgPlace(Place):
    def __init__(self, destination):
        self.destination = destination
        self.database = destination.database

    def wrong_password(self, password):
        return self._secured(password_file=self.destination.secret("wrong-password", password))

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(host="127.0.0.1")

    def _secured(self, host="localhost", **replaced):
        verified = {"sslmode": "verify-full", "sslrootcert": self.destination.certificates.ca}
        return self.sink(
            url=self.url(self.destination.server.port, f"{GUARDED}@{host}", **verified),
            **{"password_file": self.destination.secret("password", PASSWORD), **replaced})

    def url(self, port=None, where="postgres@127.0.0.1", **parameters):
        port = port or self.destination.server.port
        return f"postgresql://{where}:{port}/{self.database.name}?{urlencode(parameters)}"

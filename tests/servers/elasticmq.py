"""ElasticMQ, which speaks the protocol of SQS, from Maven."""

import shutil
from pathlib import Path

from .common import Server, ServerMissing, free_port, maven_jars
from .sqs_client import SqsClient, SqsError

POM = Path(__file__).with_name("elasticmq-pom.xml")
LOG_CONFIG = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %level %msg \\(%logger\\)%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


class ElasticMQ(Server):
    """An ElasticMQ with the limits of SQS. It checks no signatures, and speaks no TLS.

    Everything is in memory. With its storage on it keeps messages over a restart, but acknowledges them before they are
    stored: after SIGTERM 30 of 2,140 were gone, after SIGKILL 1,523 of 3,720. So tests put a Door in front, and stop that."""

    name = "ElasticMQ"
    ready_within = 60

    def __init__(self, heap="1g"):
        super().__init__()
        self.heap = heap

    def prepare(self):
        if not shutil.which("java"):
            raise ServerMissing("java is not installed (Debian package default-jre-headless)")
        self.jars = fetch()
        self.port = free_port()
        (self.workdir / "logback.xml").write_text(LOG_CONFIG)

    def command(self):
        settings = self.workdir / "elasticmq.conf"
        settings.write_text("".join(f"{line}\n" for line in self._lines()))
        return ["java", f"-Xmx{self.heap}", "-XX:+UseSerialGC", "-Xshare:auto",
                f"-Dconfig.file={settings}", f"-Dlogback.configurationFile={self.workdir / 'logback.xml'}",
                "-cp", f"{self.jars}/*", "org.elasticmq.server.Main"]

    def is_ready(self):
        try:
            return super().is_ready() and self.client().call("ListQueues") is not None
        except (OSError, SqsError):
            return False

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def client(self):
        return SqsClient("127.0.0.1", self.port)

    def _lines(self):
        yield 'include classpath("application.conf")'
        yield f'node-address {{ protocol = http, host = "127.0.0.1", port = {self.port}, context-path = "" }}'
        yield f'rest-sqs {{ enabled = true, bind-port = {self.port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}'
        yield "rest-stats { enabled = false }"


def fetch():
    """The folder with the jars in the cache, downloaded when they are not there yet."""
    return maven_jars(POM)

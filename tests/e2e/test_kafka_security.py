"""TLS and SASL towards Kafka: verified by default, refused clearly, never a busy loop."""

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, postrider, wait_until, write_config
from tests.e2e.scene import new_topic
from tests.e2e.sink_state import expect_quiet, nothing_is_blamed


@pytest.fixture
def secured(database, kafka_sasl, tmp_path):
    """Settings for the SASL_SSL listener, some of them replaced."""
    secret = tmp_path / "kafka-password"
    secret.write_text(kafka_sasl.password + "\n")
    topic = new_topic(kafka_sasl)

    def make(**replaced):
        content = kafka_settings(database, kafka_sasl, topic)
        content["outboxes"]["orders"]["sinks"][0] |= {
            "tls": "on", "tls_ca_file": str(kafka_sasl.ca_file), "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": kafka_sasl.username, "sasl_password_file": str(secret), **replaced}
        content["stop_timeout"] = "1s"      # a row that cannot leave is waited for
        return content

    make.topic = topic
    return make


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_over_verified_tls_works(database, kafka_sasl, secured, start_relay, mechanism):
    relay = start_relay(secured(sasl_mechanism=mechanism))
    for number in range(20):
        database.insert(f"e{number}")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(read_topic(kafka_sasl, secured.topic)) == 20
    assert kafka_sasl.password not in relay.log_text()


def test_a_certificate_of_an_unknown_authority_is_told_clearly_and_does_not_spin(
        database, kafka_sasl, secured, start_relay):
    database.insert("a")
    relay = start_relay(secured(tls_ca_file=str(kafka_sasl.other_ca_file)), wait=False)
    relay.wait_for_warning("certificate")
    expect_quiet(relay, 4)
    assert database.pending() == 1
    assert nothing_is_blamed(database)
    relay.stop()


def test_check_says_what_is_wrong_with_the_certificate(database, kafka_sasl, secured, tmp_path):
    good = postrider("check", "-c", write_config(tmp_path / "good.yaml", secured()))
    assert good.returncode == 0, good.stdout + good.stderr
    wrong = secured(tls_ca_file=str(kafka_sasl.other_ca_file))
    bad = postrider("check", "-c", write_config(tmp_path / "bad.yaml", wrong), timeout=60)
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert "certificate" in bad.stdout and "tls_ca_file" in bad.stdout
    assert kafka_sasl.password not in good.stdout + good.stderr + bad.stdout + bad.stderr


def test_plain_text_to_a_tls_listener_is_told(database, kafka_sasl, secured, start_relay):
    content = secured()
    content["outboxes"]["orders"]["sinks"][0] = {"type": "kafka", "brokers": kafka_sasl.bootstrap, "tls": "off"}
    database.insert("a")
    relay = start_relay(content, wait=False)
    wait_until(lambda: relay.warnings(kafka_sasl.bootstrap), 20, "a warning that names the broker")
    assert database.pending() == 1
    relay.stop()

"""The proxies do to a connection what they say."""

import time

import psycopg
import pytest

from tests.servers import Postgres, ServerMissing, Toxiproxy, servers_required


@pytest.fixture(scope="module")
def proxy():
    try:
        with Toxiproxy() as toxiproxy, Postgres() as server:
            yield toxiproxy.proxy("postgres", server.port)
    except ServerMissing as error:
        if servers_required():
            raise
        pytest.skip(str(error))


@pytest.fixture
def connection(proxy):
    made = connect(proxy)
    yield made
    made.close()


def connect(proxy):
    return psycopg.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", autocommit=True, connect_timeout=5)


def answers(connection):
    return connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_a_cut_ends_connections_and_lets_none_in_until_it_is_mended(proxy, connection, how):
    assert answers(connection)
    getattr(proxy, how)()
    with pytest.raises(psycopg.OperationalError):
        answers(connection)
    with pytest.raises(psycopg.OperationalError):
        connect(proxy)
    proxy.mend()
    with connect(proxy) as again:
        assert answers(again)


def test_a_delay_slows_a_connection_that_is_open_and_ends_when_it_is_mended(proxy, connection):
    assert seconds(connection) < 0.2
    proxy.delay(400)
    assert 0.35 < seconds(connection) < 2
    proxy.mend()
    time.sleep(0.5)     # what is on its way still takes its time
    assert seconds(connection) < 0.2


def test_silence_ends_nothing_and_lets_nothing_through(proxy, connection):
    assert answers(connection)
    proxy.silence()
    connection.pgconn.send_query(b"SELECT 1")
    time.sleep(0.5)
    connection.pgconn.consume_input()
    assert connection.pgconn.is_busy()
    proxy.mend()
    with connect(proxy) as again:
        assert answers(again)


def seconds(connection):
    begin = time.monotonic()
    assert answers(connection)
    return time.monotonic() - begin

"""The shop of the demonstration: it writes orders, and an event about each step of them to its outbox."""

import collections
import json
import random
import threading
import time

import psycopg

# What any service with an outbox does: its own data and the event about it, in one transaction.
WRITE = """\
WITH changed AS (
    INSERT INTO public.customer_order (id, customer, status) VALUES (%(order)s, %(customer)s, %(event)s)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status)
INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)
VALUES ('order', %(order)s, %(event)s, %(payload)s)
RETURNING message_id::text, pg_current_xact_id()::xid::text"""

LIFE_OF_AN_ORDER = ("order.placed", "payment.authorised", "order.picked", "order.packed", "order.shipped", "order.delivered")
CUSTOMERS = ("Ada Lovelace", "Alan Turing", "Barbara Liskov", "Dennis Ritchie", "Edsger Dijkstra", "Grace Hopper",
             "Katherine Johnson", "Margaret Hamilton", "Niklaus Wirth", "Radia Perlman")
GOODS = (("fountain pen", 2490), ("ink, 50 ml", 890), ("writing paper", 1250), ("sealing wax", 640), ("envelopes", 520))


class ShopError(RuntimeError):
    """The shop cannot write."""


class Shop:
    """Writes orders, several at a time, each by one of a few clerks (threads), and remembers what was committed."""

    CLERKS = 4
    OPEN_ORDERS = 25  # of each clerk

    def __init__(self, database, rate):
        self.database = database
        self.rate = rate
        self.stopping = threading.Event()
        self.failure = None
        self.events_of = collections.defaultdict(list)  # order: message ids as committed, by the one clerk who has it
        self.transaction_of = {}                        # message id: number of the transaction that committed it
        self.threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(self.CLERKS)]

    def write_first(self):
        with psycopg.connect(self.database, autocommit=True) as connection:
            self._write(connection, self._new_order(random.Random(), 1))

    def open(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()

    def close(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise ShopError(f"could not write orders: {self.failure}")

    @property
    def written(self):
        return len(self.transaction_of)

    def _work(self, clerk):
        try:
            with psycopg.connect(self.database, autocommit=True) as connection:
                self._serve(connection, clerk)
        except psycopg.Error as error:
            self.failure = error
            self.stopping.set()

    def _serve(self, connection, clerk):
        chance = random.Random(clerk)
        orders = []
        taken = 0
        pace = self.CLERKS / self.rate
        due = self.began + pace * clerk / self.CLERKS
        while not self.stopping.wait(max(0, due - time.monotonic())):
            due = max(due + pace, time.monotonic() - 1)  # who falls behind does not catch up in one burst
            if len(orders) < self.OPEN_ORDERS:
                orders.append(self._new_order(chance, 10_000 + taken * self.CLERKS + clerk))
                taken += 1
            order = chance.choice(orders)
            self._write(connection, order)
            if order["step"] == len(LIFE_OF_AN_ORDER):
                orders.remove(order)

    @staticmethod
    def _new_order(chance, number):
        items = chance.sample(GOODS, chance.randint(1, 3))
        return {"id": f"order-{number}", "step": 0, "customer": chance.choice(CUSTOMERS),
                "items": [name for name, _ in items], "total": sum(price for _, price in items)}

    def _write(self, connection, order):
        event = LIFE_OF_AN_ORDER[order["step"]]
        order["step"] += 1
        payload = {"order": order["id"], "event": event, "number": order["step"], "customer": order["customer"],
                   "items": order["items"], "total_cents": order["total"]}
        values = {"order": order["id"], "customer": order["customer"], "event": event, "payload": json.dumps(payload)}
        message_id, transaction = connection.execute(WRITE, values).fetchone()
        self.events_of[order["id"]].append(message_id)
        self.transaction_of[message_id] = transaction

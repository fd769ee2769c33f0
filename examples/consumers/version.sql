-- The other way: without an inbox, where a message has the whole state of its entity and a number that grows.

-- quote: table
CREATE TABLE order_copy (
	order_id text   PRIMARY KEY,
	version  bigint NOT NULL,
	body     jsonb
);
-- end quote

-- The statement for each message: entity, number, payload.
-- quote: upsert
INSERT INTO order_copy (order_id, version, body) VALUES ($1, $2, $3)
ON CONFLICT (order_id) DO UPDATE SET version = excluded.version, body = excluded.body
WHERE order_copy.version < excluded.version;
-- end quote

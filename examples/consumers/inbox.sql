-- What the consumers in this folder need in their own database: psql -f inbox.sql

-- quote: inbox
CREATE TABLE inbox (
	consumer    text        NOT NULL,
	message_id  text        NOT NULL,
	received_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (consumer, message_id)
);
CREATE INDEX inbox_received_at ON inbox (received_at);
-- end quote

-- Their work: a line for each event. Nothing here notices when one is written twice; that is what the inbox is for.
CREATE TABLE invoice_line (
	line     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id text   NOT NULL,
	body     bytea
);

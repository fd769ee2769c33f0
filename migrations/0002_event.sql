-- The event store: where the sink `postgres` appends, one row per published event.
CREATE TABLE postrider.event (
	position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	entity_type text NOT NULL DEFAULT '',
	entity_id   text NOT NULL,
	version     bigint NOT NULL,            -- 1, 2, 3 … within the entity
	event_type  text,
	message_id  text NOT NULL UNIQUE,       -- a second publication of the same event finds it here
	payload     json,                       -- json, not jsonb: the bytes stay as they were written
	headers     jsonb,
	created_at  timestamptz,
	stored_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	UNIQUE (entity_type, entity_id, version)
);

-- serves: 4
-- What becomes of rows that cannot be published, and who holds back what.

-- What a relay's role needs in this schema: grant_relay gives it, `postrider check` compares.
CREATE TABLE postrider.relay_right (
	relation   text PRIMARY KEY,
	privileges text[] NOT NULL
);
INSERT INTO postrider.relay_right (relation, privileges) VALUES
	('postrider.migration', '{SELECT}'),
	('postrider.relay_right', '{SELECT}'),
	('postrider.outbox', '{SELECT}'),
	('postrider.sharding', '{SELECT}'),
	('postrider.event', '{SELECT,INSERT}'),
	('postrider.retry', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.node', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.claim', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.shard', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.shard_member', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.wal', '{SELECT,UPDATE}'),
	('postrider.wal_backlog', '{SELECT,DELETE}'),
	('postrider.parked', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.dead_letter', '{SELECT,INSERT,UPDATE,DELETE}'),
	('postrider.pause', '{SELECT,INSERT,DELETE}');

-- Of a row here the entity waits until retry_at. When nobody tries any more, that is in a hundred years, and blocked_at
-- says since when. An entity that a person put aside has no row that was refused.
ALTER TABLE postrider.retry ALTER row_id DROP NOT NULL;
ALTER TABLE postrider.retry ADD blocked_at timestamptz;

-- Rows that were given up, with everything that is needed to put them back.
CREATE TABLE postrider.dead_letter (
	id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	outbox          integer NOT NULL REFERENCES postrider.outbox ON DELETE CASCADE,
	entity          text NOT NULL,          -- '': the row had none
	row_id          text NOT NULL,
	message_id      text,
	entity_type     text,
	event_type      text,
	topic           text,                   -- that it was for; NULL: it could not be routed
	attempts        integer NOT NULL,
	kind            text NOT NULL,
	error           text NOT NULL,
	first_failed_at timestamptz NOT NULL,
	died_at         timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	passed_at       timestamptz,            -- since then a later row of the entity has gone out; NULL: none has
	row             json,                   -- the row of the outbox table, all its columns; or, where it came from the log, …
	is_message      boolean NOT NULL DEFAULT false,
	names           text[],                 -- … its fields, as in postrider.parked
	fields          bytea[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX ON postrider.dead_letter (outbox, entity, id);
CREATE INDEX ON postrider.dead_letter (outbox, died_at);

-- Outboxes of which nobody claims rows at the moment.
CREATE TABLE postrider.pause (
	outbox integer PRIMARY KEY REFERENCES postrider.outbox ON DELETE CASCADE,
	since  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	by     text NOT NULL DEFAULT current_user
);

-- What a role lacks of what a relay of this table needs, each as what stands behind GRANT. To put dead letters back takes
-- INSERT on the outbox table.
CREATE FUNCTION postrider.missing_rights(target regclass, role name) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number integer;
BEGIN
	SELECT o.id INTO STRICT number FROM postrider.outbox o
	JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);

	RETURN QUERY
		SELECT format('USAGE ON SCHEMA %I', n.nspname)
		FROM pg_namespace n
		WHERE (n.nspname = 'postrider' OR n.oid = (SELECT relnamespace FROM pg_class WHERE oid = target))
			AND NOT has_schema_privilege(role, n.oid, 'USAGE')
		UNION ALL
		SELECT format('%s ON TABLE %s', privilege, w.relation)
		FROM (
			SELECT target, '{SELECT,INSERT,DELETE}'::text[]
			UNION ALL
			SELECT r.relation::regclass, r.privileges FROM postrider.relay_right r
		) AS w(relation, privileges), unnest(w.privileges) AS privilege
		WHERE NOT has_table_privilege(role, w.relation, privilege)
		UNION ALL
		SELECT format('%s ON SEQUENCE postrider.bell_%s', w.privilege, number)
		FROM (VALUES ('SELECT'), ('UPDATE')) AS w(privilege)
		WHERE NOT has_sequence_privilege(role, format('postrider.bell_%s', number), w.privilege);
END
$$;
COMMENT ON FUNCTION postrider.missing_rights(regclass, name) IS 'What a role lacks to be a relay of this table.';

-- Gives it to him. One line for each grant that was missing.
CREATE OR REPLACE FUNCTION postrider.grant_relay(target regclass, role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	what text;
BEGIN
	FOR what IN SELECT * FROM postrider.missing_rights(target, role) LOOP
		EXECUTE format('GRANT %s TO %I', what, role);
		RETURN NEXT format('granted %s to %I', what, role);
	END LOOP;
END
$$;

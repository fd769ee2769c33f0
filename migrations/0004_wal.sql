-- serves: 3
-- The reader `wal`: outboxes that are read from the write-ahead log.

-- How far each of them is read, and of which server. Made by `postrider init` together with the slot.
CREATE TABLE postrider.wal (
	outbox            integer PRIMARY KEY REFERENCES postrider.outbox ON DELETE CASCADE,
	slot              text NOT NULL UNIQUE,
	publication       text NOT NULL,
	system_identifier text NOT NULL,        -- of the server that made the slot
	timeline          integer NOT NULL,     -- the newest that was read
	confirmed         pg_lsn NOT NULL,      -- everything that was committed up to here is settled
	transaction       pg_lsn,               -- commit record of a transaction that is settled in part, …
	transaction_rows  bigint NOT NULL DEFAULT 0, -- … and how many of its events, from the first on
	settled_behind    bytea NOT NULL DEFAULT '', -- which of the events that follow are settled: a bit for each
	counts_messages   boolean NOT NULL DEFAULT true, -- among those events are logical messages
	polling_since     timestamptz,          -- the slot was dropped to free the log, and the table is polled instead
	made_at           timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Rows that were in the table when the slot was made, in the order in which they are to be published. What is not in
-- this list is in the log, and nothing is in both. A row here only until it is published.
CREATE TABLE postrider.wal_backlog (
	outbox integer NOT NULL,
	n      bigint NOT NULL,
	id     text NOT NULL,                   -- of the row in the outbox table
	PRIMARY KEY (outbox, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Events of entities whose first one was refused, in order: the log goes on without them.
CREATE TABLE postrider.parked (
	outbox    integer NOT NULL,
	n         bigint GENERATED ALWAYS AS IDENTITY,
	entity    text NOT NULL,
	row_id    text NOT NULL,
	is_message boolean NOT NULL,            -- it came from pg_logical_emit_message, and no row of the outbox belongs to it
	names     text[] NOT NULL,
	fields    bytea[] NOT NULL,             -- the values of `names`; NULL is NULL
	parked_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (outbox, entity, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Makes the publication that names an outbox table, or adds to one what it lacks: the table, inserts, the name of the
-- partitioned table instead of its partitions'. Takes nothing away from one that others may use too. One line for each
-- thing done.
--
-- Changing a publication does not change what was written before. When a slot is there already, rows of that time are
-- not in its stream, and somebody has to know.
CREATE FUNCTION postrider.publish(target regclass, named name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number    integer;
	qualified text;
	kind      "char";
	current   record;
	line      text;
	lines     text[] := '{}';
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id, o.table_name, c.relkind INTO STRICT number, qualified, kind
	FROM postrider.outbox o JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);

	SELECT p.*, concat_ws(', ', CASE WHEN p.pubupdate THEN 'update' END, CASE WHEN p.pubdelete THEN 'delete' END,
		CASE WHEN p.pubtruncate THEN 'truncate' END, 'insert') AS actions
	INTO current FROM pg_publication p WHERE p.pubname = named;
	IF current.oid IS NULL THEN
		EXECUTE format('CREATE PUBLICATION %I FOR TABLE %s'
			' WITH (publish = ''insert'', publish_via_partition_root = true)', named, qualified);
		lines := lines || format('created the publication %I for %s', named, qualified);
	END IF;
	IF NOT current.pubinsert THEN
		EXECUTE format('ALTER PUBLICATION %I SET (publish = %L)', named, current.actions);
		lines := lines || format('added inserts to the publication %I', named);
	END IF;
	IF kind = 'p' AND NOT current.pubviaroot THEN
		EXECUTE format('ALTER PUBLICATION %I SET (publish_via_partition_root = true)', named);
		lines := lines || format('set publish_via_partition_root of the publication %I', named);
	END IF;
	IF NOT EXISTS (SELECT FROM pg_publication_tables t
			WHERE t.pubname = named AND format('%I.%I', t.schemaname, t.tablename) = qualified) THEN
		EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', named, qualified);
		lines := lines || format('added %s to the publication %I', qualified, named);
	END IF;
	FOREACH line IN ARRAY lines LOOP
		RETURN NEXT line;
	END LOOP;
	IF lines <> '{}' AND EXISTS (SELECT FROM postrider.wal w WHERE w.outbox = number) THEN
		RETURN NEXT format('attention: rows of %s that were written before this are not in the slot''s stream; '
			'`postrider init --recreate-slot` publishes what is in the table', qualified);
	END IF;
EXCEPTION WHEN insufficient_privilege THEN
	RAISE EXCEPTION '%: to make publications, be the owner of the table and have CREATE on the database', SQLERRM
	USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION postrider.publish(regclass, name) IS 'Makes or completes the publication of an outbox table.';

-- Whether a role may follow a slot. Amazon RDS gives that right to members of a role of its own.
CREATE FUNCTION postrider.may_replicate(role name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT EXISTS (SELECT FROM pg_roles r LEFT JOIN pg_roles g ON g.rolname = 'rds_replication'
		WHERE r.rolname = role AND (r.rolsuper OR r.rolreplication OR pg_has_role(r.oid, g.oid, 'MEMBER')))
$$;
COMMENT ON FUNCTION postrider.may_replicate(name) IS 'Whether a role may follow a replication slot.';

-- Lets a role follow slots. Where the caller may not do that, the line says who has to run what.
CREATE FUNCTION postrider.grant_replication(role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	statement text := CASE WHEN to_regrole('rds_replication') IS NULL THEN format('ALTER ROLE %I REPLICATION', role)
		ELSE format('GRANT rds_replication TO %I', role) END;
BEGIN
	IF NOT postrider.may_replicate(role) THEN
		EXECUTE statement;
		RETURN NEXT format('let %I follow replication slots', role);
	END IF;
EXCEPTION WHEN insufficient_privilege THEN
	RETURN NEXT format('attention: %I may not follow replication slots yet; a superuser has to run: %s;', role,
		statement);
END
$$;
COMMENT ON FUNCTION postrider.grant_replication(name) IS 'Lets a role follow replication slots.';
REVOKE ALL ON FUNCTION postrider.publish(regclass, name), postrider.grant_replication(name) FROM PUBLIC;

-- Gives a role what a relay of this table needs, and nothing else. One line for each grant that was missing.
CREATE OR REPLACE FUNCTION postrider.grant_relay(target regclass, role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing record;
	number  integer;
BEGIN
	SELECT o.id INTO STRICT number FROM postrider.outbox o
	JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);

	FOR missing IN
		SELECT format('USAGE ON SCHEMA %I', n.nspname) AS what
		FROM pg_namespace n
		WHERE (n.nspname = 'postrider' OR n.oid = (SELECT relnamespace FROM pg_class WHERE oid = target))
			AND NOT has_schema_privilege(role, n.oid, 'USAGE')
		UNION ALL
		SELECT format('%s ON TABLE %s', privilege, w.relation)
		FROM (
			VALUES (target, '{SELECT,DELETE}'::text[]),
				('postrider.migration', '{SELECT}'),
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
				('postrider.parked', '{SELECT,INSERT,UPDATE,DELETE}')
		) AS w(relation, privileges), unnest(w.privileges) AS privilege
		WHERE NOT has_table_privilege(role, w.relation, privilege)
		UNION ALL
		SELECT format('%s ON SEQUENCE postrider.bell_%s', w.privilege, number)
		FROM (VALUES ('SELECT'), ('UPDATE')) AS w(privilege)
		WHERE NOT has_sequence_privilege(role, format('postrider.bell_%s', number), w.privilege)
	LOOP
		EXECUTE format('GRANT %s TO %I', missing.what, role);
		RETURN NEXT format('granted %s to %I', missing.what, role);
	END LOOP;
END
$$;

-- Waits until these transactions are visible to everybody. The log shows a transaction as soon as its commit is written
-- there, and that is before other sessions see its rows: long before, when a standby has to answer first. Who deletes a row
-- that was published that quickly would not find it. Being volatile, this has a new snapshot for each of its statements.
CREATE FUNCTION postrider.await_visible(transactions bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	now_visible pg_snapshot;
	next_xid    bigint;
BEGIN
	LOOP
		now_visible := pg_current_snapshot();
		next_xid := pg_snapshot_xmax(now_visible)::text::bigint;
		-- The log has numbers of 32 bits: these are the ones next to what the snapshot has.
		EXIT WHEN NOT EXISTS (
			SELECT FROM unnest(transactions) t(xid)
			WHERE NOT pg_visible_in_snapshot((next_xid - (next_xid - t.xid + 2147483648) % 4294967296 + 2147483648)::text::xid8,
				now_visible));
		PERFORM pg_sleep(0.0005);
	END LOOP;
END
$$;

-- Drops a slot as soon as nobody reads from it any more.
CREATE FUNCTION postrider.drop_slot(named name) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	WHILE EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = named AND s.active) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	PERFORM pg_drop_replication_slot(s.slot_name) FROM pg_replication_slots s WHERE s.slot_name = named;
END
$$;

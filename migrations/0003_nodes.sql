-- serves: 2
-- Relays that share the work, and who of them holds what.

-- The processes that relay. A restart is a new node with a new number; a clean stop removes the row.
CREATE TABLE postrider.node (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name          text NOT NULL,            -- the setting `node`
	version       text NOT NULL,
	schema        integer NOT NULL,         -- newest version of this schema that the program knows
	pid           integer NOT NULL,         -- on its host
	backend_pid   integer,                  -- the session that beats; NULL behind a pooler, where sessions say nothing
	backend_start timestamptz,
	started_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	heartbeat_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	heartbeat_ms  integer NOT NULL,         -- how often it means to beat
	state         jsonb NOT NULL DEFAULT '{}' -- what its workers hold and have done: see `postrider status`
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The reader `lease`: entities that a worker has claimed, until when. A row here only while that lasts.
CREATE TABLE postrider.claim (
	outbox     integer NOT NULL,            -- in postrider.outbox; no reference, which would cost a lock for each claim
	entity     text NOT NULL,
	node       bigint NOT NULL,             -- in postrider.node; nor here
	worker     integer NOT NULL,
	token      bigint NOT NULL,             -- of this claim; who settles must show it
	locked_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (outbox, entity)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Ends the transaction of a worker that settles what is no longer its own.
CREATE FUNCTION postrider.insist(held bigint, needed bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF held < needed THEN
		RAISE EXCEPTION USING ERRCODE = 'PR001',
			MESSAGE = format('%s of %s claims have ended, and others may have the rows', needed - held, needed);
	END IF;
END
$$;

-- Whether nobody has claimed an entity, seen with a snapshot of this very moment: being volatile, it has one of its own,
-- and so sees what was committed since the statement that calls it began.
CREATE FUNCTION postrider.is_free(of_outbox integer, of_entity text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	RETURN NOT EXISTS (SELECT FROM postrider.claim c WHERE c.outbox OPERATOR(pg_catalog.=) of_outbox
		AND c.entity OPERATOR(pg_catalog.=) of_entity
		AND c.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp());
END
$$;

-- The reader `shards`: how an outbox is divided. Changed by `postrider init` only, while no node reads by it.
CREATE TABLE postrider.sharding (
	outbox integer PRIMARY KEY REFERENCES postrider.outbox ON DELETE CASCADE,
	shards integer NOT NULL CHECK (shards BETWEEN 1 AND 1024 AND shards & (shards - 1) = 0),
	key    text NOT NULL CHECK (key IN ('entity', 'id'))
);

-- And who owns which shard.
CREATE TABLE postrider.shard (
	outbox     integer NOT NULL REFERENCES postrider.outbox ON DELETE CASCADE,
	shard      integer NOT NULL,
	node       bigint,                      -- in postrider.node; NULL: nobody
	worker     integer,
	epoch      bigint NOT NULL DEFAULT 0,   -- one more with each new owner
	expires_at timestamptz,
	PRIMARY KEY (outbox, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The workers among whom shards are divided. A row lasts as long as its worker renews it.
CREATE TABLE postrider.shard_member (
	outbox     integer NOT NULL REFERENCES postrider.outbox ON DELETE CASCADE,
	node       bigint NOT NULL,
	worker     integer NOT NULL,
	name       text NOT NULL,               -- of the node
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (outbox, node, worker)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Divides an outbox into shards for the reader `shards`: makes the index, and the rows that owners take. Refused while
-- workers read it by another division, because an entity could then have two owners. One line for each thing done.
CREATE FUNCTION postrider.divide(target regclass, into_shards integer, by_key text, key_column name, id_column name,
	order_column name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number     integer;
	qualified  text;
	index_name text;
	shard      text;
	current    postrider.sharding;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id, o.table_name, left(c.relname, 40) || '_shards_' || by_key || '_' || into_shards
	INTO STRICT number, qualified, index_name
	FROM postrider.outbox o JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);

	shard := CASE by_key
		WHEN 'id' THEN format('(%I::bigint & %s)', id_column, into_shards - 1)
		ELSE format('(hashtextextended(%I::text, 0) & %s)', key_column, into_shards - 1) END;
	SELECT * INTO current FROM postrider.sharding d WHERE d.outbox = number FOR UPDATE;
	IF current.shards IS DISTINCT FROM into_shards OR current.key IS DISTINCT FROM by_key THEN
		IF EXISTS (SELECT FROM postrider.shard_member m WHERE m.outbox = number AND m.expires_at > now()) THEN
			RAISE EXCEPTION '% is being read in % shards by %', qualified, current.shards, current.key
			USING ERRCODE = 'object_in_use',
				HINT = 'stop all nodes that read it with the reader shards, then run this again and start them with the new settings';
		END IF;
		IF current.shards IS NOT NULL THEN
			EXECUTE format('DROP INDEX IF EXISTS %I.%I', (SELECT nspname FROM pg_namespace n JOIN pg_class c
				ON c.relnamespace = n.oid WHERE c.oid = target),
				(SELECT left(c.relname, 40) || '_shards_' || current.key || '_' || current.shards
				 FROM pg_class c WHERE c.oid = target));
		END IF;
		DELETE FROM postrider.shard s WHERE s.outbox = number;
		INSERT INTO postrider.shard (outbox, shard) SELECT number, generate_series(0, into_shards - 1);
		INSERT INTO postrider.sharding (outbox, shards, key) VALUES (number, into_shards, by_key)
		ON CONFLICT (outbox) DO UPDATE SET shards = excluded.shards, key = excluded.key;
		RETURN NEXT format('divided %s into %s shards by %s', qualified, into_shards, by_key);
	END IF;
	IF NOT EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			WHERE i.indrelid = target AND c.relname = index_name) THEN
		EXECUTE format('CREATE INDEX %I ON %s ((%s), %I)', index_name, qualified, shard, order_column);
		RETURN NEXT format('created the index %I on %s', index_name, qualified);
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.divide(regclass, integer, text, name, name, name) IS
	'Divides an outbox into shards for the reader shards.';
REVOKE ALL ON FUNCTION postrider.divide(regclass, integer, text, name, name, name) FROM PUBLIC;

-- PostgreSQL locks rows only for who may update some column: what the reader `skip_locked` needs besides.
CREATE FUNCTION postrider.grant_locking(target regclass, role name, id_column name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT has_any_column_privilege(role, target, 'UPDATE') THEN
		EXECUTE format('GRANT UPDATE (%I) ON TABLE %s TO %I', id_column, target, role);
		RETURN NEXT format('granted UPDATE (%I) ON TABLE %s to %I', id_column, target, role);
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.grant_locking(regclass, name, name) IS 'Lets a role lock rows of a table.';
REVOKE ALL ON FUNCTION postrider.grant_locking(regclass, name, name) FROM PUBLIC;

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
				('postrider.shard_member', '{SELECT,INSERT,UPDATE,DELETE}')
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

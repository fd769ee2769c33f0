-- What the relay keeps beside outbox tables. The tables themselves carry none of its state.

-- The outbox tables that this database has. The number names everything else that belongs to a table.
CREATE TABLE postrider.outbox (
	id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	table_name text NOT NULL UNIQUE,        -- format('%I.%I', schema, table)
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

-- Entities held back because their first row was refused. A row here only while that lasts.
CREATE TABLE postrider.retry (
	outbox          integer NOT NULL REFERENCES postrider.outbox ON DELETE CASCADE,
	entity          text NOT NULL,
	row_id          text NOT NULL,          -- of the row that was refused
	attempts        integer NOT NULL,
	kind            text NOT NULL,
	error           text NOT NULL,
	first_failed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	last_failed_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	retry_at        timestamptz NOT NULL,
	PRIMARY KEY (outbox, entity)
);

-- Wakes the relay. The argument of the trigger is the number of the outbox.
CREATE FUNCTION postrider.ring() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_notify('postrider', TG_ARGV[0]);
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION postrider.ring() IS 'Trigger function: tells the relay that an outbox has new rows.';

-- Puts what belongs beside an outbox table there: its number, its bell and the trigger. Changes no column and no row.
-- Returns one line for each thing done; a second call does nothing and returns none.
--
-- The bell is a sequence used as a flag: 1 while a relay sleeps and wants to be woken. Unlike a row it can be set
-- without a transaction, is seen at once, and leaves nothing to vacuum. Writers read it through the trigger's WHEN, so
-- while no relay sleeps an INSERT pays for one built-in call (some 7 microseconds with the trigger around it), and no
-- NOTIFY makes commits wait for each other. Every role that may insert into the table must be able to read the bell,
-- hence SELECT for PUBLIC; it tells nothing but whether a relay sleeps.
CREATE FUNCTION postrider.attach(target regclass) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	qualified text;
	number    integer;
	bell      text;
	condition text;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));

	SELECT format('%I.%I', n.nspname, c.relname) INTO qualified
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = target AND c.relkind IN ('r', 'p');
	IF qualified IS NULL THEN
		RAISE EXCEPTION '% is not a table', target USING ERRCODE = 'wrong_object_type';
	END IF;

	SELECT o.id INTO number FROM postrider.outbox o WHERE o.table_name = qualified;
	IF number IS NULL THEN
		INSERT INTO postrider.outbox (table_name) VALUES (qualified) RETURNING id INTO number;
		RETURN NEXT format('registered %s as outbox %s', qualified, number);
	END IF;

	bell := format('postrider.bell_%s', number);
	IF to_regclass(bell) IS NULL THEN
		EXECUTE format('CREATE SEQUENCE %s MINVALUE 0 START 0', bell);
		EXECUTE format('GRANT SELECT ON SEQUENCE %s TO PUBLIC', bell);
		EXECUTE format('COMMENT ON SEQUENCE %s IS %L', bell, '1 while a relay sleeps: see postrider.attach');
		PERFORM setval(bell, 0);
		RETURN NEXT format('created the bell %s', bell);
	END IF;

	IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = target AND t.tgname = 'postrider_ring') THEN
		condition := format('pg_catalog.pg_sequence_last_value(%L::pg_catalog.regclass) > 0', bell);
		EXECUTE format('CREATE TRIGGER postrider_ring AFTER INSERT ON %s FOR EACH STATEMENT WHEN (%s) '
			'EXECUTE FUNCTION postrider.ring(%L)', qualified, condition, number);
		RETURN NEXT format('created the trigger postrider_ring on %s', qualified);
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.attach(regclass) IS 'Registers an outbox table and installs its bell and trigger.';

-- Gives a role what a relay of this table needs, and nothing else. One line for each grant that was missing.
CREATE FUNCTION postrider.grant_relay(target regclass, role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing record;
	number  integer;
	tables  regclass[] := ARRAY['postrider.migration', 'postrider.outbox', 'postrider.retry', 'postrider.event'];
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
		SELECT format('%s ON TABLE %s', w.privilege, w.relation)
		FROM (
			VALUES (target, 'SELECT'), (target, 'DELETE'),
				(tables[1], 'SELECT'), (tables[2], 'SELECT'),
				(tables[3], 'SELECT'), (tables[3], 'INSERT'),
				(tables[3], 'UPDATE'), (tables[3], 'DELETE'),
				(tables[4], 'SELECT'), (tables[4], 'INSERT')
		) AS w(relation, privilege)
		WHERE NOT has_table_privilege(role, w.relation, w.privilege)
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
COMMENT ON FUNCTION postrider.grant_relay(regclass, name) IS 'Gives a role the privileges that a relay needs.';

-- These are for whoever installs. The trigger needs no privilege of the writer: PostgreSQL asked when it was created.
REVOKE ALL ON FUNCTION postrider.ring(), postrider.attach(regclass), postrider.grant_relay(regclass, name) FROM PUBLIC;

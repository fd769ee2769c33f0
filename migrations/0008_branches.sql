-- serves: 4
-- Branches of an outbox: each has a table of its own, into which the transaction that settles a row of the outbox moves it.

-- Whose branch an outbox is. A branch that the settings no longer have stays here as long as its table is there.
CREATE TABLE postrider.branch (
	outbox     integer PRIMARY KEY REFERENCES postrider.outbox ON DELETE CASCADE,
	parent     integer NOT NULL REFERENCES postrider.outbox ON DELETE CASCADE,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
INSERT INTO postrider.relay_right (relation, privileges) VALUES ('postrider.branch', '{SELECT}');

-- How a column of an outbox is defined in the table of a branch: its type, and nothing that would change or refuse a value.
CREATE FUNCTION postrider.branch_columns(target regclass, own_columns name[])
RETURNS TABLE (name name, number smallint, definition text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT a.attname, a.attnum, format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
		CASE WHEN a.attcollation <> t.typcollation THEN ' COLLATE ' || a.attcollation::regcollation END)
	FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
	WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (own_columns)
$$;
COMMENT ON FUNCTION postrider.branch_columns(regclass, name[]) IS 'The columns that a branch of an outbox has.';

-- Makes the table of a branch, or what it lacks of the columns of its outbox, except those that are the outbox's own. Its order
-- is that in which rows came. One line for each thing done.
CREATE FUNCTION postrider.make_branch(target regclass, branch name, id_column name, key_column name, own_columns name[])
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	qualified text := format('postrider.%I', branch);
	columns   text;
	missing   record;
	number    integer;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id INTO STRICT number FROM postrider.outbox o
	JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);

	IF to_regclass(qualified) IS NULL THEN
		SELECT string_agg(c.definition || CASE WHEN a.attnotnull AND c.name IN (id_column, key_column) THEN ' NOT NULL' ELSE '' END,
			', ' ORDER BY c.number) INTO columns
		FROM postrider.branch_columns(target, own_columns) c JOIN pg_attribute a ON a.attrelid = target AND a.attnum = c.number;
		EXECUTE format('CREATE TABLE %s (%s, branch_position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) WITH ('
			'autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0, '
			'toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 1000, '
			'toast.autovacuum_vacuum_cost_delay = 0)', qualified, columns);
		EXECUTE format('CREATE UNIQUE INDEX ON %s (%I)', qualified, id_column);
		EXECUTE format('CREATE INDEX ON %s (%I, branch_position)', qualified, key_column);
		RETURN NEXT format('created the table %s', qualified);
	END IF;
	FOR missing IN
		SELECT c.definition FROM postrider.branch_columns(target, own_columns) c
		WHERE NOT postrider.has_column(qualified::regclass, c.name) ORDER BY c.number
	LOOP
		EXECUTE format('ALTER TABLE %s ADD COLUMN %s', qualified, missing.definition);
		RETURN NEXT format('added the column %s to %s', missing.definition, qualified);
	END LOOP;
	RETURN QUERY SELECT * FROM postrider.attach(qualified::regclass);
	INSERT INTO postrider.branch AS b (outbox, parent)
	SELECT o.id, number FROM postrider.outbox o WHERE o.table_name = qualified
	ON CONFLICT (outbox) DO UPDATE SET parent = excluded.parent WHERE b.parent <> excluded.parent;
END
$$;
COMMENT ON FUNCTION postrider.make_branch(regclass, name, name, name, name[]) IS 'Makes the table of a branch of an outbox.';

-- The last word on a settle that copies rows: either all of them are where they were read, or nothing of it happens.
CREATE FUNCTION postrider.found_all(n_found bigint, n_wanted bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF n_found <> n_wanted THEN
		RAISE EXCEPTION '% of % rows are where they were read', n_found, n_wanted USING ERRCODE = 'PR002';
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION postrider.found_all(bigint, bigint) IS 'Ends the transaction unless all rows were found.';

REVOKE ALL ON FUNCTION postrider.branch_columns(regclass, name[]),
	postrider.make_branch(regclass, name, name, name, name[]) FROM PUBLIC;

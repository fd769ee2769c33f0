-- serves: 4
-- What becomes of rows when they are published, so that outbox tables stay small: docs/lean.md.

-- Outboxes of which published rows are kept for a while, or that are in partitions: as `postrider init` prepared them.
-- Functions below act on nothing that is not here.
CREATE TABLE postrider.lean (
	outbox      integer PRIMARY KEY REFERENCES postrider.outbox ON DELETE CASCADE,
	published   text NOT NULL CHECK (published IN ('mark', 'archive', 'partitions')),
	column_name name NOT NULL,              -- when a row was published; or, of partitions, what they are ranges of
	archive     text                        -- format('%I.%I', schema, table)
);

-- The partitions that are ours: of an outbox, or of its archive. Others are left alone.
CREATE TABLE postrider.partition (
	name       text PRIMARY KEY,            -- format('%I.%I', schema, table)
	outbox     integer NOT NULL REFERENCES postrider.outbox ON DELETE CASCADE,
	begins     bigint,                      -- of an outbox: its first number, …
	ends       bigint,                      -- … and the first that is not in it any more
	emptied_at timestamptz,                 -- it had no row, nor had anybody who was still writing
	ends_at    timestamptz                  -- of an archive: the end of its day
);

INSERT INTO postrider.relay_right (relation, privileges) VALUES
	('postrider.lean', '{SELECT}'),
	('postrider.partition', '{SELECT}');

-- Of all nodes one keeps an outbox at a time, for the length of a transaction: a lock that needs no session of its own,
-- and that a node which is killed does not keep.
CREATE FUNCTION postrider.may_keep(of_outbox integer) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
	SELECT pg_try_advisory_xact_lock(hashtextextended('postrider.keep', of_outbox))
$$;

-- Rows that are marked as published look like any others to whoever does not look at marks, and would be published again.
CREATE FUNCTION postrider.refuse_marked(of_outbox integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	kept    record;
	has_any boolean;
BEGIN
	SELECT o.table_name, l.column_name INTO kept FROM postrider.lean l JOIN postrider.outbox o ON o.id = l.outbox
	WHERE l.outbox = of_outbox AND l.published = 'mark';
	IF FOUND THEN
		EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %I IS NOT NULL)', kept.table_name, kept.column_name) INTO has_any;
		IF has_any THEN
			RAISE EXCEPTION '% has rows that are marked as published, and would be published again; first: %', kept.table_name,
				format('DELETE FROM %s WHERE %I IS NOT NULL;', kept.table_name, kept.column_name)
			USING ERRCODE = 'object_not_in_prerequisite_state';
		END IF;
	END IF;
END
$$;

-- For `published: delete` and `keep`: forgets what was prepared for another way.
CREATE FUNCTION postrider.keep_nothing(target regclass) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	was record;
BEGIN
	FOR was IN
		SELECT o.id, o.table_name, l.published FROM postrider.lean l JOIN postrider.outbox o ON o.id = l.outbox
		WHERE to_regclass(o.table_name) = target
	LOOP
		PERFORM postrider.refuse_marked(was.id);
		DELETE FROM postrider.lean l WHERE l.outbox = was.id;
		RETURN NEXT format('%s is no longer kept by the way `published: %s`', was.table_name, was.published);
	END LOOP;
END
$$;

-- Writes down how an outbox is kept. One line when that is new.
CREATE FUNCTION postrider.set_lean(of_outbox integer, mode text, by_column name, archive_name text) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF mode <> 'mark' THEN
		PERFORM postrider.refuse_marked(of_outbox);
	END IF;
	INSERT INTO postrider.lean AS l (outbox, published, column_name, archive)
	VALUES (of_outbox, mode, by_column, archive_name)
	ON CONFLICT (outbox) DO UPDATE SET published = excluded.published, column_name = excluded.column_name,
		archive = excluded.archive
	WHERE (l.published, l.column_name, l.archive)
		IS DISTINCT FROM (excluded.published, excluded.column_name, excluded.archive);
	IF FOUND THEN
		RETURN QUERY SELECT format('%s is kept by the way `published: %s`', o.table_name, mode)
			FROM postrider.outbox o WHERE o.id = of_outbox;
	END IF;
END
$$;

-- Lets a role run a function of ours. One line when it could not.
CREATE FUNCTION postrider.grant_keeping(function_name text, role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF role IS NOT NULL AND NOT has_function_privilege(role, function_name, 'EXECUTE') THEN
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function_name, role);
		RETURN NEXT format('granted EXECUTE ON FUNCTION %s to %I', function_name, role);
	END IF;
END
$$;

---- Marked rows ------------------------------------------------------------------------------------------------------

-- Prepares an outbox for `published: mark`: the column, if the table is the recommended one, and indexes that have
-- nothing but what is still to be published. shard is the expression of the reader shards, or NULL.
CREATE FUNCTION postrider.keep_marked(target regclass, key_column name, order_column name, marker name, shard text,
	recommended boolean, role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number    integer;
	qualified text;
	schema    name;
	stem      text;
	wanted    record;
	found     record;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id, o.table_name, n.nspname, left(c.relname, 40) INTO STRICT number, qualified, schema, stem
	FROM postrider.outbox o JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);

	IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = target AND a.attname = marker AND NOT a.attisdropped) THEN
		IF NOT recommended THEN
			RAISE EXCEPTION 'table % has no column %: ALTER TABLE % ADD COLUMN % timestamptz;', qualified, marker, qualified,
				quote_ident(marker) USING ERRCODE = 'undefined_column';
		END IF;
		EXECUTE format('ALTER TABLE %s ADD COLUMN %I timestamptz', qualified, marker);
		RETURN NEXT format('added the column %I to %s', marker, qualified);
	END IF;
	FOR wanted IN
		SELECT * FROM (VALUES
			('_pending_entity', format('%I, %I', key_column, order_column), 'IS NULL'),
			('_pending_order', format('%I', order_column), 'IS NULL'),
			('_pending_shard', format('(%s), %I', shard, order_column), 'IS NULL'),
			('_published', format('%I', marker), 'IS NOT NULL')) AS w(suffix, columns, state)
		WHERE shard IS NOT NULL OR w.suffix <> '_pending_shard'
	LOOP
		IF to_regclass(format('%I.%I', schema, stem || wanted.suffix)) IS NULL THEN
			EXECUTE format('CREATE INDEX %I ON %s (%s) WHERE %I %s', stem || wanted.suffix, qualified, wanted.columns,
				marker, wanted.state);
			RETURN NEXT format('created the index %I on %s', stem || wanted.suffix, qualified);
		END IF;
	END LOOP;
	-- The recommended table has one for readers that walk over all rows, of which most are published now.
	FOR found IN
		SELECT i.indexrelid::regclass AS name FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid AND c.relname = left(stem, 40) || '_entity_id_id_idx'
		WHERE i.indrelid = target AND recommended AND i.indpred IS NULL AND NOT i.indisunique
	LOOP
		EXECUTE format('DROP INDEX %s', found.name);
		RETURN NEXT format('dropped the index %s, which had published rows too', found.name);
	END LOOP;
	IF role IS NOT NULL AND NOT has_column_privilege(role, target, marker, 'UPDATE') THEN
		EXECUTE format('GRANT UPDATE (%I) ON TABLE %s TO %I', marker, qualified, role);
		RETURN NEXT format('granted UPDATE (%I) ON TABLE %s to %I', marker, qualified, role);
	END IF;
	RETURN QUERY SELECT * FROM postrider.set_lean(number, 'mark', marker, NULL);
END
$$;

-- Removes some of the rows that were published longer ago than they are to be kept. A row that is still to be published
-- has no such time. One line when there were any: there may be more.
CREATE FUNCTION postrider.expire_marked(of_outbox integer, keep_ms bigint) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	kept    record;
	removed bigint;
BEGIN
	SELECT o.table_name, l.column_name INTO kept FROM postrider.lean l JOIN postrider.outbox o ON o.id = l.outbox
	WHERE l.outbox = of_outbox AND l.published = 'mark' AND postrider.may_keep(of_outbox);
	IF NOT FOUND THEN
		RETURN;
	END IF;
	EXECUTE format('DELETE FROM %1$s o WHERE o.%2$I < now() - $1 AND o.ctid = ANY (ARRAY('
		'SELECT p.ctid FROM %1$s p WHERE p.%2$I < now() - $1 ORDER BY p.%2$I LIMIT 1000))', kept.table_name,
		kept.column_name) USING greatest(keep_ms, 0) * interval '1 millisecond';
	GET DIAGNOSTICS removed = ROW_COUNT;
	IF removed > 0 THEN
		RETURN NEXT format('removed %s published rows of %s', removed, kept.table_name);
	END IF;
END
$$;

---- The archive ------------------------------------------------------------------------------------------------------

-- Prepares an outbox for `published: archive`: a table beside it with the same columns and when rows were published, a
-- partition for each day of that, and one for days that have none, so that settling never fails for lack of it. It has no
-- constraints: what was published is to be kept, whatever it is.
CREATE FUNCTION postrider.keep_archive(target regclass, key_column name, order_column name, role name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number  integer;
	stem    text;
	schema  name;
	archive text;
	columns text;
	made    text;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id, n.nspname, left(c.relname, 55) INTO STRICT number, schema, stem
	FROM postrider.outbox o JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);
	archive := format('%I.%I', schema, stem || '_archive');

	SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) INTO columns
	FROM pg_attribute a
	WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'published_at';
	IF to_regclass(archive) IS NULL THEN
		EXECUTE format('CREATE TABLE %s (%s, published_at timestamptz NOT NULL) PARTITION BY RANGE (published_at)', archive,
			columns);
		EXECUTE format('CREATE TABLE %I.%I PARTITION OF %s DEFAULT', schema, left(stem, 50) || '_archive_rest', archive);
		EXECUTE format('CREATE INDEX ON %s (%I, %I)', archive, key_column, order_column);
		EXECUTE format('CREATE INDEX ON %s (%I)', archive, order_column);
		RETURN NEXT format('created the table %s', archive);
	END IF;
	FOR columns IN
		SELECT format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)) FROM pg_attribute a
		WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND NOT EXISTS (SELECT FROM pg_attribute h
			WHERE h.attrelid = archive::regclass AND h.attname = a.attname)
	LOOP
		EXECUTE format('ALTER TABLE %s ADD COLUMN %s', archive, columns);
		RETURN NEXT format('added the column %s to %s', columns, archive);
	END LOOP;
	RETURN QUERY SELECT * FROM postrider.set_lean(number, 'archive', 'published_at', archive);
	LOOP
		SELECT * INTO made FROM postrider.extend_archive(number);
		EXIT WHEN NOT FOUND;
		RETURN NEXT made;
	END LOOP;
	IF role IS NOT NULL AND NOT has_table_privilege(role, archive, 'SELECT, INSERT') THEN
		EXECUTE format('GRANT SELECT, INSERT ON TABLE %s TO %I', archive, role);
		RETURN NEXT format('granted SELECT, INSERT ON TABLE %s to %I', archive, role);
	END IF;
	RETURN QUERY SELECT * FROM postrider.grant_keeping('postrider.extend_archive(integer)', role);
	RETURN QUERY SELECT * FROM postrider.grant_keeping('postrider.expire_archive(integer, bigint)', role);
END
$$;

-- Makes the partition of one day, of today or the next three, if one is missing. ATTACH lets others write meanwhile, which
-- PARTITION OF would not. One line: there may be more to make.
CREATE FUNCTION postrider.extend_archive(of_outbox integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET timezone = 'UTC' AS $$
DECLARE
	archive text;
	day     date;
	part    text;
	has_any boolean;
BEGIN
	SELECT l.archive INTO archive FROM postrider.lean l
	WHERE l.outbox = of_outbox AND l.published = 'archive' AND postrider.may_keep(of_outbox);
	IF NOT FOUND THEN
		RETURN;
	END IF;
	FOR day IN SELECT current_date + n FROM generate_series(0, 3) AS n LOOP
		SELECT format('%I.%I', n.nspname, left(c.relname, 54) || to_char(day, '_YYYYMMDD')) INTO part
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = archive::regclass;
		CONTINUE WHEN to_regclass(part) IS NOT NULL;
		-- Rows of this day that are in the partition for the rest stay there.
		EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE published_at >= $1 AND published_at < $2)', archive)
		INTO has_any USING day::timestamptz, (day + 1)::timestamptz;
		CONTINUE WHEN has_any;
		EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL)', part, archive);
		EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', archive, part,
			day::timestamptz, (day + 1)::timestamptz);
		INSERT INTO postrider.partition (name, outbox, ends_at) VALUES (part, of_outbox, (day + 1)::timestamptz);
		RETURN NEXT format('created the partition %s', part);
		RETURN;
	END LOOP;
END
$$;

-- Drops a day that is past its time, or removes some such rows of the partition for the rest. One line: there may be more.
CREATE FUNCTION postrider.expire_archive(of_outbox integer, keep_ms bigint) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
	archive text;
	past    timestamptz := now() - greatest(keep_ms, 0) * interval '1 millisecond';
	part    text;
	removed bigint;
BEGIN
	SELECT l.archive INTO archive FROM postrider.lean l
	WHERE l.outbox = of_outbox AND l.published = 'archive' AND postrider.may_keep(of_outbox);
	IF NOT FOUND THEN
		RETURN;
	END IF;
	SELECT p.name INTO part FROM postrider.partition p
	WHERE p.outbox = of_outbox AND p.ends_at <= past ORDER BY p.ends_at LIMIT 1;
	IF FOUND THEN
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', archive);
		EXECUTE format('DROP TABLE IF EXISTS %s', part);
		DELETE FROM postrider.partition p WHERE p.name = part;
		RETURN NEXT format('dropped the partition %s', part);
		RETURN;
	END IF;
	SELECT i.inhrelid::regclass::text INTO part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = archive::regclass AND pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT';
	IF FOUND THEN
		EXECUTE format('DELETE FROM %1$s o WHERE o.published_at < $1 AND o.ctid = ANY (ARRAY('
			'SELECT p.ctid FROM %1$s p WHERE p.published_at < $1 LIMIT 1000))', part) USING past;
		GET DIAGNOSTICS removed = ROW_COUNT;
		IF removed > 0 THEN
			RETURN NEXT format('removed %s rows of %s', removed, part);
		END IF;
	END IF;
END
$$;

---- The outbox in partitions -----------------------------------------------------------------------------------------

-- What keeps a table from being put into partitions, a line each.
CREATE FUNCTION postrider.unpartable(target regclass, id_column name) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT format('its column %I is of type %s, and only numbers make ranges', id_column, format_type(a.atttypid, a.atttypmod))
	FROM pg_attribute a WHERE a.attrelid = target AND a.attname = id_column
		AND a.atttypid NOT IN ('bigint'::regtype, 'integer'::regtype)
	UNION ALL
	SELECT format('no sequence belongs to its column %I: ALTER SEQUENCE … OWNED BY %s.%I', id_column, target, id_column)
	WHERE pg_get_serial_sequence(target::text, id_column) IS NULL
	UNION ALL
	SELECT format('the unique index %s is not of %I, and a table in partitions has none without it', i.indexrelid::regclass,
		id_column)
	FROM pg_index i JOIN pg_attribute a ON a.attrelid = target AND a.attname = id_column
	WHERE i.indrelid = target AND (i.indisunique OR i.indisexclusion) AND a.attnum <> ALL (i.indkey::int2[])
	UNION ALL
	SELECT format('foreign key %I of %s refers to it', k.conname, k.conrelid::regclass)
	FROM pg_constraint k WHERE k.contype = 'f' AND k.confrelid = target
	UNION ALL
	SELECT format('it has the trigger %I', t.tgname)
	FROM pg_trigger t WHERE t.tgrelid = target AND NOT t.tgisinternal AND NOT starts_with(t.tgname::text, 'postrider_')
	UNION ALL
	SELECT DISTINCT format('view or rule of %s is made from it', r.ev_class::regclass)
	FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
	WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = target
	UNION ALL
	SELECT 'it inherits, or others inherit from it'
	WHERE EXISTS (SELECT FROM pg_inherits i WHERE target IN (i.inhrelid, i.inhparent))
	UNION ALL
	SELECT 'it has row-level security' FROM pg_class c WHERE c.oid = target AND c.relrowsecurity
	UNION ALL
	SELECT format('it is in the publication %I', p.pubname)
	FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = target
	UNION ALL
	SELECT format('node %s is running: stop all nodes first', n.name) FROM postrider.node n
	WHERE clock_timestamp() - n.heartbeat_at < 3 * n.heartbeat_ms * interval '1 millisecond'
$$;

-- Options of partitions: what `postrider init` gives a table that is not in partitions.
CREATE FUNCTION postrider.part_options() RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT 'autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0, '
		'toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 1000, '
		'toast.autovacuum_vacuum_cost_delay = 0'
$$;

-- Makes a table with the same name and columns that is in partitions, of which the old table is the first. Rows stay where
-- they are; the old table is read once to see that its numbers are in its range.
CREATE FUNCTION postrider.convert_to_partitions(target regclass, id_column name, partition_rows bigint) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number      integer;
	qualified   text;
	old         record;
	first_name  text;
	first_part  text;
	obstacles   text;
	identity    "char";
	sequence    text;
	at          bigint;
	steps       record;
	statements  text[];
	statement   text;
	renames     text[];
	own         record;
BEGIN
	SELECT o.id, o.table_name INTO STRICT number, qualified FROM postrider.outbox o
	JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);
	SELECT string_agg(u, '; ') INTO obstacles FROM postrider.unpartable(target, id_column) u;
	IF obstacles IS NOT NULL THEN
		RAISE EXCEPTION '% cannot be put into partitions: %', qualified, obstacles
		USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'remove what is in the way and run this again, or choose another way: published: delete, mark or archive';
	END IF;
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', qualified);
	SELECT c.relname, c.relowner::regrole AS owner, c.relacl, n.nspname INTO old
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = target;
	first_name := left(old.relname, 40) || '_p0';
	first_part := format('%I.%I', old.nspname, first_name);

	-- Indexes and constraints as they are written now, to be written again for the new table of this name.
	SELECT array_agg(CASE WHEN k.oid IS NULL THEN pg_get_indexdef(i.indexrelid)
			ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', qualified, k.conname, pg_get_constraintdef(k.oid)) END),
		array_agg(format('ALTER INDEX %s RENAME TO %I', i.indexrelid::regclass, left(c.relname, 55) || '_p0'))
	INTO statements, renames
	FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
	LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = target AND k.contype IN ('p', 'u')
	WHERE i.indrelid = target;
	-- Privileges.
	SELECT coalesce(statements, '{}') || array_agg(format('GRANT %s%s ON TABLE %s TO %s%s', g.privilege_type,
		CASE WHEN g.of_column IS NULL THEN '' ELSE format(' (%I)', g.of_column) END, qualified,
		CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
		CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END))
	INTO statements
	FROM (
		SELECT x.*, NULL::name AS of_column FROM aclexplode(old.relacl) x
		UNION ALL
		SELECT x.*, a.attname FROM pg_attribute a, aclexplode(a.attacl) x WHERE a.attrelid = target AND NOT a.attisdropped
	) g;

	SELECT a.attidentity INTO identity FROM pg_attribute a WHERE a.attrelid = target AND a.attname = id_column;
	sequence := pg_get_serial_sequence(qualified, id_column);
	EXECUTE format('SELECT last_value FROM %s', sequence) INTO at;
	SELECT s.seqincrement, s.seqcache INTO steps FROM pg_sequence s WHERE s.seqrelid = sequence::regclass;

	-- Our own triggers, which name the table, too.
	FOR own IN
		SELECT t.tgname, pg_get_triggerdef(t.oid) AS definition FROM pg_trigger t
		WHERE t.tgrelid = target AND NOT t.tgisinternal AND starts_with(t.tgname::text, 'postrider_')
	LOOP
		statements := statements || own.definition;
		EXECUTE format('DROP TRIGGER %I ON %s', own.tgname, qualified);
	END LOOP;
	EXECUTE format('ALTER TABLE %s RENAME TO %I', qualified, first_name);
	FOREACH statement IN ARRAY coalesce(renames, '{}') LOOP
		EXECUTE statement;
	END LOOP;
	EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY EXCLUDING STATISTICS)'
		' PARTITION BY RANGE (%I)', qualified, first_part, id_column);
	EXECUTE format('ALTER TABLE %s OWNER TO %s', qualified, old.owner);
	IF identity = '' THEN
		EXECUTE format('ALTER SEQUENCE %s OWNED BY %s.%I', sequence, qualified, id_column);
	ELSE
		EXECUTE format('ALTER TABLE %s ALTER %I DROP IDENTITY', first_part, id_column);
		EXECUTE format('ALTER TABLE %s ALTER %I ADD GENERATED %s AS IDENTITY (START WITH %s INCREMENT BY %s CACHE %s)',
			qualified, id_column, CASE identity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, at + steps.seqincrement,
			steps.seqincrement, steps.seqcache);
	END IF;
	FOREACH statement IN ARRAY coalesce(statements, '{}') LOOP
		EXECUTE statement;
	END LOOP;
	EXECUTE format('ALTER TABLE %s SET (%s)', first_part, postrider.part_options());
	EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (MINVALUE) TO (%s)', qualified, first_part,
		at + partition_rows);
	EXECUTE format('CREATE TABLE %I.%I PARTITION OF %s DEFAULT WITH (%s)', old.nspname, left(old.relname, 40) || '_rest',
		qualified, postrider.part_options());
	INSERT INTO postrider.partition (name, outbox, begins, ends)
	VALUES (first_part, number, -9223372036854775808, at + partition_rows);
	RETURN NEXT format('put %s into partitions, of which %s is the first', qualified, first_part);
	RETURN QUERY SELECT * FROM postrider.attach(qualified::regclass);
END
$$;

-- Prepares an outbox for `published: partitions`.
CREATE FUNCTION postrider.keep_partitions(target regclass, id_column name, partition_rows bigint, ahead integer, role name)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number    integer;
	qualified text;
	kind      "char";
	made      text;
	sequence  text;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id, o.table_name, c.relkind INTO STRICT number, qualified, kind
	FROM postrider.outbox o JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);
	IF kind = 'r' THEN
		RETURN QUERY SELECT * FROM postrider.convert_to_partitions(target, id_column, partition_rows);
	ELSIF NOT EXISTS (SELECT FROM postrider.partition p WHERE p.outbox = number AND p.ends IS NOT NULL) THEN
		RAISE EXCEPTION '% is in partitions that postrider did not make', qualified
		USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'leave them to whoever made them, and set published: delete, mark or archive';
	END IF;
	RETURN QUERY SELECT * FROM postrider.set_lean(number, 'partitions', id_column, NULL);
	LOOP
		SELECT * INTO made FROM postrider.add_partition(number, partition_rows, ahead);
		EXIT WHEN NOT FOUND;
		RETURN NEXT made;
	END LOOP;
	sequence := pg_get_serial_sequence(qualified, id_column);
	IF role IS NOT NULL AND NOT has_sequence_privilege(role, sequence, 'SELECT') THEN
		EXECUTE format('GRANT SELECT ON SEQUENCE %s TO %I', sequence, role);
		RETURN NEXT format('granted SELECT ON SEQUENCE %s to %I', sequence, role);
	END IF;
	RETURN QUERY SELECT * FROM postrider.grant_keeping('postrider.add_partition(integer, bigint, integer)', role);
	RETURN QUERY SELECT * FROM postrider.grant_keeping('postrider.empty_partition(integer)', role);
	RETURN QUERY SELECT * FROM postrider.grant_keeping('postrider.drop_partitions(integer)', role);
END
$$;

-- How far the numbers of an outbox in partitions have been drawn; NULL when that is not ours to ask at the moment.
CREATE FUNCTION postrider.drawn(of_outbox integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	sequence text;
	at       bigint;
BEGIN
	SELECT pg_get_serial_sequence(o.table_name, l.column_name) INTO sequence
	FROM postrider.lean l JOIN postrider.outbox o ON o.id = l.outbox
	WHERE l.outbox = of_outbox AND l.published = 'partitions' AND postrider.may_keep(of_outbox);
	IF sequence IS NOT NULL THEN
		EXECUTE format('SELECT last_value FROM %s', sequence) INTO at;
	END IF;
	RETURN at;
END
$$;

-- Whether somebody has a lock on a table and keeps it: a long transaction. Whoever would wait for it makes all others wait
-- behind him, so he had better not.
CREATE FUNCTION postrider.is_kept_locked(target regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	holders text[];
BEGIN
	SELECT array_agg(l.virtualtransaction) INTO holders FROM pg_locks l
	WHERE l.locktype = 'relation' AND l.relation = target AND l.pid IS DISTINCT FROM pg_backend_pid()
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
	IF holders IS NULL THEN
		RETURN false;
	END IF;
	PERFORM pg_sleep(0.05);
	RETURN EXISTS (SELECT FROM pg_locks l
		WHERE l.locktype = 'relation' AND l.relation = target AND l.virtualtransaction = ANY (holders)
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
END
$$;

-- Makes the next partition, if there are fewer ahead of what is drawn than wanted. While many cannot be dropped, because of
-- a backlog, each new one is twice as large as the one before, so that there are never very many.
--
-- When the numbers have run past all of them, rows are in the partition for the rest: the next one begins a good deal
-- behind what is drawn, because it cannot have numbers that are there already. One line: there may be more to make.
CREATE FUNCTION postrider.add_partition(of_outbox integer, partition_rows bigint, ahead integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
	at        bigint := postrider.drawn(of_outbox);
	there     record;
	parent    text;
	part      text;
	begins_at bigint;
	width     bigint;
BEGIN
	SELECT coalesce(max(p.ends), 0) AS ends, count(*) FILTER (WHERE p.begins > at) AS ahead,
		count(*) FILTER (WHERE p.begins <= at AND p.emptied_at IS NULL) AS behind
	INTO there FROM postrider.partition p WHERE p.outbox = of_outbox AND p.ends IS NOT NULL;
	IF at IS NULL OR there.ahead >= ahead THEN
		RETURN;
	END IF;
	begins_at := CASE WHEN at < there.ends THEN there.ends ELSE at + greatest(partition_rows, 1000) END;
	width := partition_rows * (1 << least(greatest(there.behind::integer - 4, 0), 10));
	SELECT o.table_name, format('%I.%I', n.nspname, left(c.relname, 40) || '_p' || begins_at) INTO parent, part
	FROM postrider.outbox o JOIN pg_class c ON c.oid = o.table_name::regclass JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE o.id = of_outbox;
	-- The partition for the rest is locked to see that it has none of these numbers. Behind a long transaction readers would
	-- wait for that, and rows find their place there all the same.
	IF EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = parent::regclass
			AND pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' AND postrider.is_kept_locked(c.oid)) THEN
		RETURN;
	END IF;
	BEGIN
		EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING IDENTITY EXCLUDING STATISTICS) WITH (%s)', part, parent,
			postrider.part_options());
		EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)', parent, part, begins_at,
			begins_at + width);
	EXCEPTION WHEN check_violation THEN     -- numbers of its were drawn meanwhile, and are with the rest: next time behind them
		RETURN;
	END;
	INSERT INTO postrider.partition (name, outbox, begins, ends) VALUES (part, of_outbox, begins_at, begins_at + width);
	RETURN NEXT format('created the partition %s', part);
END
$$;

-- Takes the first partition that is behind what is drawn and has no row, and makes its files empty: nobody needs to vacuum
-- it, whatever old snapshots there are. Under this lock nobody else is writing to it, so what is not visible now was never
-- there. Writers are not disturbed: they are in other partitions. One line: there may be more.
CREATE FUNCTION postrider.empty_partition(of_outbox integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' SET enable_seqscan = on AS $$
DECLARE
	at      bigint := postrider.drawn(of_outbox);
	part    text;
	has_any boolean;
BEGIN
	FOR part IN SELECT p.name FROM postrider.partition p
		WHERE p.outbox = of_outbox AND p.ends <= at AND p.emptied_at IS NULL ORDER BY p.ends
	LOOP
		IF to_regclass(part) IS NULL THEN       -- somebody dropped it
			DELETE FROM postrider.partition p WHERE p.name = part;
			CONTINUE;
		END IF;
		EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', part) INTO has_any;
		CONTINUE WHEN has_any OR postrider.is_kept_locked(part::regclass);
		BEGIN
			EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', part);
		EXCEPTION WHEN lock_not_available THEN
			CONTINUE;
		END;
		EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', part) INTO has_any;
		CONTINUE WHEN has_any;
		EXECUTE format('TRUNCATE ONLY %s', part);
		UPDATE postrider.partition p SET emptied_at = clock_timestamp() WHERE p.name = part;
		RETURN NEXT format('emptied the partition %s', part);
		RETURN;
	END LOOP;
END
$$;

-- Drops partitions that were emptied. For that the whole table is locked for a moment, which is not waited for long: it can
-- be done later, as they cost next to nothing. Under this lock nobody is writing at all. A row that came since, with a
-- number that was drawn long before, keeps its partition until it is published. One line when something was dropped.
CREATE FUNCTION postrider.drop_partitions(of_outbox integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET enable_seqscan = on AS $$
DECLARE
	parent  text;
	part    text;
	has_any boolean;
	dropped text[] := '{}';
BEGIN
	SELECT o.table_name INTO parent FROM postrider.lean l JOIN postrider.outbox o ON o.id = l.outbox
	WHERE l.outbox = of_outbox AND l.published = 'partitions' AND postrider.may_keep(of_outbox)
		AND EXISTS (SELECT FROM postrider.partition p WHERE p.outbox = of_outbox AND p.emptied_at IS NOT NULL);
	IF NOT FOUND OR postrider.is_kept_locked(parent::regclass) THEN
		RETURN;
	END IF;
	EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', parent);
	FOR part IN SELECT p.name FROM postrider.partition p
		WHERE p.outbox = of_outbox AND p.emptied_at IS NOT NULL ORDER BY p.ends LIMIT 20
	LOOP
		IF to_regclass(part) IS NOT NULL THEN
			EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', part) INTO has_any;
			IF has_any THEN
				UPDATE postrider.partition p SET emptied_at = NULL WHERE p.name = part;
				CONTINUE;
			END IF;
			EXECUTE format('DROP TABLE %s', part);
		END IF;
		DELETE FROM postrider.partition p WHERE p.name = part;
		dropped := dropped || part;
	END LOOP;
	IF dropped <> '{}' THEN
		RETURN NEXT format('dropped the partition%s %s', CASE WHEN cardinality(dropped) > 1 THEN 's' ELSE '' END,
			array_to_string(dropped, ', '));
	END IF;
END
$$;

-- Who installs may run all of them, a relay those that were granted to it, and nobody else any.
REVOKE ALL ON FUNCTION postrider.keep_nothing(regclass), postrider.set_lean(integer, text, name, text), postrider.grant_keeping(text, name),
	postrider.keep_marked(regclass, name, name, name, text, boolean, name),
	postrider.keep_archive(regclass, name, name, name), postrider.extend_archive(integer),
	postrider.expire_archive(integer, bigint), postrider.convert_to_partitions(regclass, name, bigint),
	postrider.keep_partitions(regclass, name, bigint, integer, name), postrider.add_partition(integer, bigint, integer),
	postrider.empty_partition(integer), postrider.drop_partitions(integer) FROM PUBLIC;

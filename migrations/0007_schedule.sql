-- serves: 4
-- Rows that are not to be published before their time: what wakes the relay, and the indexes by which claims pass
-- them over.

CREATE FUNCTION postrider.has_column(target regclass, column_name name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT EXISTS (SELECT FROM pg_attribute a
		WHERE a.attrelid = target AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped)
$$;
COMMENT ON FUNCTION postrider.has_column(regclass, name) IS 'Whether a table has a column of that name.';

-- Whether there is a valid btree index that begins with these columns and has just this condition; NULL: none.
CREATE FUNCTION postrider.has_index(target regclass, columns name[], condition text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT EXISTS (
		SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
		WHERE i.indrelid = target AND i.indisvalid AND m.amname = 'btree'
			AND pg_get_expr(i.indpred, i.indrelid) IS NOT DISTINCT FROM condition
			AND columns = (SELECT array_agg(a.attname ORDER BY k.n)
				FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, n)
				JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
				WHERE k.n <= cardinality(columns)))
$$;
COMMENT ON FUNCTION postrider.has_index(regclass, name[], text) IS 'Whether a table has such an index.';

-- Makes an index unless the table has it. One line if it did.
CREATE FUNCTION postrider.ensure_index(target regclass, columns name[], condition text) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	definition text;
BEGIN
	IF postrider.has_index(target, columns, condition) THEN
		RETURN;
	END IF;
	SELECT format('%s (%s)%s', target, string_agg(quote_ident(c.name), ', ' ORDER BY c.n), ' WHERE ' || condition)
	INTO definition FROM unnest(columns) WITH ORDINALITY c(name, n);
	EXECUTE 'CREATE INDEX ON ' || definition;
	RETURN NEXT 'created an index on ' || definition;
END
$$;
COMMENT ON FUNCTION postrider.ensure_index(regclass, name[], text) IS 'Makes an index unless the table has it.';

-- The indexes that most readers walk. A claim finds rows without a time by the first, whatever is scheduled for
-- later; that something is due by the second, and an entity's due rows by the third. A table that has the first
-- without a condition keeps it: it serves, only slower while many rows are scheduled. One line for each that was
-- missing.
CREATE FUNCTION postrider.index_outbox(target regclass, key_column name, order_column name, time_column name)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	timed boolean := postrider.has_column(target, time_column);
BEGIN
	IF NOT postrider.has_index(target, ARRAY[key_column, order_column], NULL) THEN
		RETURN QUERY SELECT * FROM postrider.ensure_index(target, ARRAY[key_column, order_column],
			CASE WHEN timed THEN format('(%I IS NULL)', time_column) END);
	END IF;
	IF timed THEN
		RETURN QUERY SELECT * FROM postrider.ensure_index(target, ARRAY[time_column],
			format('(%I IS NOT NULL)', time_column));
		RETURN QUERY SELECT * FROM postrider.ensure_index(target, ARRAY[key_column, time_column],
			format('(%I IS NOT NULL)', time_column));
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.index_outbox(regclass, name, name, name) IS 'Makes the indexes that readers walk.';

-- Readers that read in order, whatever the entity, pass over scheduled rows by this one.
CREATE FUNCTION postrider.index_order(target regclass, order_column name, time_column name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF postrider.has_column(target, time_column) THEN
		RETURN QUERY SELECT * FROM postrider.ensure_index(target, ARRAY[order_column],
			format('(%I IS NULL)', time_column));
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.index_order(regclass, name, name) IS 'Makes the index of readers that read in order.';

-- A row that had a time and is to go at once is due from this moment. Without a time it would be one of those that
-- readers of the log, and readers that read on in order, have passed already. The argument of the trigger is the
-- column.
CREATE FUNCTION postrider.keep_time() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN jsonb_populate_record(NEW, jsonb_build_object(TG_ARGV[0], clock_timestamp()));
END
$$;
COMMENT ON FUNCTION postrider.keep_time() IS 'Trigger function: a scheduled row that is to go at once is due now.';

-- The reader `wal` hears of nothing but the log, and that does not show updates. There for every reader, because a
-- trigger is not made while others write to the table; and without a log that can be decoded it costs next to nothing.
CREATE FUNCTION postrider.tell_schedule() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF current_setting('wal_level') = 'logical' THEN
		PERFORM pg_logical_emit_message(true, 'postrider.schedule', TG_RELID::text);
	END IF;
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION postrider.tell_schedule() IS 'Trigger function: writes into the log that rows were rescheduled.';

-- What of the triggers below is there and watches the column.
CREATE FUNCTION postrider.schedule_triggers(target regclass, time_column name) RETURNS SETOF name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT t.tgname FROM pg_trigger t
	JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attname = time_column AND a.attnum = ANY (t.tgattr::int2[])
	WHERE t.tgrelid = target AND t.tgname IN ('postrider_ring_schedule', 'postrider_keep_time', 'postrider_tell_schedule')
		AND t.tgenabled IN ('O', 'A')
$$;
COMMENT ON FUNCTION postrider.schedule_triggers(regclass, name) IS 'Which triggers for scheduled rows a table has.';

-- Makes such a trigger if it is missing, disabled, or watches another column. One line if it did.
CREATE FUNCTION postrider.ensure_trigger(target regclass, time_column name, trigger_name name, definition text)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF trigger_name NOT IN (SELECT * FROM postrider.schedule_triggers(target, time_column)) THEN
		EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', trigger_name, target);
		EXECUTE format('CREATE TRIGGER %I %s', trigger_name, definition);
		RETURN NEXT format('created the trigger %s on %s', trigger_name, target);
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.ensure_trigger(regclass, name, name, text) IS 'Makes a trigger for scheduled rows.';

-- For a table that has the column. A row that is rescheduled may be due sooner than the relay means to look, so an
-- UPDATE rings as an INSERT does, see postrider.attach; and the two functions above. One line for each trigger that
-- was missing.
CREATE FUNCTION postrider.attach_schedule(target regclass, time_column name) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number integer;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	IF NOT postrider.has_column(target, time_column) THEN
		RETURN;
	END IF;
	SELECT o.id INTO STRICT number FROM postrider.outbox o
	JOIN pg_class c ON c.oid = target
	JOIN pg_namespace n ON n.oid = c.relnamespace AND o.table_name = format('%I.%I', n.nspname, c.relname);
	RETURN QUERY SELECT * FROM postrider.ensure_trigger(target, time_column, 'postrider_ring_schedule',
		format('AFTER UPDATE OF %I ON %s FOR EACH STATEMENT'
			' WHEN (pg_catalog.pg_sequence_last_value(%L::pg_catalog.regclass) > 0)'
			' EXECUTE FUNCTION postrider.ring(%L)', time_column, target, format('postrider.bell_%s', number), number));
	RETURN QUERY SELECT * FROM postrider.ensure_trigger(target, time_column, 'postrider_keep_time',
		format('BEFORE UPDATE OF %1$I ON %2$s FOR EACH ROW WHEN (OLD.%1$I IS NOT NULL AND NEW.%1$I IS NULL)'
			' EXECUTE FUNCTION postrider.keep_time(%1$L)', time_column, target));
	RETURN QUERY SELECT * FROM postrider.ensure_trigger(target, time_column, 'postrider_tell_schedule',
		format('AFTER UPDATE OF %I ON %s FOR EACH STATEMENT EXECUTE FUNCTION postrider.tell_schedule()', time_column,
			target));
END
$$;
COMMENT ON FUNCTION postrider.attach_schedule(regclass, name) IS 'Installs the triggers for scheduled rows.';

-- Divides an outbox into shards for the reader `shards`: makes the indexes, and the rows that owners take. Refused
-- while workers read it by another division, because an entity could then have two owners. One line for each thing
-- done.
--
-- A table with scheduled rows gets one index for those without a time and one for the others, instead of one for all.
DROP FUNCTION postrider.divide(regclass, integer, text, name, name, name);
CREATE FUNCTION postrider.divide(target regclass, into_shards integer, by_key text, key_column name, id_column name,
	order_column name, time_column name DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number    integer;
	qualified text;
	prefix    text;
	shard     text;
	index     record;
	current   postrider.sharding;
	timed     boolean := postrider.has_column(target, time_column);
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('postrider.attach', 0));
	SELECT o.id, o.table_name, left(c.relname, 40) || '_shards_' INTO STRICT number, qualified, prefix
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
		DELETE FROM postrider.shard s WHERE s.outbox = number;
		INSERT INTO postrider.shard (outbox, shard) SELECT number, generate_series(0, into_shards - 1);
		INSERT INTO postrider.sharding (outbox, shards, key) VALUES (number, into_shards, by_key)
		ON CONFLICT (outbox) DO UPDATE SET shards = excluded.shards, key = excluded.key;
		RETURN NEXT format('divided %s into %s shards by %s', qualified, into_shards, by_key);
	END IF;

	-- What a former division, or one from before the column, has left behind.
	FOR index IN
		SELECT c.oid::regclass AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = target AND starts_with(c.relname, prefix)
			AND substr(c.relname, length(prefix) + 1) ~ '^(entity|id)_\d+(_now|_due)?$'
			AND c.relname <> ALL (CASE WHEN timed
				THEN ARRAY[prefix || by_key || '_' || into_shards || '_now', prefix || by_key || '_' || into_shards || '_due']
				ELSE ARRAY[prefix || by_key || '_' || into_shards] END)
	LOOP
		EXECUTE format('DROP INDEX %s', index.name);
	END LOOP;
	FOR index IN
		SELECT prefix || by_key || '_' || into_shards || w.ending AS name, w.columns, w.condition
		FROM (VALUES (NOT timed, '', format('%I', order_column), ''),
				(timed, '_now', format('%I', order_column), format(' WHERE %I IS NULL', time_column)),
				(timed, '_due', format('%I', time_column), format(' WHERE %I IS NOT NULL', time_column))
			) AS w(wanted, ending, columns, condition)
		WHERE w.wanted AND NOT EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			WHERE i.indrelid = target AND c.relname = prefix || by_key || '_' || into_shards || w.ending)
	LOOP
		EXECUTE format('CREATE INDEX %I ON %s ((%s), %s)%s', index.name, qualified, shard, index.columns, index.condition);
		RETURN NEXT format('created the index %I on %s', index.name, qualified);
	END LOOP;
END
$$;
COMMENT ON FUNCTION postrider.divide(regclass, integer, text, name, name, name, name) IS
	'Divides an outbox into shards for the reader shards.';

REVOKE ALL ON FUNCTION postrider.ensure_index(regclass, name[], text),
	postrider.index_outbox(regclass, name, name, name), postrider.index_order(regclass, name, name),
	postrider.ensure_trigger(regclass, name, name, text), postrider.attach_schedule(regclass, name),
	postrider.keep_time(), postrider.tell_schedule(),
	postrider.divide(regclass, integer, text, name, name, name, name) FROM PUBLIC;

-- serves: 4
-- Queues without a broker: the sink `queue` fills them, consumers call receive, ack and nack. docs/queue.md is for them.
--
-- A queue hands out *lanes*, not messages: a lane is all messages of a key where the queue keeps order, and one message
-- where it does not. Of a lane the first message is handed out, and nothing else of it until that one is acknowledged or
-- given up. So a receive costs what it hands out: a key with a hundred thousand messages is one lane, and a lane that is
-- in flight lies in the future, where no receive looks.
--
-- Messages are only inserted and deleted. What changes with each receive is the narrow row of its lane.

CREATE TABLE postrider.queue (
	name           text PRIMARY KEY CHECK (pg_catalog.octet_length(name) BETWEEN 1 AND 255),
	ordered        boolean NOT NULL DEFAULT true,
	visibility     interval NOT NULL DEFAULT '30 s' CHECK (visibility > interval '0'),
	max_receives   integer NOT NULL DEFAULT 10 CHECK (max_receives > 0),
	dead_retention interval NOT NULL DEFAULT '14 d' CHECK (dead_retention >= interval '0'),
	created_at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

CREATE TABLE postrider.queue_message (
	id          bigint GENERATED ALWAYS AS IDENTITY,
	queue       text NOT NULL,
	lane        text NOT NULL,              -- postrider.lane_of
	message_id  text NOT NULL,
	key         text,
	entity_type text,
	entity_id   text,
	event_type  text,
	payload     bytea,
	headers     jsonb,
	created_at  timestamptz,
	sent_at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (queue, lane, id),
	UNIQUE (queue, message_id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- A row while the lane has messages; now and then a second one, see postrider.queue_arrived.
CREATE TABLE postrider.queue_lane (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	queue      text NOT NULL,
	lane       text NOT NULL,
	ready_at   timestamptz NOT NULL,        -- nothing of it is handed out before
	claim      uuid,                        -- of whoever has its first message; NULL: nobody
	message    bigint,                      -- the one that was handed out last …
	receives   integer NOT NULL DEFAULT 0,  -- … how often …
	reason     text,                        -- … and why it was given back
	changed_in xid8                         -- the transaction that changed this row last; see postrider.queue_lock
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
CREATE INDEX ON postrider.queue_lane (queue, ready_at, id);
CREATE INDEX ON postrider.queue_lane (queue, lane);

CREATE TABLE postrider.queue_dead (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	queue         text NOT NULL,
	message_id    text NOT NULL,
	key           text,
	entity_type   text,
	entity_id     text,
	event_type    text,
	payload       bytea,
	headers       jsonb,
	created_at    timestamptz,
	sent_at       timestamptz NOT NULL,
	receive_count integer NOT NULL,
	reason        text NOT NULL,
	died_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX ON postrider.queue_dead (queue, died_at, id);

INSERT INTO postrider.relay_right (relation, privileges) VALUES
	('postrider.queue', '{SELECT}'),
	('postrider.queue_message', '{SELECT,INSERT}');

-- A key that is too long for an index is as good by its hash.
CREATE FUNCTION postrider.lane_of(ordered boolean, key text, message_id text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE
		WHEN key IS NULL OR NOT ordered THEN message_id
		WHEN pg_catalog.octet_length(key) <= 512 THEN key
		ELSE pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex') END
$$;
COMMENT ON FUNCTION postrider.lane_of(boolean, text, text) IS 'The lane of a message: by its key, or on its own.';

-- ---- Arrival -----------------------------------------------------------------------------------------------------------

-- Makes queues and lanes that are missing, and tells those who listen. The relay is in a hurry, and consumers may keep a
-- lane locked for as long as their transaction lasts, so nothing here waits for them. A lane's row that is locked for good
-- is about to be removed; the lane then gets a second one. A row that is there and not locked so stays: with KEY SHARE on
-- it nobody removes it before our messages are to be seen, and who removes it later looks for messages first.
CREATE FUNCTION postrider.queue_arrived() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
	INSERT INTO postrider.queue (name)
	SELECT DISTINCT f.queue FROM fresh f
	WHERE (SELECT true FROM postrider.queue q WHERE q.name = f.queue) IS NULL
	ON CONFLICT DO NOTHING;

	INSERT INTO postrider.queue_lane (queue, lane, ready_at)
	SELECT g.queue, g.lane, clock_timestamp()
	FROM (SELECT f.queue, f.lane, min(f.id) AS first FROM fresh f GROUP BY f.queue, f.lane) g
	WHERE (SELECT true FROM postrider.queue_lane l WHERE l.queue = g.queue AND l.lane = g.lane
		LIMIT 1 FOR KEY SHARE SKIP LOCKED) IS NULL
	ORDER BY g.first;

	PERFORM pg_notify('postrider_queue', g.queue) FROM (SELECT DISTINCT f.queue FROM fresh f) g;
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION postrider.queue_arrived() IS 'Trigger function: messages have come into queues.';
CREATE TRIGGER queue_arrived AFTER INSERT ON postrider.queue_message
	REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION postrider.queue_arrived();

-- ---- What the functions for consumers are made of ----------------------------------------------------------------------

CREATE FUNCTION postrider.queue_settings(queue text) RETURNS postrider.queue
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	found postrider.queue;
BEGIN
	SELECT * INTO found FROM postrider.queue q WHERE q.name = queue_settings.queue;
	IF found.name IS NULL THEN
		RAISE EXCEPTION 'queue "%" does not exist', queue
		USING ERRCODE = 'undefined_object',
			HINT = 'the relay makes it with the first message; SELECT postrider.create_queue(''…'') does so before';
	END IF;
	RETURN found;
END
$$;
COMMENT ON FUNCTION postrider.queue_settings(text) IS 'The settings of a queue, or an error that it does not exist.';

-- The lane that a receipt stands for, locked; a row of NULLs when the receipt is old or none at all.
CREATE FUNCTION postrider.queue_held(queue text, receipt text) RETURNS postrider.queue_lane
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	held postrider.queue_lane;
BEGIN
	LOCK TABLE postrider.queue_message IN ROW EXCLUSIVE MODE;      -- as in postrider.receive
	IF receipt ~ '^\d{1,18}:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
		SELECT * INTO held FROM postrider.queue_lane l
		WHERE l.id = split_part(receipt, ':', 1)::bigint AND l.queue = queue_held.queue
			AND l.claim = split_part(receipt, ':', 2)::uuid
		FOR NO KEY UPDATE;
	END IF;
	IF held.id IS NULL THEN
		PERFORM postrider.queue_settings(queue);
	END IF;
	RETURN held;
END
$$;
COMMENT ON FUNCTION postrider.queue_held(text, text) IS 'The lane that a receipt stands for, locked.';

-- Locks the row of a lane so that it can be removed, unless somebody is just adding a message: his lock is in the way then.
-- Nor is it done to a row that this transaction has changed: those who add messages skip a row that is locked, but one that
-- was changed and then locked they find by its old version, and wait for the new one.
CREATE FUNCTION postrider.queue_lock(turn bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	PERFORM FROM postrider.queue_lane l WHERE l.id = turn AND l.changed_in IS DISTINCT FROM pg_current_xact_id()
	FOR UPDATE SKIP LOCKED;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION postrider.queue_lock(bigint) IS 'Locks the row of a lane to be removed. Whether it did.';

-- Removes the row of a lane that has no message. Whether there is one is asked again once the lock is ours, in a statement
-- of its own: under READ COMMITTED, and only there, it sees all that was committed before. Returns whether it did.
CREATE FUNCTION postrider.queue_close(turn bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	PERFORM FROM postrider.queue_lane l WHERE l.id = turn
		AND (SELECT true FROM postrider.queue_message m WHERE m.queue = l.queue AND m.lane = l.lane LIMIT 1) IS NULL;
	IF NOT FOUND OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
		OR NOT postrider.queue_lock(turn) THEN
		RETURN false;
	END IF;
	DELETE FROM postrider.queue_lane l WHERE l.id = turn
		AND (SELECT true FROM postrider.queue_message m WHERE m.queue = l.queue AND m.lane = l.lane LIMIT 1) IS NULL;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION postrider.queue_close(bigint) IS 'Removes the row of an empty lane. Whether it did.';

-- The first message of a lane has left it: on to the next.
CREATE FUNCTION postrider.queue_advance(turn bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	IF NOT postrider.queue_close(turn) THEN
		UPDATE postrider.queue_lane l
		SET ready_at = clock_timestamp(), claim = NULL, message = NULL, receives = 0, reason = NULL,
			changed_in = pg_current_xact_id()
		WHERE l.id = turn;
	END IF;
END
$$;
COMMENT ON FUNCTION postrider.queue_advance(bigint) IS 'Makes the next message of a lane available.';

CREATE FUNCTION postrider.queue_postpone(turn bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	UPDATE postrider.queue_lane l
	SET ready_at = clock_timestamp() + (50 + 50 * random()) * interval '1 ms', changed_in = pg_current_xact_id()
	WHERE l.id = turn
$$;
COMMENT ON FUNCTION postrider.queue_postpone(bigint) IS 'Looks at a lane again in a moment.';

-- Of two rows of a lane this one is one too many. It may go when the other one stays, which our lock sees to. Where that
-- cannot be had, or somebody who adds a message has locked this one, it is looked at again in a moment. False: there is no
-- other one any more.
CREATE FUNCTION postrider.queue_merge(turn bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	mine postrider.queue_lane;
BEGIN
	SELECT * INTO mine FROM postrider.queue_lane l WHERE l.id = turn;
	PERFORM FROM postrider.queue_lane o WHERE o.queue = mine.queue AND o.lane = mine.lane AND o.id <> turn
		LIMIT 1 FOR KEY SHARE SKIP LOCKED;
	IF FOUND THEN
		IF postrider.queue_lock(turn) THEN
			DELETE FROM postrider.queue_lane l WHERE l.id = turn;
			RETURN true;
		END IF;
	ELSIF NOT EXISTS (SELECT FROM postrider.queue_lane o
			WHERE o.queue = mine.queue AND o.lane = mine.lane AND o.id <> turn) THEN
		RETURN false;
	END IF;
	PERFORM postrider.queue_postpone(turn);
	RETURN true;
END
$$;
COMMENT ON FUNCTION postrider.queue_merge(bigint) IS 'Removes a row of a lane that has another one.';

-- The message that a lane has handed out goes to the dead letters, and those that are past their retention go for good.
CREATE FUNCTION postrider.queue_bury(held postrider.queue_lane, reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
	WITH gone AS (
		DELETE FROM postrider.queue_message m
		WHERE m.queue = held.queue AND m.lane = held.lane AND m.id = held.message RETURNING m.*
	)
	INSERT INTO postrider.queue_dead (queue, message_id, key, entity_type, entity_id, event_type, payload, headers,
		created_at, sent_at, receive_count, reason)
	SELECT g.queue, g.message_id, g.key, g.entity_type, g.entity_id, g.event_type, g.payload, g.headers,
		g.created_at, g.sent_at, held.receives, queue_bury.reason
	FROM gone g;

	DELETE FROM postrider.queue_dead d WHERE d.id IN (
		SELECT o.id FROM postrider.queue_dead o
		WHERE o.queue = held.queue AND o.died_at < clock_timestamp() - (SELECT q.dead_retention FROM postrider.queue q
			WHERE q.name = held.queue)
		ORDER BY o.died_at LIMIT 10 FOR UPDATE SKIP LOCKED);
	PERFORM postrider.queue_advance(held.id);
END
$$;
COMMENT ON FUNCTION postrider.queue_bury(postrider.queue_lane, text) IS 'Makes a dead letter of a message.';

-- ---- For consumers -----------------------------------------------------------------------------------------------------

-- Up to `max` messages, which nobody else gets before `visibility` is over. A lane is taken by who has locked its row and
-- sees no other row of it: of two who hold a row each, at least one sees the other's.
CREATE FUNCTION postrider.receive(queue text, max integer DEFAULT 10, visibility interval DEFAULT NULL)
RETURNS TABLE (receipt text, message_id text, key text, entity_type text, entity_id text, event_type text, payload bytea,
	headers jsonb, receive_count integer, created_at timestamptz, sent_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
	settings postrider.queue := postrider.queue_settings(queue);
	hidden   interval := coalesce(visibility, settings.visibility);
	started  timestamptz := clock_timestamp();
	wanted   integer := max;
	given    integer;
	turns    bigint[];
	turn     bigint;
	spent    postrider.queue_lane;
BEGIN
	IF max IS NULL OR max NOT BETWEEN 1 AND 1000 OR hidden <= interval '0' THEN
		RAISE EXCEPTION 'cannot receive % messages for %', coalesce(max::text, 'NULL'), hidden
		USING ERRCODE = 'invalid_parameter_value', HINT = 'max is 1 to 1000, and visibility longer than nothing';
	END IF;
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'postrider.receive does not work under the isolation level %', current_setting('transaction_isolation')
		USING ERRCODE = 'feature_not_supported', HINT = 'call it under READ COMMITTED; ack and nack may be called under any';
	END IF;
	-- In the way of postrider.queue_stop. Before any row is locked, or the two would wait for each other.
	LOCK TABLE postrider.queue_message IN ROW EXCLUSIVE MODE;

	WHILE wanted > 0 LOOP
		SELECT array_agg(l.id ORDER BY l.ready_at, l.id) INTO turns FROM (
			SELECT c.id, c.ready_at FROM postrider.queue_lane c
			WHERE c.queue = settings.name AND c.ready_at <= started
			ORDER BY c.queue, c.ready_at, c.id LIMIT wanted FOR NO KEY UPDATE SKIP LOCKED) l;
		EXIT WHEN turns IS NULL;

		IF settings.ordered THEN
			FOR turn IN
				SELECT l.id FROM unnest(turns) t(id) JOIN postrider.queue_lane l ON l.id = t.id
				WHERE (SELECT true FROM postrider.queue_lane o
					WHERE o.queue = l.queue AND o.lane = l.lane AND o.id <> l.id LIMIT 1)
				ORDER BY l.id DESC
			LOOP
				IF postrider.queue_merge(turn) THEN
					turns := array_remove(turns, turn);
				END IF;
			END LOOP;
		END IF;

		RETURN QUERY
			WITH head AS MATERIALIZED (
				SELECT l.id AS turn, t.place, m.*, CASE WHEN l.message = m.id THEN l.receives ELSE 0 END + 1 AS nth
				FROM unnest(turns) WITH ORDINALITY t(id, place) JOIN postrider.queue_lane l ON l.id = t.id
				CROSS JOIN LATERAL (SELECT f.* FROM postrider.queue_message f
					WHERE f.queue = l.queue AND f.lane = l.lane ORDER BY f.queue, f.lane, f.id LIMIT 1) m
			), taken AS (
				UPDATE postrider.queue_lane l SET ready_at = started + hidden, claim = gen_random_uuid(), message = h.id,
					receives = h.nth, reason = CASE WHEN h.nth > 1 THEN l.reason END, changed_in = pg_current_xact_id()
				FROM head h WHERE l.id = h.turn AND h.nth <= settings.max_receives
				RETURNING h.*, l.id || ':' || l.claim AS receipt
			)
			SELECT k.receipt, k.message_id, k.key, k.entity_type, k.entity_id, k.event_type, k.payload, k.headers, k.nth,
				k.created_at, k.sent_at
			FROM taken k ORDER BY k.place;
		GET DIAGNOSTICS given = ROW_COUNT;
		wanted := wanted - given;
		CONTINUE WHEN given = cardinality(turns);

		-- What is left of them has no message, or one that was received too often.
		FOR spent IN
			SELECT l.* FROM unnest(turns) t(id) JOIN postrider.queue_lane l ON l.id = t.id WHERE l.ready_at <= started
		LOOP
			IF spent.receives >= settings.max_receives THEN
				PERFORM postrider.queue_bury(spent, coalesce(spent.reason, 'its time to be acknowledged ran out'));
			ELSIF NOT postrider.queue_close(spent.id) THEN
				PERFORM postrider.queue_postpone(spent.id);
			END IF;
		END LOOP;
	END LOOP;
END
$$;
COMMENT ON FUNCTION postrider.receive(text, integer, interval) IS
	'Hands out messages of a queue; nobody else gets them before their visibility timeout.';

CREATE FUNCTION postrider.ack(queue text, receipt text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	held postrider.queue_lane := postrider.queue_held(queue, receipt);
BEGIN
	IF held.id IS NULL THEN
		RETURN false;
	END IF;
	DELETE FROM postrider.queue_message m WHERE m.queue = held.queue AND m.lane = held.lane AND m.id = held.message;
	PERFORM postrider.queue_advance(held.id);
	RETURN true;
END
$$;
COMMENT ON FUNCTION postrider.ack(text, text) IS
	'Removes a message from its queue. False: the receipt is old, the message was given to somebody else.';

CREATE FUNCTION postrider.ack(queue text, receipts text[]) RETURNS boolean[]
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT coalesce(array_agg(postrider.ack(queue, r.receipt) ORDER BY r.place), '{}')
	FROM unnest(receipts) WITH ORDINALITY r(receipt, place)
$$;
COMMENT ON FUNCTION postrider.ack(text, text[]) IS 'Removes several messages from their queue; says of each whether it did.';

CREATE FUNCTION postrider.nack(queue text, receipt text, delay interval DEFAULT '0', reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	held postrider.queue_lane := postrider.queue_held(queue, receipt);
BEGIN
	IF held.id IS NULL THEN
		RETURN false;
	END IF;
	IF held.receives >= (postrider.queue_settings(queue)).max_receives THEN
		PERFORM postrider.queue_bury(held, coalesce(reason, held.reason, 'not acknowledged'));
	ELSE
		UPDATE postrider.queue_lane l
		SET ready_at = clock_timestamp() + coalesce(delay, '0'), claim = NULL, reason = coalesce(nack.reason, held.reason),
			changed_in = pg_current_xact_id()
		WHERE l.id = held.id;
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION postrider.nack(text, text, interval, text) IS
	'Gives a message back, to be received again after a delay. False: the receipt is old.';

CREATE FUNCTION postrider.nack(queue text, receipts text[], delay interval DEFAULT '0', reason text DEFAULT NULL)
RETURNS boolean[]
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT coalesce(array_agg(postrider.nack(queue, r.receipt, delay, reason) ORDER BY r.place), '{}')
	FROM unnest(receipts) WITH ORDINALITY r(receipt, place)
$$;
COMMENT ON FUNCTION postrider.nack(text, text[], interval, text) IS 'Gives several messages back; says of each whether it did.';

CREATE FUNCTION postrider.extend(queue text, receipt text, visibility interval) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	held postrider.queue_lane := postrider.queue_held(queue, receipt);
BEGIN
	UPDATE postrider.queue_lane l SET ready_at = clock_timestamp() + visibility, changed_in = pg_current_xact_id()
	WHERE l.id = held.id;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION postrider.extend(text, text, interval) IS
	'Keeps a message from others for so long from now on. False: the receipt is old.';

-- ---- For operators -----------------------------------------------------------------------------------------------------

CREATE FUNCTION postrider.create_queue(queue text, ordered boolean DEFAULT NULL, visibility interval DEFAULT NULL,
	max_receives integer DEFAULT NULL, dead_retention interval DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	made boolean;
BEGIN
	INSERT INTO postrider.queue (name) VALUES (queue) ON CONFLICT DO NOTHING;
	made := FOUND;
	PERFORM postrider.alter_queue(queue, ordered, visibility, max_receives, dead_retention);
	RETURN made;
END
$$;
COMMENT ON FUNCTION postrider.create_queue(text, boolean, interval, integer, interval) IS
	'Makes a queue, or gives one that is there these settings. Whether it was made.';

-- Keeps everybody out of all queues until the end of the transaction, and does not wait for long to do so.
CREATE FUNCTION postrider.queue_stop() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
	LOCK TABLE postrider.queue_message IN EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION postrider.queue_stop() IS 'Keeps everybody out of all queues for the rest of the transaction.';

-- NULL leaves a setting as it is. A message's lane is decided when it arrives, so order is changed on an empty queue only.
CREATE FUNCTION postrider.alter_queue(queue text, ordered boolean DEFAULT NULL, visibility interval DEFAULT NULL,
	max_receives integer DEFAULT NULL, dead_retention interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	was postrider.queue := postrider.queue_settings(queue);
BEGIN
	IF ordered IS DISTINCT FROM was.ordered AND ordered IS NOT NULL THEN
		PERFORM postrider.queue_stop();
		IF EXISTS (SELECT FROM postrider.queue_message m WHERE m.queue = alter_queue.queue) THEN
			RAISE EXCEPTION 'queue "%" has messages, and its order cannot be changed meanwhile', queue
			USING ERRCODE = 'object_in_use', HINT = 'let consumers empty it while the relay is stopped, or purge it';
		END IF;
	END IF;
	UPDATE postrider.queue q
	SET ordered = coalesce(alter_queue.ordered, q.ordered), visibility = coalesce(alter_queue.visibility, q.visibility),
		max_receives = coalesce(alter_queue.max_receives, q.max_receives),
		dead_retention = coalesce(alter_queue.dead_retention, q.dead_retention)
	WHERE q.name = queue;
END
$$;
COMMENT ON FUNCTION postrider.alter_queue(text, boolean, interval, integer, interval) IS 'Changes settings of a queue.';

CREATE FUNCTION postrider.purge_queue(queue text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	removed bigint;
BEGIN
	PERFORM postrider.queue_settings(queue);
	PERFORM postrider.queue_stop();
	DELETE FROM postrider.queue_message m WHERE m.queue = purge_queue.queue;
	GET DIAGNOSTICS removed = ROW_COUNT;
	DELETE FROM postrider.queue_lane l WHERE l.queue = purge_queue.queue;
	RETURN removed;
END
$$;
COMMENT ON FUNCTION postrider.purge_queue(text) IS 'Removes all messages of a queue, but no dead letters. How many.';

CREATE FUNCTION postrider.drop_queue(queue text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM postrider.purge_queue(queue);
	DELETE FROM postrider.queue_dead d WHERE d.queue = drop_queue.queue;
	DELETE FROM postrider.queue q WHERE q.name = queue;
END
$$;
COMMENT ON FUNCTION postrider.drop_queue(text) IS 'Removes a queue with its messages and dead letters.';

-- They go behind what is in the queue, the oldest first.
CREATE FUNCTION postrider.redrive_queue(queue text, max integer DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	settings postrider.queue := postrider.queue_settings(queue);
	moved    bigint;
BEGIN
	WITH back AS (
		DELETE FROM postrider.queue_dead d WHERE d.id IN (
			SELECT o.id FROM postrider.queue_dead o WHERE o.queue = settings.name
			ORDER BY o.died_at, o.id LIMIT max FOR UPDATE SKIP LOCKED)
		RETURNING d.*
	)
	INSERT INTO postrider.queue_message (queue, lane, message_id, key, entity_type, entity_id, event_type, payload, headers,
		created_at, sent_at)
	SELECT b.queue, postrider.lane_of(settings.ordered, b.key, b.message_id), b.message_id, b.key, b.entity_type, b.entity_id,
		b.event_type, b.payload, b.headers, b.created_at, b.sent_at
	FROM back b ORDER BY b.died_at, b.id
	ON CONFLICT (queue, message_id) DO NOTHING;
	GET DIAGNOSTICS moved = ROW_COUNT;
	RETURN moved;
END
$$;
COMMENT ON FUNCTION postrider.redrive_queue(text, integer) IS 'Puts dead letters back into their queue. How many.';

CREATE VIEW postrider.queue_overview AS
	SELECT q.name AS queue, q.ordered, q.visibility, q.max_receives, q.dead_retention,
		(SELECT pg_catalog.count(*) FROM postrider.queue_message m WHERE m.queue = q.name) AS messages,
		(SELECT pg_catalog.count(*) FROM postrider.queue_lane l WHERE l.queue = q.name AND l.claim IS NOT NULL
			AND l.ready_at > pg_catalog.clock_timestamp()) AS in_flight,
		(SELECT pg_catalog.min(l.ready_at) FROM postrider.queue_lane l WHERE l.queue = q.name) AS next_at,
		(SELECT pg_catalog.count(*) FROM postrider.queue_dead d WHERE d.queue = q.name) AS dead
	FROM postrider.queue q;
COMMENT ON VIEW postrider.queue_overview IS 'Queues, their settings, and what is in them. Counts, so it takes a while.';

-- Gives a role what a consumer needs, and nothing else: it may receive from every queue of this database.
CREATE FUNCTION postrider.grant_consumer(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA postrider TO %I', role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION postrider.receive(text, integer, interval), postrider.ack(text, text),'
		' postrider.ack(text, text[]), postrider.nack(text, text, interval, text),'
		' postrider.nack(text, text[], interval, text), postrider.extend(text, text, interval) TO %I', role);
END
$$;
COMMENT ON FUNCTION postrider.grant_consumer(name) IS 'Gives a role the privileges that a consumer of queues needs.';

REVOKE ALL ON FUNCTION postrider.queue_arrived(), postrider.queue_settings(text), postrider.queue_held(text, text),
	postrider.queue_lock(bigint), postrider.queue_close(bigint), postrider.queue_advance(bigint), postrider.queue_merge(bigint),
	postrider.queue_postpone(bigint), postrider.queue_bury(postrider.queue_lane, text), postrider.queue_stop(),
	postrider.receive(text, integer, interval), postrider.ack(text, text), postrider.ack(text, text[]),
	postrider.nack(text, text, interval, text), postrider.nack(text, text[], interval, text),
	postrider.extend(text, text, interval), postrider.create_queue(text, boolean, interval, integer, interval),
	postrider.alter_queue(text, boolean, interval, integer, interval), postrider.purge_queue(text),
	postrider.drop_queue(text), postrider.redrive_queue(text, integer), postrider.grant_consumer(name) FROM PUBLIC;

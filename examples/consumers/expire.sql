-- quote: expire
DELETE FROM inbox
WHERE (consumer, message_id) IN (
	SELECT consumer, message_id FROM inbox
	WHERE received_at < now() - interval '30 days'
	ORDER BY received_at LIMIT 10000);
-- end quote

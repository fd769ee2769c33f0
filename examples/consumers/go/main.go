// A consumer that does its work once for each message, although messages arrive at least once.
//
// ../../../docs/consumers.md explains it; ../inbox.sql has its tables. Any error ends it: whoever restarts it, systemd
// or Kubernetes, is its loop of retries, and what it had not finished comes again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const batchMax = 100 // messages in one transaction, at most

var (
	brokers     = setting("BROKERS", "127.0.0.1:9092")
	topic       = setting("TOPIC", "outbox.event.order")
	name        = setting("CONSUMER", "billing") // Kafka's consumer group, and our name in the inbox
	idHeader    = setting("ID_HEADER", "id")     // ce_id for CloudEvents
	databaseURL = setting("DATABASE_URL", "")    // without it, what pgx finds in PGHOST, PGDATABASE, …
)

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// quote: once

// handleBatch handles all messages in one transaction and returns how many of them were new.
func handleBatch(ctx context.Context, database *pgx.Conn, messages []*kgo.Record) (int, error) {
	count := 0
	err := pgx.BeginFunc(ctx, database, func(tx pgx.Tx) error {
		for _, message := range messages {
			isNew, err := handleOnce(ctx, tx, message)
			if err != nil {
				return err
			}
			if isNew {
				count++
			}
		}
		return nil
	})
	return count, err
}

// handleOnce remembers the message and does its work, or neither when it was here before; then it returns false.
func handleOnce(ctx context.Context, tx pgx.Tx, message *kgo.Record) (bool, error) {
	id, err := idOf(message)
	if err != nil {
		return false, err
	}
	remembered, err := tx.Exec(ctx,
		"INSERT INTO inbox (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING", name, id)
	if err != nil || remembered.RowsAffected() == 0 {
		return false, err
	}
	return true, work(ctx, tx, message)
}

// work is yours. It uses the same transaction and does not commit.
func work(ctx context.Context, tx pgx.Tx, message *kgo.Record) error {
	_, err := tx.Exec(ctx,
		"INSERT INTO invoice_line (order_id, body) VALUES ($1, $2)", string(message.Key), message.Value)
	return err
}

// end quote

func idOf(message *kgo.Record) (string, error) {
	for _, header := range message.Headers {
		if header.Key == idHeader && len(header.Value) > 0 {
			return string(header.Value), nil
		}
	}
	return "", fmt.Errorf("%s partition %d offset %d has no header %s: does something else write to this topic, or is"+
		" ID_HEADER wrong?", message.Topic, message.Partition, message.Offset, idHeader)
}

// quote: loop

func consume(stop context.Context, client *kgo.Client, database *pgx.Conn) error {
	for {
		fetches := client.PollRecords(stop, batchMax)
		if stop.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		messages := fetches.Records()
		count, err := handleBatch(context.Background(), database, messages)
		if err != nil {
			return err
		}
		commitOffsets(client)
		client.AllowRebalance()
		log.Printf("%d new messages, %d seen before", count, len(messages)-count)
	}
}

// commitOffsets comes after the transaction, never before it: a crash between the two must cost a repeat and not a
// message.
func commitOffsets(client *kgo.Client) {
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		log.Printf("could not commit offsets, so these messages come again: %v", err)
	}
}

// end quote

// quote: settings

func newClient() (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),                           // offsets follow our transactions, not a clock
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a group without an offset must not skip what is there
		kgo.SessionTimeout(6*time.Second),                 // a killed consumer's partitions go to another after so long
		kgo.BlockRebalanceOnPoll(),                        // partitions stay ours until AllowRebalance
	)
}

// end quote

func run() error {
	stop, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer release()
	database, err := pgx.Connect(stop, databaseURL)
	if err != nil {
		return err
	}
	defer database.Close(context.Background())
	client, err := newClient()
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	return consume(stop, client, database)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

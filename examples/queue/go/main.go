// A consumer of a queue: DATABASE_URL and QUEUE say which. Start as many of them as you like.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

type message struct {
	receipt, key, id string
	payload          []byte
}

var errGivenAway = errors.New("its time had run out, and somebody else has it")

func receive(ctx context.Context, database *pgx.Conn, queue string) ([]message, error) {
	rows, err := database.Query(ctx,
		"SELECT receipt, coalesce(key, ''), message_id, payload FROM postrider.receive($1, 10)", queue)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m message, err error) {
		err = row.Scan(&m.receipt, &m.key, &m.id, &m.payload)
		return m, err
	})
}

// The work and the acknowledgement are one transaction: both happen, or neither.
func consume(ctx context.Context, database *pgx.Conn, queue string, m message) error {
	return pgx.BeginFunc(ctx, database, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, "SELECT postrider.ack($1, $2)", queue, m.receipt).Scan(&mine); err != nil {
			return err
		}
		if !mine {
			return errGivenAway
		}
		_, err := tx.Exec(ctx, "INSERT INTO invoice (order_id, message_id, body) VALUES ($1, $2, $3)",
			m.key, m.id, string(m.payload))
		return err
	})
}

func run(ctx context.Context, database *pgx.Conn, queue string) error {
	for {
		messages, err := receive(ctx, database, queue)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if failure := consume(ctx, database, queue, m); failure != nil {
				// It comes again in ten seconds. A receipt that is old does nothing here.
				_, err := database.Exec(ctx, "SELECT postrider.nack($1, $2, '10 s', $3)", queue, m.receipt,
					failure.Error())
				if err != nil {
					return err
				}
			}
		}
		if len(messages) == 0 {
			time.Sleep(500 * time.Millisecond)
		}
	}
}

func main() {
	ctx := context.Background()
	database, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(run(ctx, database, os.Getenv("QUEUE")))
}

package sink

import (
	"log/slog"
	"time"
)

// patience is how long nobody wonders what a program is doing.
const patience = 5 * time.Second

// Announce says in the log, once, that about n messages of a topic are being read,
// unless stop is called within a few seconds.
func Announce(log *slog.Logger, topic string, n uint64) (stop func()) {
	timer := time.AfterFunc(patience, func() {
		log.Info("reading what the topic holds", "topic", topic, "messages", n)
	})
	return func() { timer.Stop() }
}

package sink

import (
	"log/slog"
	"time"
)

// announceAfter is the time after which a load is worth a log line.
const announceAfter = 5 * time.Second

// Announce logs once that about n messages of a topic are being read, unless stop is called
// within five seconds.
func Announce(log *slog.Logger, topic string, n uint64) (stop func()) {
	timer := time.AfterFunc(announceAfter, func() {
		log.Info("loading the IDs of the topic", "topic", topic, "messages", n)
	})
	return func() { timer.Stop() }
}

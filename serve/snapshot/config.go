package snapshot

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// Config describes the snapshots of a feed. The zero Config builds none.
type Config struct {
	// Every is the time between the moments of two snapshots, 24h being every
	// midnight in UTC. Zero builds none.
	Every time.Duration
	// Key returns the key of the thing that a message describes. Of the messages with
	// one key, a snapshot has the newest PUT and each PATCH behind it, and none that
	// is followed by a DELETE. A message without a key has its ID as its key. Default:
	// the ID is always the key. A tombstone without such a key deletes everything that
	// was PUT in a record with the tombstone's record key.
	Key func(header feed.Header, body []byte) (key string, ok bool)
	// Keys limits the number of keys in memory at a time. A topic with more is read more
	// than twice. Default 200,000, about 16 MiB.
	Keys int
	// PageBytes is about how large the bodies on a page are together. Default 1 MB.
	PageBytes int
	// Dir is the directory of the snapshots that are served. Default: the system's
	// directory for temporary files.
	Dir string
}

const (
	defaultKeys      = 200_000
	defaultPageBytes = 1_000_000
)

// Topic is a topic as the pages of its feed show it. Its functions may be called from
// any goroutine. Their errors match [feed.ErrNoTopic] if there is no topic; others
// mean that the bus cannot be asked now.
type Topic struct {
	// Span asks the bus which positions the topic has now.
	Span func(ctx context.Context) (feed.Span, error)
	// Entities yields the entities at the positions [from, to) of a span, in order,
	// with the times that they have on the feed's pages, and without those that the
	// pages leave out. An Entity is valid until the next one. An error is the last
	// thing that is yielded.
	Entities func(ctx context.Context, span feed.Span, from, to uint64) iter.Seq2[*Entity, error]
}

// Entity is an entity of a topic.
type Entity struct {
	Position uint64
	// ID is the message's Content-ID, or made of its position if HasID is false.
	ID       string
	HasID    bool
	Op       feed.Operation
	Modified time.Time
	// Header is the header of the message, with the Message-Key if it has a key.
	Header feed.Header
	Body   []byte
	// Key is the key of its record, nil if it has none, and Tombstone whether the
	// record has no value.
	Key       []byte
	Tombstone bool
	// AppendPart appends the entity as a part of a page, which begins with "--", the
	// boundary and a line end.
	AppendPart func(b []byte, boundary string) []byte
}

// Options describe a Store.
type Options struct {
	Config
	// PageSize limits the number of entities on a page.
	PageSize int
	// Turn limits the snapshots of all feeds that are built at a time.
	Turn *limit.Limit
	Log  *slog.Logger
}

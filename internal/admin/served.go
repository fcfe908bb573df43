package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// ServedOptions describe a topic that is served as a feed, for people.
type ServedOptions struct {
	// Name is the configured name. It is a label of every metric of the feed.
	Name string
	// URL holds the URL at which readers start, or only its path if the host is not known.
	URL string
	// Format is the format of the served feed.
	Format string
	// Bus and Topic are where it is read.
	Bus, Topic string
	// Snapshots reports whether snapshots are built.
	Snapshots bool
	// Look returns the state of the topic. Its context ends after 2s. An error that does not
	// match [feed.ErrNoTopic] means that the bus cannot be asked.
	Look func(ctx context.Context) (ServedTopic, error)
}

// CredentialsError is the error of Look while the credentials of readers cannot be read.
// Readers get 503.
type CredentialsError struct{ Err error }

func (e CredentialsError) Error() string { return e.Err.Error() }

func (e CredentialsError) Unwrap() error { return e.Err }

// ServedTopic is the state of a served topic.
type ServedTopic struct {
	Span feed.Span
	// Newest is the time of the newest message; zero if there is none.
	Newest time.Time
	// Snapshot is the ID of the newest snapshot, "" if there is none, and Created the
	// time that it is of.
	Snapshot string
	Created  time.Time
	// Unmatched counts the PATCHes and DELETEs that the snapshot leaves out because nothing
	// was PUT with their keys.
	Unmatched int
	// BuildBegan is when the build of the next snapshot has begun; zero if none is being built. It has read so many
	// positions of the topic, of about ToRead.
	BuildBegan   time.Time
	Read, ToRead uint64
}

// Served watches a topic that is served as a feed.
type Served struct {
	opts   ServedOptions
	redact *safetext.Redactor
	shared *vectors

	mu   sync.Mutex    // guards the fields below
	last *status.Error // nil before the first
	// removed is set when the feed is not served any more. A request may still be under way.
	removed bool
}

func (s *Served) name() string { return s.opts.Name }

// Answered records a request: the status of the answer, and how long it took to its
// last byte. It may be called from any goroutine.
func (s *Served) Answered(status int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return // the series are gone
	}
	s.shared.served.WithLabelValues(s.opts.Name, strconv.Itoa(status)).Inc()
	s.shared.servedSeconds.WithLabelValues(s.opts.Name).Observe(took.Seconds())
}

// remove deletes the metrics, and keeps them from coming back.
func (s *Served) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	s.shared.forgetServed(s.opts.Name)
}

// inspectServed returns the status of all served topics, which it asks concurrently.
func inspectServed(ctx context.Context, all []*Served) []status.Served {
	return askAll(all, func(s *Served) status.Served { return s.inspectTopic(ctx) })
}

func (s *Served) inspectTopic(ctx context.Context) status.Served {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	seen, err := s.opts.Look(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errNoAnswer
	}
	row := status.Served{
		Feed: s.opts.Name, OK: err == nil, Explanation: s.explainServed(seen, err, time.Now()),
		URL: s.redact.Clip(s.opts.URL, longestText), Format: s.opts.Format, Bus: s.opts.Bus, Topic: s.opts.Topic,
	}
	if err == nil {
		row.Positions = &status.Span{First: seen.Span.First, End: seen.Span.End, Epoch: seen.Span.Epoch}
		row.Newest = formatTime(seen.Newest)
	}
	if seen.Snapshot != "" {
		row.Snapshot = &status.Snapshot{ID: s.redact.Clip(seen.Snapshot, longestName), Created: formatTime(seen.Created), Unmatched: seen.Unmatched}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !errors.Is(err, context.Canceled) {
		s.last = &status.Error{At: formatTime(time.Now()), Text: s.redact.Clip(err.Error(), longestError)}
	}
	row.LastError = s.last
	return row
}

// explainServed describes in one sentence the answers that readers get.
func (s *Served) explainServed(seen ServedTopic, err error, now time.Time) string {
	var sentence string
	_, noCredentials := errors.AsType[CredentialsError](err)
	switch {
	case errors.Is(err, feed.ErrNoTopic):
		return fmt.Sprintf("readers get 404: %s; it is served as soon as the topic exists", s.redact.Clip(err.Error(), longestError))
	case noCredentials:
		return fmt.Sprintf("readers get 503 until this is fixed: %s", s.redact.Clip(err.Error(), longestError))
	case errors.Is(err, feed.ErrPermanent):
		return fmt.Sprintf("readers get 500 until this is fixed: %s", s.redact.Clip(err.Error(), longestError))
	case err != nil:
		return fmt.Sprintf("readers get 503, and are served again when the bus answers: %s", s.redact.Clip(err.Error(), longestError))
	case seen.Newest.IsZero():
		sentence = "served: the topic has no messages, and readers get 204"
	default:
		sentence = fmt.Sprintf("served: the newest message is %s old", status.FormatDuration(max(0, now.Sub(seen.Newest))))
	}
	if s.opts.Snapshots && seen.Snapshot == "" {
		sentence += "; there is no snapshot yet"
	}
	if !seen.BuildBegan.IsZero() {
		speed := float64(seen.Read) / now.Sub(seen.BuildBegan).Seconds()
		sentence += fmt.Sprintf("; a snapshot is being built: %d%%", 100*min(seen.Read, seen.ToRead)/max(seen.ToRead, 1))
		if left := status.TimeLeft(float64(seen.ToRead)-float64(seen.Read), speed); left != "" {
			sentence += ", " + status.FormatRate(speed) + ", " + left
		}
	}
	return sentence
}

package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// ErrTooLarge is matched by errors about an entity that the bus does not take
// because of its size.
var ErrTooLarge = errors.New("the entity is too large for the bus")

// RepeatedID is the kind of violation of a feed that has the same ID twice.
const RepeatedID = "repeated_content_id"

// Oversize says what to do with an entity that is too large for the bus.
type Oversize string

const (
	// Stop publishes nothing from the entity's batch on, until a person
	// decides.
	Stop Oversize = "stop"
	// Skip leaves the entity out.
	Skip Oversize = "skip"
)

// ParseOversize reads what to do with large entities; the empty string is stop.
func ParseOversize(s string) (Oversize, error) {
	switch o := Oversize(s); o {
	case "":
		return Stop, nil
	case Stop, Skip:
		return o, nil
	}
	return "", fmt.Errorf("oversize %q: want stop or skip", s)
}

// UnmarshalText is [ParseOversize].
func (o *Oversize) UnmarshalText(text []byte) (err error) {
	*o, err = ParseOversize(string(text))
	return err
}

// Source is what a [Gate] stands in front of, and is one itself.
type Source interface {
	Next(ctx context.Context, after feed.Cursor) (feed.Batch, error)
}

// A Gate is a source that leaves out of another what a topic already holds and
// what its bus does not take. All of its fields must be set
// but Oversize and Redact.
//
// The gate adds the IDs of what it lets through, before anyone has committed
// it. Whoever drops a batch, or gets an error from Next, must resume the sink
// before reading on, which rolls them back; else the gate would take for
// duplicates what was never published.
type Gate struct {
	Source Source
	// IDs are those of the sink that the batches are committed to.
	IDs *IDs
	// Fits returns an error for an entity that the bus does not take; one that
	// matches ErrTooLarge if its size is the reason. It is called for every
	// entity.
	Fits     func(feed.Entity) error
	Oversize Oversize
	Log      *slog.Logger
	// Redact hides the secrets of the URLs that become part of messages. Nil stands
	// for one that knows the usual names of parameters.
	Redact *safetext.Redactor
}

// Next returns the next batch of the source without what is left out. Each
// duplicate is counted and is a violation. Entities with marks are never
// duplicates. An entity that the bus does not take
// withholds its whole batch: the batch's cursor is behind that entity, and there
// is no other to commit the ones before it with.
func (g *Gate) Next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	b, err := g.Source.Next(ctx, after)
	if err != nil {
		return b, err
	}
	// The slices belong to the source: they are copied before they change.
	var kept []feed.Entity
	b.Violations = slices.Clip(b.Violations)
	page, shown := "", ""
	for i, e := range b.Entities {
		if e.Page != page {
			page, shown = e.Page, g.Redact.URL(e.Page)
		}
		if e.Page = shown; shown != page && kept == nil {
			kept = append(make([]feed.Entity, 0, len(b.Entities)), b.Entities[:i]...)
		}
		pass, err := g.admit(e, &b)
		if err != nil {
			return feed.Batch{}, err
		}
		switch {
		case pass && kept != nil:
			kept = append(kept, e)
		case !pass && kept == nil:
			kept = append(make([]feed.Entity, 0, len(b.Entities)), b.Entities[:i]...)
		}
	}
	if kept != nil {
		b.Entities = kept
	}
	return b, nil
}

// admit says whether e may pass, and notes in b why not.
func (g *Gate) admit(e feed.Entity, b *feed.Batch) (bool, error) {
	switch err := g.Fits(e); {
	case err == nil:
	case !errors.Is(err, ErrTooLarge):
		return false, feed.Permanent(fmt.Errorf("entity %q on %s: %w", e.ID, e.Page, err))
	case g.Oversize != Skip:
		return false, feed.Permanent(fmt.Errorf("entity %q on %s: %w, or set \"oversize: skip\" for this feed to leave such entities out", e.ID, e.Page, err))
	default:
		b.Oversized++
		g.Log.Warn("left out an entity that is too large for the bus", "id", e.ID, "page", e.Page, "size", e.Size(), "error", err)
		return false, nil
	}
	if e.Mark != "" {
		// Its source has decided already that the topic should have it.
		g.IDs.SetMark(e.ID, e.Mark)
		return true, nil
	}
	if !g.IDs.Add(e.ID) {
		b.Duplicates++
		b.Violations = append(b.Violations, feed.Violation{
			Kind: RepeatedID, Page: e.Page,
			Detail: fmt.Sprintf("the topic holds an entity with the Content-ID %q already; this one, modified %s, is left out",
				e.ID, e.Modified.Format("2006-01-02T15:04:05Z")),
		})
		return false, nil
	}
	return true, nil
}

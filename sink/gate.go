package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// ErrTooLarge is matched by errors about an entity that the bus does not take
// because of its size.
var ErrTooLarge = errors.New("the entity is too large for the bus")

// ErrHeader is matched by errors about an entity with a header that the bus cannot carry.
var ErrHeader = errors.New("the bus cannot carry a header of the entity")

// ErrNoKey is matched by errors about an entity that has no key, if the configuration makes such
// entities dead letters.
var ErrNoKey = errors.New("the entity has no key")

// RepeatedID is the kind of the violation of a feed that has the same ID twice.
const RepeatedID = "repeated_content_id"

// Oversize is the treatment of an entity that is too large for the bus.
type Oversize string

const (
	// Stop publishes the entities before the large one, and then halts the feed until a
	// person decides.
	Stop Oversize = "stop"
	// Skip leaves the entity out.
	Skip Oversize = "skip"
	// DeadLetter publishes the entity to the dead-letter topic, in the commit in which it would
	// have been published to the topic. It also applies to entities with headers that the bus
	// cannot carry.
	DeadLetter Oversize = "dead-letter"
)

// Values returns the valid values.
func (Oversize) Values() []string { return []string{string(Stop), string(Skip), string(DeadLetter)} }

// DeadSuffix follows the name of a topic in the name of its dead-letter topic.
const DeadSuffix = ".dead"

// A Gate filters the batches of a Source: it leaves out entities that the
// topic holds already, and entities that the bus does not take, or makes them dead letters. All of
// its fields must be set except Oversize and Redact.
//
// The gate adds the IDs of the entities that it returns, before they are
// committed. A caller that drops a batch, or gets an error from Next, must resume the sink
// before it reads on, which rolls the IDs back. Otherwise the gate would leave out entities as
// duplicates that were never published.
type Gate struct {
	Source feed.Source
	// IDs belong to the sink that the batches are committed to.
	IDs *IDs
	// Fits returns how many of the entities, counted from the first, the bus takes, and an error
	// about the next one, if there is one. The error matches ErrTooLarge if the size is the reason,
	// ErrHeader if one of the headers is, and ErrNoKey as described there. It is called with every
	// entity.
	Fits     func([]feed.Entity) (n int, err error)
	Oversize Oversize
	Log      *slog.Logger
	// Redact hides the secrets in URLs that become part of messages. Nil hides the
	// parameters with the usual names.
	Redact *safetext.Redactor
}

// Next returns the next batch of the source, filtered. Each
// duplicate is counted and is a violation. Entities with marks are never
// duplicates.
//
// An entity that the bus does not take, and that is neither left out nor a dead letter, is an
// error at the call at which it would be the first of its batch. Those before it are returned
// first.
func (g *Gate) Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	b, err := g.Source.Next(ctx, after, limits)
	if err != nil {
		return b, err
	}
	g.redactPages(&b)
	refused, fit, unfit := g.checkEntities(b.Entities)
	for unfit != nil {
		if fit == 0 {
			return feed.Batch{}, unfit
		}
		limits.Entities = fit
		if b, err = g.Source.Next(ctx, after, limits); err != nil {
			return b, err
		}
		g.redactPages(&b)
		// Upstream may have other entities there now. A source that returns more than
		// it was asked for must not be asked without end.
		if refused, fit, unfit = g.checkEntities(b.Entities); fit >= limits.Entities && unfit != nil {
			return feed.Batch{}, unfit
		}
	}
	// Marked entities are not compared: their source has compared the mark already, and decided to
	// publish them. What is left out for another reason is not in the topic.
	repeated := g.IDs.AddAll(b.Entities, func(i int) bool {
		return b.Entities[i].Mark == "" && (refused[i] == nil || g.deadReason(refused[i]) != nil)
	})
	// The slices belong to the source: they are copied before they change.
	var kept []feed.Entity
	b.Violations = slices.Clip(b.Violations)
	for i := range b.Entities {
		e := &b.Entities[i]
		dead := g.deadReason(refused[i])
		isRepeated := len(repeated) > 0 && repeated[0] == i
		if isRepeated {
			repeated = repeated[1:]
		}
		pass := g.admitEntity(e, dead, refused[i], isRepeated, &b)
		if kept == nil && (!pass || dead != nil) {
			kept = append(make([]feed.Entity, 0, len(b.Entities)), b.Entities[:i]...)
		}
		if pass && dead != nil {
			g.Log.Warn("an entity goes to the dead-letter topic", "id", e.ID, "page", e.Page, "size", max(int64(e.Size()), e.Length), "reason", dead.Kind, "error", refused[i])
		}
		if pass && kept != nil {
			kept = append(kept, *e)
			kept[len(kept)-1].Dead = dead
		}
	}
	if kept != nil {
		b.Entities, b.Bytes = kept, 0
	}
	return b, nil
}

// Release releases the source.
func (g *Gate) Release() { g.Source.Release() }

// redactPages hides the secrets of the pages of the entities. It is called
// before the sizes are checked, because a page is part of the message. The slice belongs
// to the source, so it is copied if anything changes.
func (g *Gate) redactPages(b *feed.Batch) {
	copied := false
	page, shown := "", ""
	for i := range b.Entities {
		if e := &b.Entities[i]; e.Page != page {
			page, shown = e.Page, g.Redact.URL(e.Page)
		}
		if shown == page {
			continue
		}
		if !copied {
			b.Entities, b.Bytes, copied = slices.Clone(b.Entities), 0, true
		}
		b.Entities[i].Page = shown
	}
}

// checkEntities finds the first entity that the bus does not take and that the configuration
// neither leaves out nor makes a dead letter. It returns the error about it, nil if there is none,
// and how many entities are before it. refused has the errors about the other entities that the
// bus does not take, by index.
func (g *Gate) checkEntities(entities []feed.Entity) (refused map[int]error, fit int, unfit error) {
	for i := 0; i < len(entities); i++ {
		n, err := g.checkFit(entities[i:])
		if err == nil {
			break
		}
		i += n
		e := &entities[i]
		switch {
		case g.deadReason(err) != nil, errors.Is(err, ErrTooLarge) && g.Oversize == Skip:
		case errors.Is(err, ErrTooLarge):
			return refused, i, feed.Permanent(fmt.Errorf("entity %q on %s: %w, or set \"oversize: skip\" for this feed to leave such entities out, or "+
				"\"oversize: dead-letter\" to keep them in a topic of their own", e.ID, e.Page, err))
		default:
			return refused, i, feed.Permanent(fmt.Errorf("entity %q on %s: %w", e.ID, e.Page, err))
		}
		if refused == nil {
			refused = map[int]error{}
		}
		refused[i] = err
	}
	return refused, len(entities), nil
}

// checkFit is Fits, and returns an error for an entity of which the source has read only the
// beginning.
func (g *Gate) checkFit(entities []feed.Entity) (n int, err error) {
	cut := slices.IndexFunc(entities, func(e feed.Entity) bool { return e.Length > 0 })
	if cut < 0 {
		return g.Fits(entities)
	}
	if n, err = g.Fits(entities[:cut]); err == nil {
		n, err = cut, cutError(entities[cut].Length)
	}
	return n, err
}

// cutError is the error about an entity of that length, of which the source has read only the
// beginning.
type cutError int64

func (e cutError) Error() string {
	return fmt.Sprintf("it has %d bytes, which is more than limits.entity: raise that", int64(e))
}

func (e cutError) Is(target error) bool { return target == ErrTooLarge }

// longestReason is the largest number of characters of the reason in a dead letter.
const longestReason = 500

// deadReason returns why an entity is a dead letter, nil if it is none. err is the error of Fits
// about it, or nil.
func (g *Gate) deadReason(err error) *feed.DeadReason {
	var kind feed.DeadKind
	switch {
	case errors.Is(err, ErrNoKey):
		kind = feed.DeadNoKey
	case g.Oversize != DeadLetter:
		return nil
	case errors.Is(err, ErrTooLarge):
		kind = feed.DeadTooLarge
	case errors.Is(err, ErrHeader):
		kind = feed.DeadHeader
	default:
		return nil
	}
	return &feed.DeadReason{Kind: kind, Text: g.Redact.Clip(err.Error(), longestReason)}
}

// admitEntity reports whether e stays in the batch b, and otherwise records the reason in b. dead
// is the reason why it is a dead letter, and refused the error of Fits about it; both may be nil.
// isRepeated reports that the topic has its ID already.
func (g *Gate) admitEntity(e *feed.Entity, dead *feed.DeadReason, refused error, isRepeated bool, b *feed.Batch) bool {
	if refused != nil && dead == nil {
		b.Oversized++
		g.Log.Warn("left out an entity that is too large", "id", e.ID, "page", e.Page, "size", max(int64(e.Size()), e.Length), "error", refused)
		return false
	}
	if e.Mark != "" {
		g.IDs.SetMark(e.ID, e.Mark)
		return true
	}
	if isRepeated {
		b.Duplicates++
		b.Violations = append(b.Violations, feed.NewViolation(RepeatedID, e.Page,
			"the topic holds an entity with the Content-ID %q already; this one, modified %s, is left out",
			e.ID, e.Modified.Format("2006-01-02T15:04:05Z")))
		return false
	}
	return true
}

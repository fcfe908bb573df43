package sink

import (
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// The headers of a message. The first three are the entity's own where the
// feed has them; a sink adds those that are missing, so that every message has
// them. The others are feedbridge's.
const (
	ContentID     = "Content-ID"
	LastModified  = "Last-Modified"
	OperationType = "Operation-Type"

	FeedName = "Feedbridge-Feed"
	Page     = "Feedbridge-Page"
	Mark     = "Feedbridge-Mark"
	// Escape is put before the name of an entity's header that a bus would
	// obey, or that would be taken for one of ours.
	Escape = "Feedbridge-Header-"
)

const (
	ours       = "Feedbridge-"
	natsServer = "Nats-"
	httpDate   = "Mon, 02 Jan 2006 15:04:05 GMT"
)

// Header returns the headers of the message that carries e: the entity's own,
// in their order and with all their values, then [ContentID], [LastModified]
// and [OperationType] as far as they are missing, then [FeedName], [Page] and
// [Mark] unless they are empty.
func Header(feedName string, e feed.Entity) feed.Header {
	return AppendHeader(make(feed.Header, 0, len(e.Header)+5), feedName, e)
}

// AppendHeader appends to h what [Header] returns. It saves an allocation for
// those who send many.
func AppendHeader(h feed.Header, feedName string, e feed.Entity) feed.Header {
	for _, f := range e.Header {
		if reserved(f.Name) {
			f.Name = Escape + f.Name
		}
		h = append(h, f)
	}
	if _, ok := e.Header.Get(ContentID); !ok {
		h = append(h, feed.Field{Name: ContentID, Value: e.ID})
	}
	if _, ok := e.Header.Get(LastModified); !ok && !e.Modified.IsZero() {
		h = append(h, feed.Field{Name: LastModified, Value: e.Modified.UTC().Format(httpDate)})
	}
	if _, ok := e.Header.Get(OperationType); !ok && e.Op != "" {
		h = append(h, feed.Field{Name: OperationType, Value: "http-equiv=" + string(e.Op)})
	}
	if feedName != "" {
		h = append(h, feed.Field{Name: FeedName, Value: feedName})
	}
	if e.Page != "" {
		h = append(h, feed.Field{Name: Page, Value: e.Page})
	}
	if e.Mark != "" {
		h = append(h, feed.Field{Name: Mark, Value: e.Mark})
	}
	return h
}

// reserved says whether a header of that name cannot travel under its own name.
// A NATS server obeys Nats-Rollup, which would purge a stream, and its kin. A
// NATS client takes a message without a body that has a Status for word from
// the server, and a KV-Operation for the mark of a deleted key.
func reserved(name string) bool {
	// This is asked of every header of every entity, and nearly all of them
	// start with another letter.
	if name == "" || !strings.ContainsRune("nNfFsSkK", rune(name[0])) {
		return false
	}
	return hasPrefixFold(name, natsServer) || hasPrefixFold(name, ours) ||
		strings.EqualFold(name, "Status") || strings.EqualFold(name, "KV-Operation")
}

// Entity is the way back from [Header]: the entity that a message carries.
// What the bus and feedbridge added to its headers is left out, but for a
// Content-ID, Last-Modified and Operation-Type that the feed did not have. ID,
// Modified and Op are read from these and stay zero where they are missing; it
// is an error if one cannot be read.
func Entity(h feed.Header, body []byte) (feed.Entity, error) {
	e := feed.Entity{Body: body, Header: make(feed.Header, 0, len(h))}
	for _, f := range h {
		switch {
		case hasPrefixFold(f.Name, Escape):
			f.Name = f.Name[len(Escape):]
		case strings.EqualFold(f.Name, Page):
			e.Page = f.Value
			continue
		case strings.EqualFold(f.Name, Mark):
			e.Mark = f.Value
			continue
		case hasPrefixFold(f.Name, natsServer) || hasPrefixFold(f.Name, ours):
			continue
		}
		e.Header = append(e.Header, f)
	}
	e.ID, _ = e.Header.Get(ContentID)
	if v, ok := e.Header.Get(OperationType); ok {
		var err error
		if e.Op, err = operation(v); err != nil {
			return feed.Entity{}, fmt.Errorf("message %q: %w", e.ID, err)
		}
	}
	if v, ok := e.Header.Get(LastModified); ok {
		var err error
		if e.Modified, err = date(v); err != nil {
			return feed.Entity{}, fmt.Errorf("message %q: %w", e.ID, err)
		}
	}
	return e, nil
}

func operation(v string) (feed.Operation, error) {
	name := strings.TrimSpace(v)
	if hasPrefixFold(name, "http-equiv=") {
		name = strings.TrimSpace(name[len("http-equiv="):])
	}
	switch op := feed.Operation(strings.ToUpper(name)); op {
	case feed.Put, feed.Patch, feed.Delete:
		return op, nil
	}
	return "", fmt.Errorf("%s %q is not PUT, PATCH or DELETE", OperationType, v)
}

// dates are the forms of time that feeds use. The day of the month may have one
// digit in each, and the day of the week is not compared with the date.
var dates = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT",
	"Mon, 2 Jan 2006 15:04:05 -0700",
	"Mon, 2 Jan 2006 15:04:05 MST",
	"Monday, 2-Jan-06 15:04:05 MST",
	time.ANSIC,
	time.RFC3339Nano,
}

func date(v string) (time.Time, error) {
	for _, layout := range dates {
		if t, err := time.Parse(layout, strings.TrimSpace(v)); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %q is not a date", LastModified, v)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

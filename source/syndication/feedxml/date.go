package feedxml

import (
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/message"
)

// Date is a date of a document.
type Date struct {
	// Time is in UTC; zero if there is no date or it cannot be read. It is never
	// guessed.
	Time time.Time
	// Raw is the date as written, and From the local name of the element that
	// it was written in.
	Raw, From string
}

// keepBetter replaces a date by one from an element of higher rank.
func (l *violationLog) keepBetter(at *Date, had *int, rank int, from string, content []byte) {
	if rank <= *had {
		return
	}
	d := l.parseDate(strings.Clone(from), plainText(content))
	// An unreadable date is kept until there is another.
	if !d.Time.IsZero() || at.Raw == "" {
		*at = d
		if !d.Time.IsZero() {
			*had = rank
		}
	}
}

// parseDate parses a date, and reports one that it cannot parse.
func (l *violationLog) parseDate(from, raw string) Date {
	raw = trimSpace(raw)
	if raw == "" {
		return Date{}
	}
	t, _, ok := message.ParseDate(raw)
	if !ok {
		l.violationf(kindBadDate, "%s is no date: %s", Excerpt(from), Excerpt(raw))
		raw = strings.Clone(clipBytes(raw, longestDate))
	}
	return Date{Time: t, Raw: raw, From: from}
}

// updateRank ranks the elements that can have the time of the last change; 0 for
// others.
func updateRank(in space, local string) int {
	switch {
	case in == atom && (local == "updated" || local == "modified"):
		return 3
	case in == dcterms && local == "modified":
		return 2
	case in == dc && local == "date":
		return 1
	}
	return 0
}

func publishRank(in space, local string, isOwn bool) int {
	switch {
	case in == atom && (local == "published" || local == "issued"), isOwn && local == "pubDate":
		return 2
	case in == atom && local == "created":
		return 1
	}
	return 0
}

// Order is the order of the entries of a document by their dates. Atom gives the order
// of entries no meaning, and publishers use both.
type Order string

// The orders. Dates that are all equal, missing or unreadable have none.
const (
	NoOrder     Order = ""
	NewestFirst Order = "newest_first"
	OldestFirst Order = "oldest_first"
	Mixed       Order = "mixed"
)

// dateOrder determines the order of entries from their dates.
type dateOrder struct{ updated, published dateRun }

func (o *dateOrder) addDates(updated, published Date) {
	o.updated.addDate(updated.Time)
	o.published.addDate(published.Time)
}

type dateRun struct {
	last     time.Time
	up, down int // the entries that are newer, or older, than the one before them
}

func (d *dateRun) addDate(t time.Time) {
	if t.IsZero() {
		return
	}
	switch {
	case d.last.IsZero():
	case t.After(d.last):
		d.up++
	case t.Before(d.last):
		d.down++
	}
	d.last = t
}

func (d *dateRun) dateOrder() Order {
	switch {
	case d.up > 0 && d.down > 0:
		return Mixed
	case d.up > 0:
		return OldestFirst
	case d.down > 0:
		return NewestFirst
	}
	return NoOrder
}

// mainOrder is dateOrder without the dates that are out of order, if they are less than a quarter:
// publishers pin items to the top, and change dates.
func (d *dateRun) mainOrder() Order {
	switch {
	case d.up > 3*d.down:
		return OldestFirst
	case d.down > 3*d.up:
		return NewestFirst
	}
	return d.dateOrder()
}

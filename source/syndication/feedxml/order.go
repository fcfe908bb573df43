package feedxml

import "time"

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
	up, down bool
}

func (d *dateRun) addDate(t time.Time) {
	if t.IsZero() {
		return
	}
	if !d.last.IsZero() {
		d.up = d.up || t.After(d.last)
		d.down = d.down || t.Before(d.last)
	}
	d.last = t
}

func (d *dateRun) dateOrder() Order {
	switch {
	case d.up && d.down:
		return Mixed
	case d.up:
		return OldestFirst
	case d.down:
		return NewestFirst
	}
	return NoOrder
}

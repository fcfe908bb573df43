package httpfeed

import "github.com/feedbridge/feedbridge/feed"

// The kinds of violation of a feed. They do not stop the reading.
const (
	kindRepeatedEvent    = "repeated_event"
	kindBadVersion       = "invalid_specversion"
	kindBadTime          = "invalid_event_time"
	kindTwoBodies        = "data_and_data_base64"
	kindRepeatedMember   = "repeated_event_member"
	kindBadAttributeName = "invalid_attribute_name"
	kindInvalidText      = "invalid_event_text"
)

// mostViolations is the maximum number of violations of a batch in memory.
const mostViolations = 100

type violations struct {
	page string
	list []feed.Violation
}

func (v *violations) add(kind, format string, args ...any) {
	if len(v.list) < mostViolations {
		v.list = append(v.list, feed.NewViolation(kind, v.page, format, args...))
	}
}

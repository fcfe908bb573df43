package feedxml

import "github.com/feedbridge/feedbridge/feed"

// The kinds of violation in a document. They do not stop the reading.
const (
	NotWellFormed        = "not_well_formed" // repaired by a lenient reader
	kindUndefinedEntity  = "undefined_entity"
	UndeclaredPrefix     = "undeclared_prefix"
	kindMissingNamespace = "missing_namespace" // of Atom
	kindCharsetMismatch  = "charset_mismatch"
	kindLateDeclaration  = "late_xml_declaration"
	kindBadDate          = "invalid_date"
	kindBadHref          = "invalid_link"
	kindBadFlag          = "invalid_flag"
	kindBadHint          = "invalid_polling_hint"
	kindWeakID           = "weak_identity"
	kindLongID           = "long_id"
	kindTooManyLinks     = "too_many_links"
	kindBadTombstone     = "invalid_tombstone"
	kindExpired          = "feed_expired"    // a JSON Feed
	kindHubs             = "hubs_not_used"   // of a JSON Feed
	kindRepeatedMember   = "repeated_member" // of JSON
	kindInvalidText      = "invalid_text"    // of JSON
)

// mostViolations is the maximum number of violations in memory.
const mostViolations = 100

// violationLog collects violations, which do not stop the reading.
type violationLog struct {
	page string // the URL of the document
	list []feed.Violation
}

func (l *violationLog) violationf(kind, format string, args ...any) {
	if len(l.list) < mostViolations {
		l.list = append(l.list, feed.NewViolation(kind, l.page, format, args...))
	}
}

// Violations returns the violations since its last call. They do not stop the reading.
// It keeps the first hundred.
func (l *violationLog) Violations() []feed.Violation {
	list := l.list
	l.list = nil
	return list
}

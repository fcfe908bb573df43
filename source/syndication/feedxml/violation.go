package feedxml

import "github.com/feedbridge/feedbridge/feed"

// The kinds of violation in a document. They do not stop the reading.
const (
	NotWellFormed    = "not_well_formed" // repaired by a lenient reader
	UndefinedEntity  = "undefined_entity"
	UndeclaredPrefix = "undeclared_prefix"
	MissingNamespace = "missing_namespace" // of Atom
	CharsetMismatch  = "charset_mismatch"
	LateDeclaration  = "late_xml_declaration"
	BadDate          = "invalid_date"
	BadHref          = "invalid_link"
	BadFlag          = "invalid_flag"
	BadHint          = "invalid_polling_hint"
	RepeatedFlag     = "repeated_flag"
	WeakID           = "weak_identity"
	LongID           = "long_id"
	TooManyLinks     = "too_many_links"
	MissingRef       = "missing_ref"
	MissingWhen      = "missing_when"
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

// takeAll returns the collected violations, and removes them.
func (l *violationLog) takeAll() []feed.Violation {
	list := l.list
	l.list = nil
	return list
}

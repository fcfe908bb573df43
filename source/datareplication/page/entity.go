package page

import (
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// NewEntity reads an entity out of a part of a page. index is the part's place
// on the page, from 0. All headers are kept as they are; of those that the
// entity's fields are read from, the first of a name counts.
//
// An entity without a Content-ID is refused and gets no made-up one: the ID is
// what a repetition is told by.
func NewEntity(p Part, page string, index int) (feed.Entity, []feed.Violation, error) {
	f := ReadFields(p)
	return f.Entity(p, page, index)
}

func (f *Fields) Entity(p Part, page string, index int) (feed.Entity, []feed.Violation, error) {
	refuse := func(kind, what, value string) (feed.Entity, []feed.Violation, error) {
		return feed.Entity{}, nil, broken(kind, page, "entity %d, at byte %d of the page, %s%s", index, p.Offset, what, excerpt(value))
	}
	if f.ContentType == "" {
		return refuse(MissingEntityType, "has no Content-Type", "")
	}
	if f.Modified == "" {
		return refuse(MissingEntityTime, "has no Last-Modified", "")
	}
	modified, ok, weekdayWrong := parseDate(f.Modified)
	if !ok {
		return refuse(BadEntityTime, "has a Last-Modified that is no HTTP date: ", f.Modified)
	}
	if f.ID == "" {
		return refuse(MissingID, "has no Content-ID", "")
	}
	if f.Operation == "" {
		return refuse(MissingOperation, "has no Operation-Type", "")
	}
	op, ok := message.ParseOperation(f.Operation)
	if !ok {
		return refuse(BadOperation, "has an Operation-Type that is not PUT, PATCH or DELETE: ", f.Operation)
	}

	var violations []feed.Violation
	if weekdayWrong {
		violations = append(violations, violation(WrongWeekday, page, "entity %q has a Last-Modified with the wrong weekday: %s", excerpt(f.ID), excerpt(f.Modified)))
	}
	if f.wrongLength != nil {
		violations = append(violations, violation(LengthMismatch, page, "entity %q has %d bytes and a Content-Length of %q", excerpt(f.ID), len(p.Body), excerpt(f.wrongLength.Value)))
	}
	if f.encoding != nil {
		violations = append(violations, violation(TransferEncoding, page, "entity %q has the Content-Transfer-Encoding %s; its body is passed on undecoded", excerpt(f.ID), f.encoding.Value))
	}
	return feed.Entity{ID: f.ID, Op: op, Modified: modified, Header: p.Header, Body: p.Body, Page: page}, violations, nil
}

// Fields are the fields that matter to an entity.
type Fields struct {
	// The first field of each name; "" if it is missing or has no value.
	ContentType, Modified, ID, Operation string
	// wrongLength is a Content-Length that is not the body's. Parts end at
	// their delimiter, whatever it says.
	wrongLength *feed.Field
	// encoding is a Content-Transfer-Encoding that a mail program would undo.
	encoding *feed.Field
}

func ReadFields(p Part) (f Fields) {
	first := func(at *string, value string) {
		if *at == "" {
			*at = value
		}
	}
	for i := range p.Header {
		field := &p.Header[i]
		switch {
		case isNamed(field.Name, message.ContentID):
			first(&f.ID, field.Value)
		case isNamed(field.Name, message.ContentType):
			first(&f.ContentType, field.Value)
		case isNamed(field.Name, message.LastModified):
			first(&f.Modified, field.Value)
		case isNamed(field.Name, message.OperationType):
			first(&f.Operation, field.Value)
		case isNamed(field.Name, "Content-Length"):
			if number(field.Value) != len(p.Body) {
				f.wrongLength = field
			}
		case isNamed(field.Name, "Content-Transfer-Encoding"):
			if isNamed(field.Value, "base64") || isNamed(field.Value, "quoted-printable") {
				f.encoding = field
			}
		}
	}
	return f
}

// isNamed says whether a name, in any case, is the one wanted. Few names are of
// the same length, and most of those have the usual case, so a comparison
// without case is rare.
func isNamed(name, want string) bool {
	return len(name) == len(want) && (name == want || strings.EqualFold(name, want))
}

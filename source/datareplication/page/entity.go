package page

import (
	"cmp"
	"strconv"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/message"
)

// NewEntity returns the entity of a part. The URL of the page and the index of the part on
// it, from 0, are used in errors and violations; the entity has the URL, too. All headers
// are kept unchanged. If a header is repeated, the first one that is not empty counts.
//
// An entity without a Content-ID is refused: duplicates are detected by it, so it is never
// generated. Content-Type, Last-Modified and Operation-Type are required, too. An error
// matches [feed.ErrPermanent] and [feed.Violation].
func NewEntity(p Part, page string, index int) (feed.Entity, []feed.Violation, error) {
	f := ReadFields(p)
	return f.Entity(p, page, index)
}

// Entity is [NewEntity] for a part whose fields are f.
func (f *Fields) Entity(p Part, page string, index int) (feed.Entity, []feed.Violation, error) {
	refuse := func(kind, what, value string) (feed.Entity, []feed.Violation, error) {
		return feed.Entity{}, nil, newBreach(kind, page, "entity %d, at byte %d of the page, %s%s", index, p.Offset, what, safetext.Excerpt(value))
	}
	if f.ContentType == "" {
		return refuse(kindMissingEntityType, "has no Content-Type", "")
	}
	if f.Modified == "" {
		return refuse(MissingEntityTime, "has no Last-Modified", "")
	}
	modified, ok, weekdayWrong := parseDate(f.Modified)
	if !ok {
		return refuse(kindBadEntityTime, "has a Last-Modified that is not an HTTP date:  ", f.Modified)
	}
	if f.ID == "" {
		return refuse(kindMissingID, "has no Content-ID", "")
	}
	if f.Operation == "" {
		return refuse(kindMissingOperation, "has no Operation-Type", "")
	}
	op, ok := message.ParseOperation(f.Operation)
	if !ok {
		return refuse(kindBadOperation, "has an Operation-Type that is not PUT, PATCH or DELETE: ", f.Operation)
	}

	var violations []feed.Violation
	if weekdayWrong {
		violations = append(violations, feed.NewViolation(kindWrongWeekday, page, "entity %q has a Last-Modified with the wrong weekday: %s", safetext.Excerpt(f.ID), safetext.Excerpt(f.Modified)))
	}
	if f.wrongLength != nil {
		violations = append(violations, feed.NewViolation(kindLengthMismatch, page, "entity %q has %d bytes and a Content-Length of %q", safetext.Excerpt(f.ID), len(p.Body), safetext.Excerpt(f.wrongLength.Value)))
	}
	if f.encoding != nil {
		violations = append(violations, feed.NewViolation(kindTransferEncoding, page, "entity %q has the Content-Transfer-Encoding %s; its body is passed on undecoded", safetext.Excerpt(f.ID), f.encoding.Value))
	}
	return feed.Entity{ID: f.ID, Op: op, Modified: modified, Header: p.Header, Body: p.Body, Page: page}, violations, nil
}

// Fields are the header fields of a part from which an entity is made.
type Fields struct {
	// The value of the first field of each name, or "" if it is missing or empty. They can
	// be set before Entity is called.
	ContentType, Modified, ID, Operation string
	// wrongLength is a Content-Length that differs from the length of the body. Parts end
	// at their delimiter all the same.
	wrongLength *feed.Field
	// encoding is a Content-Transfer-Encoding that a mail program would decode.
	encoding *feed.Field
}

// ReadFields returns the fields of a part.
func ReadFields(p Part) (f Fields) {
	f.ID = message.ID(p.Header)
	for i := range p.Header {
		field := &p.Header[i]
		switch {
		case message.IsNamed(field.Name, message.ContentType):
			f.ContentType = cmp.Or(f.ContentType, field.Value)
		case message.IsNamed(field.Name, message.LastModified):
			f.Modified = cmp.Or(f.Modified, field.Value)
		case message.IsNamed(field.Name, message.OperationType):
			f.Operation = cmp.Or(f.Operation, field.Value)
		case message.IsNamed(field.Name, "Content-Length"):
			if n, err := strconv.ParseUint(field.Value, 10, 63); err != nil || n != uint64(len(p.Body)) {
				f.wrongLength = field
			}
		case message.IsNamed(field.Name, "Content-Transfer-Encoding"):
			if message.IsNamed(field.Value, "base64") || message.IsNamed(field.Value, "quoted-printable") {
				f.encoding = field
			}
		}
	}
	return f
}

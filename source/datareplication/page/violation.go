package page

import (
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
)

// The kinds of violation of the specification that one page can have. Those of the first
// group are errors that match [feed.ErrPermanent]. Those of the second group are returned
// together with the result.
const (
	MissingSelf          = "missing_self_link"
	BadLink              = "bad_link"
	MissingModified      = "missing_last_modified"
	BadModified          = "invalid_last_modified"
	MissingContentType   = "missing_content_type"
	BadContentType       = "invalid_content_type"
	MissingBoundary      = "missing_boundary"
	MissingEntityType    = "missing_content_type_in_entity"
	MissingEntityTime    = "missing_last_modified_in_entity"
	BadEntityTime        = "invalid_last_modified_in_entity"
	MissingID            = "missing_content_id"
	MissingOperation     = "missing_operation_type"
	BadOperation         = "invalid_operation_type"
	BadPart              = "invalid_multipart"
	BadPartHeader        = "invalid_part_header"
	UndecodablePart      = "undecodable_part_header"
	EntityTooLarge       = "entity_too_large"
	EntityHeaderTooLarge = "entity_header_too_large"

	RepeatedLink     = "repeated_link"
	WrongWeekday     = "wrong_weekday"
	TransferEncoding = "content_transfer_encoding"
	LengthMismatch   = "content_length_mismatch"
)

// newBreach returns the error about a breach that stops the reading, with its cure.
func newBreach(kind, page, format string, args ...any) error {
	cure := "nothing after it is published until the provider has fixed it"
	switch kind {
	case EntityTooLarge:
		cure = "raise limits.entity if the provider really has entities of that size"
	case BadContentType, MissingContentType, MissingBoundary, MissingSelf:
		cure = "check that the url is a feed's; if it is, ask the provider to fix it"
	}
	v := feed.NewViolation(kind, page, format, args...)
	return feed.Permanent(fmt.Errorf("%w; %s", &v, cure))
}

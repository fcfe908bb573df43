package page

import (
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
)

// The kinds of violation of the specification that one page can have. Those of the first
// group are errors that match [feed.ErrPermanent]. Those of the second group are returned
// together with the result.
const (
	kindMissingSelf          = "missing_self_link"
	kindBadLink              = "bad_link"
	kindMissingModified      = "missing_last_modified"
	kindBadModified          = "invalid_last_modified"
	kindMissingContentType   = "missing_content_type"
	kindBadContentType       = "invalid_content_type"
	kindMissingBoundary      = "missing_boundary"
	kindMissingEntityType    = "missing_content_type_in_entity"
	MissingEntityTime        = "missing_last_modified_in_entity"
	kindBadEntityTime        = "invalid_last_modified_in_entity"
	kindMissingID            = "missing_content_id"
	kindMissingOperation     = "missing_operation_type"
	kindBadOperation         = "invalid_operation_type"
	kindBadPart              = "invalid_multipart"
	kindBadPartHeader        = "invalid_part_header"
	kindUndecodablePart      = "undecodable_part_header"
	kindEntityTooLarge       = "entity_too_large"
	kindEntityHeaderTooLarge = "entity_header_too_large"

	kindRepeatedLink     = "repeated_link"
	kindWrongWeekday     = "wrong_weekday"
	kindTransferEncoding = "content_transfer_encoding"
	kindLengthMismatch   = "content_length_mismatch"
)

// newBreach returns the error about a breach that stops the reading, with its cure.
func newBreach(kind, page, format string, args ...any) error {
	cure := "nothing after it is published until the provider has fixed it"
	switch kind {
	case kindEntityTooLarge:
		cure = "raise limits.entity if the provider really has entities of that size"
	case kindBadContentType, kindMissingContentType, kindMissingBoundary, kindMissingSelf:
		cure = "check that the url is a feed's; if it is, ask the provider to fix it"
	}
	v := feed.NewViolation(kind, page, format, args...)
	return feed.Permanent(fmt.Errorf("%w; %s", &v, cure))
}

package conformance

import (
	"errors"
	"fmt"
)

// The checks of [Documents], of a [Prober] and of [Pages.Compare].
const (
	checkHead        = "head"
	checkDate        = "date"
	checkETag        = "etag"
	checkSince       = "since"
	checkConditional = "conditional"
	checkCache       = "cache"
	checkClosed      = "closed"
	checkOpen        = "open"
	checkURLs        = "urls"
	checkNext        = "next"
	checkCurrent     = "current"
	checkFlag        = "flag"
	checkMembers     = "members"
	checkItemIDs     = "item ids"
	checkContent     = "content"
	checkMedia       = "media type"
	checkPosition    = "position"
	checkTypes       = "types"
	checkElements    = "elements"
	checkAuthor      = "author"
	checkLinks       = "links"
	checkDates       = "dates"
	checkAlternates  = "alternate links"
	checkClosing     = "closing delimiter"
	checkWellFormed  = "well-formed"
)

// Checks are the results of checks by their names.
type Checks map[string]*check

type check struct {
	tested int // how many times
	failed Violations
	reason string // why it was not tested
}

func (c Checks) of(name string) *check {
	if c[name] == nil {
		c[name] = new(check)
	}
	return c[name]
}

// record records the result of checks of a page: what is wrong with it, if that is not empty, or the error
// that prevented the checks.
func (c Checks) record(page, fault string, err error, names ...string) {
	for _, name := range names {
		switch check := c.of(name); {
		case err != nil:
			check.reason = ForProducers(err.Error())
		case fault != "":
			check.failed.add(Evidence{page, ForProducers(fault)})
			fallthrough
		default:
			check.tested++
		}
	}
}

func (c Checks) untested(reason string, names ...string) {
	c.record("", "", errors.New(reason), names...)
}

// NotReadAgain records why the pages were not read a second time.
func (c Checks) NotReadAgain(err error) {
	c.record("", "", fmt.Errorf("the feed could not be read again: %w", err), checkClosed, checkOpen, checkURLs)
}

// unless returns a fault, or nothing if all is well.
func unless(well bool, fault string, args ...any) string {
	if well {
		return ""
	}
	return fmt.Sprintf(fault, args...)
}

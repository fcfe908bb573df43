package page

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Header has the fields of a page's response that describe the page.
type Header struct {
	// Self, Prev and Next are absolute URLs. A page has a self link; without
	// prev it is the oldest page, without next the latest.
	Self, Prev, Next string
	// Modified is the page's Last-Modified, in UTC and whole seconds.
	Modified time.Time
	// Boundary separates the page's parts. It is empty if no body was wanted.
	Boundary string
}

// ParseHeader parses the header of the response for a page. base is its URL after all
// redirects. For the answer to a HEAD request, which has no body, wantBody is false, and
// Content-Type is not checked.
//
// A page without a self link is refused, also at the entry point, because a cursor could
// not name it. Links follow the rules of [ParseLinks]. An error matches
// [feed.ErrPermanent] and [feed.Violation].
func ParseHeader(h http.Header, base *url.URL, wantBody bool) (Header, []feed.Violation, error) {
	page := Name(base)
	found, violations, err := ParseLinks(h.Values("Link"), base)
	if err != nil {
		return Header{}, nil, err
	}
	if found.Self == "" {
		// An error page or a login page with the status 200 has no links, and its
		// Content-Type explains more than the missing link.
		if value := h.Get("Content-Type"); value != "" && !isMultipart(value) {
			hint := ""
			if strings.Contains(strings.ToLower(value), "xml") {
				hint = "; if the feed is Atom or RSS by now, set its format to auto, and start it over with 'feedbridge checkpoint reset'"
			}
			return Header{}, nil, newBreach(kindBadContentType, page, "the answer is %q and not a page of a feed%s", safetext.Excerpt(value), hint)
		}
		return Header{}, nil, newBreach(kindMissingSelf, page, "the page has no Link with rel=self")
	}
	header := Header{Self: found.Self, Prev: found.Prev, Next: found.Next}

	value := h.Get("Last-Modified")
	if value == "" {
		return Header{}, nil, newBreach(kindMissingModified, page, "the page has no Last-Modified")
	}
	modified, ok, weekdayWrong := parseDate(value)
	if !ok {
		return Header{}, nil, newBreach(kindBadModified, page, "the page's Last-Modified %q is not an HTTP date", safetext.Excerpt(value))
	}
	if weekdayWrong {
		violations = append(violations, feed.NewViolation(kindWrongWeekday, page, "the page's Last-Modified %q has the wrong weekday", safetext.Excerpt(value)))
	}
	header.Modified = modified

	if wantBody {
		if header.Boundary, err = ParseBoundary(h.Get("Content-Type"), page); err != nil {
			return Header{}, nil, err
		}
	}
	return header, violations, nil
}

// Name returns the URL of a page as errors and violations name it: without user info.
func Name(u *url.URL) string {
	shown := *u
	shown.User = nil
	return shown.String()
}

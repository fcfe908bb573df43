package page

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Header is what the header of a page says about the page.
type Header struct {
	// Self, Prev and Next are absolute URLs. A page has a self link; without
	// prev it is the oldest page, without next the latest.
	Self, Prev, Next string
	// Modified is the page's Last-Modified, in UTC and whole seconds.
	Modified time.Time
	// Boundary separates the page's parts; "" for the answer to a HEAD.
	Boundary string
}

// ParseHeader reads the header of a page that was got from base, which is
// the URL after all redirects. The answer to a HEAD request has no body, so
// wantBody is false and nothing is asked of its Content-Type.
//
// A page without a self link is refused, entry point or not: what it is cannot
// be told apart from another page, so no cursor could name it.
func ParseHeader(h http.Header, base *url.URL, wantBody bool) (Header, []feed.Violation, error) {
	page := Name(base)
	found, violations, err := ParseLinks(h.Values("Link"), base)
	if err != nil {
		return Header{}, nil, err
	}
	if found.Self == "" {
		// An error page or a login page with the status 200 has no links, and
		// what it is says more than what it lacks.
		if value := h.Get("Content-Type"); value != "" && !isMultipart(value) {
			hint := ""
			if strings.Contains(strings.ToLower(value), "xml") {
				hint = "; if the feed is Atom or RSS by now, set its format to auto, and start it over with 'feedbridge checkpoint reset'"
			}
			return Header{}, nil, broken(BadContentType, page, "the answer is %q and not a page of a feed%s", excerpt(value), hint)
		}
		return Header{}, nil, broken(MissingSelf, page, "the page has no Link with rel=self")
	}
	header := Header{Self: found.Self, Prev: found.Prev, Next: found.Next}

	value := h.Get("Last-Modified")
	if value == "" {
		return Header{}, nil, broken(MissingModified, page, "the page has no Last-Modified")
	}
	modified, ok, weekdayWrong := parseDate(value)
	if !ok {
		return Header{}, nil, broken(BadModified, page, "the page's Last-Modified %q is no HTTP date", excerpt(value))
	}
	if weekdayWrong {
		violations = append(violations, violation(WrongWeekday, page, "the page's Last-Modified %q has the wrong weekday", excerpt(value)))
	}
	header.Modified = modified

	if wantBody {
		if header.Boundary, err = ParseBoundary(h.Get("Content-Type"), page); err != nil {
			return Header{}, nil, err
		}
	}
	return header, violations, nil
}

// Name is how a page shows in errors and violations: its URL without user
// info.
func Name(u *url.URL) string {
	shown := *u
	shown.User = nil
	return shown.String()
}

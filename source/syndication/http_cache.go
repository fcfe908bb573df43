package syndication

import (
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// askedToWait returns the time that upstream asks to wait before the next request: from
// the header of the answer, or else from the document; 0 if neither asks, or if the
// policy is to ignore it.
func askedToWait(policy HintPolicy, resp *source.Response, h feedxml.Hints, now time.Time) time.Duration {
	if policy == "ignore" {
		return 0
	}
	wait := cacheLifetime(resp)
	if wait == 0 {
		wait = time.Duration(h.Period) * time.Second
	}
	return max(wait, skipFor(h, now))
}

// cacheLifetime returns the freshness lifetime of an answer (RFC 9111, section 4.2).
func cacheLifetime(resp *source.Response) time.Duration {
	age, _ := strconv.Atoi(strings.TrimSpace(resp.Header.Get("Age")))
	for _, field := range resp.Header.Values("Cache-Control") {
		for part := range strings.SplitSeq(field, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch strings.ToLower(name) {
			case "no-cache", "no-store":
				return 0
			case "max-age":
				n, err := strconv.Atoi(strings.Trim(value, `" `))
				if err != nil || n < 0 {
					return 0
				}
				return max(0, time.Duration(min(n, 1<<30)-max(age, 0))*time.Second)
			}
		}
	}
	// A number, which some servers send, is no date (RFC 9111, section 5.3), and not a year.
	value := resp.Header.Get("Expires")
	if expires, _, ok := message.ParseDate(value); ok && !isNumber(value) {
		return max(0, expires.Sub(resp.Date)-time.Duration(max(age, 0))*time.Second)
	}
	return 0
}

// skipFor returns the time until the end of the hours and days in which the feed does
// not change; 0 outside of them.
func skipFor(h feedxml.Hints, now time.Time) time.Duration {
	at := now.UTC()
	for range 24 * 7 {
		if h.SkipHours&(1<<at.Hour()) == 0 && h.SkipDays&(1<<at.Weekday()) == 0 {
			return max(0, at.Sub(now))
		}
		at = at.Truncate(time.Hour).Add(time.Hour)
	}
	return 0 // every hour is excluded, which must be a mistake
}

// recordValidators records the validators and the hints of the published document.
func (l *lastDocument) recordValidators(d *document) {
	l.At, l.Hints = hashOf(d.url), d.meta.Hints
	l.ETag = validator(d.response.Header.Get("ETag"))
	l.Modified = validator(d.response.Header.Get("Last-Modified"))
	// A document that was written this second may be written again within it
	// (RFC 9110, section 8.8.2.2).
	if at, _, ok := message.ParseDate(l.Modified); ok && l.ETag == "" && d.response.Date.Sub(at) < 2*time.Second {
		l.Modified = ""
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return err == nil
}

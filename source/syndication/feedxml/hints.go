package feedxml

import (
	"strconv"
	"strings"
	"time"
)

// longestHint is the longest wait that a hint can ask for. Longer waits are mistakes of
// the publisher.
const longestHint = 366 * 24 * time.Hour

// readHint reads an element of RSS with polling hints.
func (r *metaReader) readHint(b []byte, el *element, local string, content []byte) {
	h := &r.meta.Hints
	switch local {
	case "ttl":
		if minutes, ok := r.hintNumber(local, plainText(content)); ok && minutes > 0 && !r.hasTTL {
			h.Period, r.hasTTL = int64(min(time.Duration(minutes)*time.Minute, longestHint)/time.Second), true
		}
	case "skipHours":
		eachChild(b, el, "hour", func(raw string) {
			// Some versions count from 1 to 24, where others do from 0 to 23.
			if hour, ok := r.hintNumber("hour", raw); ok && hour <= 24 {
				h.SkipHours |= 1 << (hour % 24)
			}
		})
	case "skipDays":
		eachChild(b, el, "day", func(raw string) {
			for day := time.Sunday; day <= time.Saturday; day++ {
				if strings.EqualFold(raw, day.String()) {
					h.SkipDays |= 1 << day
					return
				}
			}
			r.violationf(kindBadHint, "skipDays has an unknown day: %s", Excerpt(raw))
		})
	}
}

// eachChild calls f with the text of the children of an element of b that have the
// local name.
func eachChild(b []byte, el *element, local string, f func(text string)) {
	for _, c := range el.children {
		if _, name := cutPrefix(b[c.start+1 : c.nameEnd]); string(name) == local {
			f(plainText(b[c.tagEnd:c.close]))
		}
	}
}

// hintNumber parses a number of at most nine decimal digits.
func (r *metaReader) hintNumber(local, raw string) (int, bool) {
	n, err := strconv.ParseUint(raw, 10, 32)
	if err != nil || len(raw) > 9 {
		r.violationf(kindBadHint, "%s is not a number: %s", local, Excerpt(raw))
		return 0, false
	}
	return int(n), true
}

// readSyndication reads an element of the syndication module of RSS. The module
// has defaults: an update once a day.
func (r *metaReader) readSyndication(local string, content []byte) {
	raw := plainText(content)
	switch local {
	case "updatePeriod":
		r.syPeriod = map[string]time.Duration{
			"hourly": time.Hour, "daily": 24 * time.Hour, "weekly": 7 * 24 * time.Hour,
			"monthly": 30 * 24 * time.Hour, "yearly": 365 * 24 * time.Hour,
		}[strings.ToLower(raw)]
		if r.syPeriod == 0 {
			r.violationf(kindBadHint, "updatePeriod is no period: %s", Excerpt(raw))
			return
		}
	case "updateFrequency":
		n, ok := r.hintNumber(local, raw)
		if !ok || n == 0 {
			return
		}
		r.syFrequency = n
	default:
		return
	}
	period := r.syPeriod
	if period == 0 {
		period = 24 * time.Hour
	}
	if !r.hasTTL {
		r.meta.Hints.Period = int64(period / time.Duration(max(r.syFrequency, 1)) / time.Second)
	}
}

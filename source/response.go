package source

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/message"
)

const (
	// maxWait bounds a Retry-After, so that a typing error does not stop a feed for
	// good.
	maxWait = time.Hour
	// maxExcerpt limits the part of an error's body that is shown, in characters.
	maxExcerpt = 200
)

// excerptBody returns the start of a text that a server wrote, without the secrets of
// URLs, and without those that the server was sent and may have repeated.
func excerptBody(redact *safetext.Redactor, text string, secrets ...string) string {
	// Not the end of it: a secret may be cut in half there.
	return redact.Excerpt(credential.Mask(text, secrets...), maxExcerpt)
}

// askedWait returns the time that an answer asks to wait before the next request, at most maxWait, and
// whether it refuses the request because there were too many. Some servers do that with 403.
func askedWait(answer *http.Response, date time.Time) (wait time.Duration, refused bool) {
	wait, renewed := retryAfter(answer.Header, date), time.Duration(0)
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusForbidden:
		renewed, refused = usedQuota(answer, date)
	}
	if wait == 0 {
		wait = renewed
	}
	return wait, refused
}

// retryAfter parses Retry-After in both its forms, a date relative to the server's own
// clock. An invalid value is no wait.
func retryAfter(header http.Header, date time.Time) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") != "" {
		if at, _, ok := message.ParseDate(value); ok {
			return min(max(at.Sub(date), 0), maxWait)
		}
		return 0
	}
	return parseSeconds(value)
}

// parseSeconds parses a number of seconds. A negative one, and anything else, is no wait.
func parseSeconds(value string) time.Duration {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || !(seconds > 0) { // not a number is not either
		return 0
	}
	return time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second))
}

// usedQuota reports whether the answer has used up a quota, as 429 always shows, and returns when that is renewed.
func usedQuota(answer *http.Response, date time.Time) (renewed time.Duration, used bool) {
	used = answer.StatusCode == http.StatusTooManyRequests
	remaining, reset := answer.Header.Get("X-RateLimit-Remaining"), answer.Header.Get("X-RateLimit-Reset")
	if left, err := strconv.ParseFloat(remaining, 64); err == nil && left <= 0 || remaining == "" && used {
		// A number of seconds, or with some servers a time.
		if at, err := strconv.ParseInt(reset, 10, 64); err == nil && at > 1e9 {
			reset = strconv.FormatInt(at-date.Unix(), 10)
		}
		return parseSeconds(reset), true
	}
	return 0, used
}

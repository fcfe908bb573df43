package source

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/safetext"
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
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds > int(maxWait/time.Second) { // the only error left is too many digits
		return maxWait
	}
	return time.Duration(seconds) * time.Second
}

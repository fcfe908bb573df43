package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
)

var (
	// errGone reports that a page was there, or may have been, and is not any more.
	errGone = errors.New("the page is gone")
	// errMoved reports that retention took messages, or the topic was recreated, each
	// time that a page was read.
	errMoved = errors.New("the topic changes faster than it can be read")
	// errClash reports that an entity contains the page's boundary.
	errClash = errors.New("an entity has the boundary in it")
	// errNoPage reports that there has never been a page.
	errNoPage = errors.New("there is no such page")
	// errFull reports that the memory for pages is full of pages that are being sent, so
	// that a document that must be held to be sent cannot be.
	errFull = errors.New("the memory for pages is full of pages that are being sent")
	// errTooLarge reports that a document does not fit into the memory for pages.
	errTooLarge = errors.New("a document is too large to be held in memory: set a smaller page_size")
	// errCut reports that messages vanished from a page that was being sent. The client
	// detects that the page is incomplete.
	errCut = errors.New("messages of the page were deleted")
)

// answer is an error with a status and a sentence for the client.
type answer struct {
	status   int
	sentence string
}

func (a *answer) Error() string { return a.sentence }

func newAnswer(status int, format string, args ...any) error {
	return &answer{status, fmt.Sprintf(format, args...)}
}

// retryAfter is the Retry-After of answers with status 503, in seconds.
const retryAfter = 5

// outage logs that a topic cannot be read, once until it can be read again.
type outage struct {
	log  *slog.Logger
	away atomic.Bool
}

// logChange records the result of reading the topic; nil means that it was read.
func (o *outage) logChange(err error) {
	switch was := o.away.Swap(err != nil); {
	case err != nil && !was:
		o.log.Warn("a served topic cannot be read", "error", err)
	case err == nil && was:
		o.log.Info("a served topic can be read again")
	}
}

package datareplication

import (
	"context"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// feedReader holds the state of a Source between calls of Next. It saves requests and
// delays reports. It has no other effect: a reader without any of it reads the same
// entities.
type feedReader struct {
	cfg   Config
	pages *pageClient
	log   *slog.Logger
	// limits bound the batch of the present call of Next.
	limits feed.Limits
	// trust is trustETag, less a random part of up to a sixth, so that the copies of a feed,
	// or many feeds that started together, do not read their pages at the same time.
	trust time.Duration

	// open is the page that is being read, if its end has not been reached.
	open *openPage
	// index holds the index of the snapshot that is being read.
	index *index
	// newestEnd has the validators of the newest page.
	newestEnd newestEnd
	// path holds the pages that the way back has passed and that have not been read.
	path path
	// trail detects next links that form a loop. It is reset if reading does not continue
	// from the last cursor.
	trail trail
	// proven is the end of a page that proves the position at the start of the next one.
	proven pageEnd
	// old counts answers that may be older than earlier ones, since the last batch.
	old finding
	// changed is the digest of the changed page that was reported last.
	changed digest
}

func (r *feedReader) closePage() {
	if r.open != nil {
		r.open.body.Close()
		r.open.parts.Close()
		r.open = nil
	}
}

// release closes the page that is kept open, those that were requested ahead, and that of the
// entry point, and drops their buffers and the index of a snapshot.
func (r *feedReader) release() {
	r.closePage()
	r.pages.client.DropHandedOver()
	r.pages.ahead.Close()
	r.index = nil
}

// trustsETag reports whether "not modified" is trusted for a page that was read in full at that
// time. The time may come from another machine, whose clock may be ahead.
func (r *feedReader) trustsETag(full time.Time) bool {
	age := time.Since(full)
	return age <= r.trust && age > -trustETag
}

// expectAfter requests the pages after p ahead, as far as they are known.
func (r *feedReader) expectAfter(ctx context.Context, p *openPage) {
	if p.Next == "" {
		r.path = path{}
		r.pages.ahead.Expect(ctx)
		return
	}
	r.pages.ahead.Expect(ctx, r.path.following(p.Next, r.pages.ahead.Number())...)
}

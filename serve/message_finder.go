package serve

import (
	"context"

	"github.com/feedbridge/feedbridge/feed"
)

// messageFinder finds the positions that have messages, and the pages that they are on. Most
// positions may have none: those of checkpoints, of other subjects and of transaction markers.
type messageFinder struct{ log Log }

// firstMessage returns the first position in [from, to) that has a message.
func (f messageFinder) firstMessage(ctx context.Context, from, to uint64) (position uint64, ok bool, err error) {
	if from >= to {
		return 0, false, nil
	}
	for r, err := range f.log.Read(ctx, from, to) {
		return r.Position, err == nil, err
	}
	return 0, false, nil
}

// newestMessage returns the position of the n-th newest message, or of the oldest one if
// there are not so many; the end of the topic if there is none. Most positions may
// have no message: those of checkpoints have none.
func (f messageFinder) newestMessage(ctx context.Context, span feed.Span, n uint64) (position uint64, err error) {
	for width := 2 * n; ; width *= 4 {
		from := span.First
		if width < span.End-span.First {
			from = span.End - width
		}
		var last []uint64 // the positions of n messages at least, if there are so many
		for r, err := range f.log.Read(ctx, from, span.End) {
			if err != nil {
				return 0, err
			}
			if last = append(last, r.Position); uint64(len(last)) >= 2*n {
				last = append(last[:0], last[uint64(len(last))-n:]...)
			}
		}
		switch found := uint64(len(last)); {
		case found >= n:
			return last[found-n], nil
		case from > span.First:
		case found > 0:
			return last[0], nil
		default:
			return span.End, nil
		}
	}
}

// nextPage returns the first page behind page k that has a message.
func (f messageFinder) nextPage(ctx context.Context, id pageID, span feed.Span) (k uint64, ok bool, err error) {
	// The message is mostly right behind the page, and reading more than necessary may
	// take long.
	for from, width := id.endPosition(), uint64(1); from < span.End; width = max(width*2, id.size) {
		to := min(from+width, span.End)
		position, ok, err := f.firstMessage(ctx, from, to)
		if ok || err != nil {
			return position / id.size, ok, err
		}
		from = to
	}
	return 0, false, nil
}

// previousPage returns the last page in front of page k that has a message.
func (f messageFinder) previousPage(ctx context.Context, id pageID, span feed.Span) (k uint64, ok bool, err error) {
	n := id.size
	low := span.First / n // no page in front of this one has any
	for high, width := id.k, uint64(1); high > low; width *= 2 {
		from := max(low, high-min(width, high))
		_, ok, err := f.firstMessage(ctx, from*n, min(high*n, span.End))
		if err != nil {
			return 0, false, err
		}
		if !ok {
			high = from
			continue
		}
		for high-from > 1 { // there is one in [from, high)
			middle := from + (high-from)/2
			_, ok, err := f.firstMessage(ctx, middle*n, min(high*n, span.End))
			if err != nil {
				return 0, false, err
			}
			if ok {
				from = middle
			} else {
				high = middle
			}
		}
		return from, true, nil
	}
	return 0, false, nil
}

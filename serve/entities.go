package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
)

// Entities returns what a reader of the feed gets who reads all of it now: from
// the oldest page that is to be had to the newest message. It calls leftOut for
// every message that pages leave out, as it is the same as one before it. It reads
// the topic by itself, not the feed's pages, and holds no more than the IDs of two
// pages.
//
// Feeds in Atom and RSS have none: their readers do not get every message, but
// the newest of each entry.
func (f *Feed) Entities(ctx context.Context, leftOut func()) (iter.Seq2[feed.Entity, error], error) {
	if f.format.linked() {
		return nil, errors.New("readers of Atom and RSS do not get every message, but the newest of each entry, so there is no order to compare; serve the topic as datareplication, too, and compare that")
	}
	newest, err := f.newest(ctx)
	if err != nil || newest == nil {
		return func(func(feed.Entity, error) bool) {}, err
	}
	defer f.memory.release(newest)
	id, span := newest.id, newest.span
	// What retention has left begins with oldest, and is read with the page in front
	// of it. The newest page is there whatever it took.
	var oldest, from uint64
	if span.First > 0 {
		from = (span.First + id.size - 1) / id.size
		oldest = from + 1
	}
	if oldest > id.k {
		oldest, from = id.k, id.k
	}
	return func(yield func(feed.Entity, error) bool) {
		k, sift := from, newSifter(id.size)
		for r, err := range f.topic.log.Read(ctx, max(id.at(from).first(), span.First), span.End) {
			if err != nil {
				yield(feed.Entity{}, fmt.Errorf("the topic: %w", err))
				return
			}
			if at := r.Position / id.size; at > k {
				front := sift.own
				if at > k+1 {
					front = summary{}
				}
				k, sift = at, newSifter(id.size)
				sift.before = front
			}
			e := f.entity(id.epoch, r, nil)
			switch fits := sift.add(&e); {
			case k < oldest:
			case !fits:
				leftOut()
			case !yield(e.read(), nil):
				return
			}
		}
	}, nil
}

// read is the entity as a reader gets it.
func (e *entity) read() feed.Entity {
	part := string(multipart{}.entity(nil, &page{}, e))
	head, _, _ := strings.Cut(part, "\r\n\r\n")
	_, head, _ = strings.Cut(head, "\r\n") // the boundary
	var header feed.Header
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		header = append(header, feed.Field{Name: name, Value: value})
	}
	return feed.Entity{ID: e.id, Op: e.op, Modified: e.modified, Header: header, Body: e.body}
}

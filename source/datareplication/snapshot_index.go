package datareplication

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const (
	// maxIndex is the size of the largest index of a snapshot, in bytes. An index is held
	// in memory, and pages are not.
	maxIndex = 16 << 20
	// longestAddress is the largest number of bytes of the URL of an index, of the URL of
	// one of its pages, and of the id of a snapshot.
	longestAddress = 8 << 10
	// startMargin is the time before the creation of a snapshot at which reading of the feed
	// starts. The times of snapshots and of entities may come from different clocks, and
	// entities are put on a page some time after their Last-Modified.
	startMargin = time.Minute
)

// index is the index of a snapshot: the list of its pages.
type index struct {
	url     string // after redirects
	id      string
	created time.Time
	// pages are the URLs of the pages as written in the index, relative to base. They are
	// resolved one at a time: with a long base, a small index would become gigabytes.
	pages []string
	base  *url.URL
	// latest is the latest possible time of creation.
	latest time.Time
}

// pageURL returns the URL of a page.
func (ix *index) pageURL(n int) (string, error) {
	ref, err := url.Parse(ix.pages[n])
	if err != nil {
		return "", newBreach(kindBadIndex, page.Name(ix.base), "page %d in the index of the snapshot is %q, which is not a URL", n, safetext.Excerpt(ix.pages[n]))
	}
	at := ix.base.ResolveReference(ref).String()
	if len(at) > longestAddress {
		return "", newBreach(kindBadIndex, page.Name(ix.base), "page %d in the index of the snapshot has a URL of %d bytes, and the limit is %d: %s", n, len(at), longestAddress, safetext.Excerpt(at))
	}
	return at, nil
}

// following returns the URLs of the pages from page n, most of them at most.
func (ix *index) following(n, most int) []string {
	var urls []string
	for i := n; i < min(n+most, len(ix.pages)); i++ {
		at, err := ix.pageURL(i)
		if err != nil {
			break // reported when it is the page's turn
		}
		urls = append(urls, at)
	}
	return urls
}

// feedStart returns the time from which the feed is read after the snapshot, in Unix seconds:
// feeds have whole seconds (case 140). If the snapshot's clock is ahead, it is not later
// than now. It is nil, the beginning of the feed, for a snapshot of the time zero without
// pages, which means that the feed had no entities yet.
func (ix *index) feedStart() *int64 {
	created := ix.created
	if created.After(ix.latest) {
		created = ix.latest
	}
	if len(ix.pages) == 0 && created.Unix() <= 0 {
		return nil
	}
	from := created.Add(-startMargin).Unix()
	return &from
}

// readIndex requests the index of a snapshot. It adds violations to seen.
func readIndex(ctx context.Context, client *source.Client, at string, seen *sightings) (*index, error) {
	resp, err := client.Do(ctx, source.Request{Method: http.MethodGet, URL: at})
	if err != nil {
		return nil, fmt.Errorf("the index of the snapshot: %w", err)
	}
	defer resp.Body.Close()
	if resp.Status == http.StatusNoContent {
		return nil, fmt.Errorf("the index of the snapshot: GET %s: %w; there may be no snapshot yet", at, errNoContent)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxIndex+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxIndex {
		return nil, newBreach(kindBadIndex, page.Name(resp.URL), "the index of the snapshot has more than %d bytes", maxIndex)
	}
	return decodeIndex(data, resp, seen)
}

// decodeIndex returns the index that is the body of a response.
func decodeIndex(data []byte, resp *source.Response, seen *sightings) (*index, error) {
	name := page.Name(resp.URL)
	var doc struct {
		ID      *string   `json:"id"`
		Created *string   `json:"createdAt"`
		Pages   []*string `json:"pages"`
	}
	err := json.Unmarshal(data, &doc)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, newBreach(kindBadIndex, name, "the answer is not the index of a snapshot: a JSON %s has the place of %s", wrong.Value, cmp.Or(wrong.Field, "the index"))
	}
	if err != nil {
		return nil, newBreach(kindBadIndex, name, "the answer, %q, is not the index of a snapshot: %v", safetext.Excerpt(resp.Header.Get("Content-Type")), err)
	}
	switch {
	case doc.ID == nil || *doc.ID == "":
		return nil, newBreach(kindBadIndex, name, "the index of the snapshot has no id")
	case len(*doc.ID) > longestAddress:
		return nil, newBreach(kindBadIndex, name, "the index of the snapshot has an id of %d bytes, and the limit is %d", len(*doc.ID), longestAddress)
	case doc.Created == nil:
		return nil, newBreach(kindBadIndex, name, "the index of the snapshot has no createdAt, so it is unknown where to continue in the feed after the snapshot")
	case doc.Pages == nil:
		return nil, newBreach(kindBadIndex, name, "the index of the snapshot has no pages; one that is empty has an empty list")
	}
	created, err := time.Parse(time.RFC3339, *doc.Created)
	if year := created.UTC().Year(); err != nil || year < 1 || year > 9999 {
		return nil, newBreach(kindBadIndex, name, "the index of the snapshot has the createdAt %q, which is not like 2026-01-01T00:00:00Z", safetext.Excerpt(*doc.Created))
	}
	ix := &index{url: resp.URL.String(), id: *doc.ID, created: created.UTC(), latest: resp.Date, base: resp.URL}
	if len(ix.url) > longestAddress {
		return nil, newBreach(kindBadIndex, name, "the index of the snapshot has a URL of %d bytes, and the limit is %d", len(ix.url), longestAddress)
	}
	twice, relative := make(map[[sha256.Size]byte]bool, len(doc.Pages)), false
	for i, link := range doc.Pages {
		if link == nil || *link == "" {
			return nil, newBreach(kindBadIndex, name, "page %d in the index of the snapshot has no URL", i)
		}
		ref, err := url.Parse(*link)
		if err != nil {
			return nil, newBreach(kindBadIndex, name, "page %d in the index of the snapshot is %q, which is not a URL", i, safetext.Excerpt(*link))
		}
		if !ref.IsAbs() && !relative {
			relative = true
			seen.addAll(feed.NewViolation(kindRelativePage, name, "page %d in the index of the snapshot is %s; it should be a whole URL, and so should those like it", i, safetext.Excerpt(*link)))
		}
		ix.pages = append(ix.pages, *link)
		page, err := ix.pageURL(i)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256([]byte(page)); twice[sum] {
			return nil, newBreach(kindBadIndex, name, "the index of the snapshot names the page %s twice", safetext.Excerpt(page))
		} else {
			twice[sum] = true
		}
	}
	return ix, nil
}

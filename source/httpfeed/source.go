// Package httpfeed reads feeds of http-feeds.org: batches of CloudEvents in the order of their addition.
//
// A request with lastEventId continues behind that event, and an empty batch is the end for now. At the end the next
// request also has timeout, so a server that supports it answers as soon as there is an event.
//
// # The position
//
// The cursor has the ID of the last event. Nothing in an answer proves that it continues there, so a server that has
// forgotten the ID, or ignores it, is recognised by what it sends: the last event again, the first event that was ever
// read, or an event that the topic has already. Then the feed halts, because a person has to decide whether the server
// will remember again. After a person has moved the position, known events are expected and left out until the end of
// the feed.
//
// # Memory
//
// A batch is parsed as it arrives. The source holds the entities of one call of Next and an open answer.
package httpfeed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/jsonpage"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
)

// Kind names this kind of source in checkpoints and in the configuration.
const Kind = "http-feeds"

// longestPoll is the maximum time that the server is asked to wait for an event. It is less than most proxies wait.
const longestPoll = 30 * time.Second

// longestQuote is the maximum length of an ID in errors, in characters.
const longestQuote = 100

// Config selects a feed and where reading starts.
type Config struct {
	// Config configures the HTTP client.
	source.Config
	// Start selects the first event to publish when the topic has no checkpoint.
	Start source.Start
}

// Source reads one feed. It implements the Source of package bridge. Its state between calls of Next saves requests,
// and has no other effect. It is used by one goroutine at a time.
type Source struct {
	cfg     Config
	client  *source.Client
	inTopic func(id string) bool
	log     *slog.Logger
	redact  *safetext.Redactor

	batch *openBatch  // the answer that is being read; nil if there is none
	read  feed.Cursor // the cursor that was returned last
	atEnd bool        // the feed had nothing behind it
	// unread counts the answers in a row that could not be read, and had nothing new before that.
	unread int
	err    error // ended the last answer after events that were returned; the next call returns it once
}

// openBatch is an answer whose events are read by several calls of Next.
type openBatch struct {
	resp  *source.Response
	items *jsonpage.Reader
	asked string // the ID behind which it begins
	count int    // of events so far
}

// New returns a Source for the feed that cfg names. inTopic reports whether the topic has an ID, as far as it is
// remembered; IDs that were stored without their checkpoint do not count. redact hides the secrets of URLs; nil knows the usual ones.
func New(cfg Config, client *source.Client, inTopic func(id string) bool, redact *safetext.Redactor, log *slog.Logger) *Source {
	return &Source{cfg: cfg, client: client, inTopic: inTopic, redact: redact, log: log}
}

// Release closes the answer that is being read.
func (s *Source) Release() {
	if s.batch != nil {
		s.batch.resp.Body.Close()
	}
	s.batch, s.atEnd, s.err = nil, false, nil
}

// Next returns the next events behind a cursor.
func (s *Source) Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	if !bytes.Equal(after, s.read) {
		s.Release()
	}
	if err := s.err; err != nil {
		s.Release()
		return feed.Batch{}, err
	}
	cur, err := decodeCursor(after, s.cfg.Start)
	if err != nil {
		return feed.Batch{}, err
	}
	b, err := s.readEvents(ctx, &cur, limits)
	if err != nil && len(b.Entities) == 0 && !b.More {
		s.Release()
		return feed.Batch{}, err
	}
	if s.err = err; err != nil {
		b.More = true // the error is returned next
	}
	if b.Cursor = cur.encode(); s.batch == nil && err == nil && !b.More && bytes.Equal(b.Cursor, after) {
		s.atEnd = true
	}
	s.read = b.Cursor
	return b, nil
}

// readEvents reads from the open answer, or from a new one, and moves the cursor. With an error, the batch has the
// events before it.
func (s *Source) readEvents(ctx context.Context, cur *cursor, limits feed.Limits) (b feed.Batch, err error) {
	if s.batch == nil {
		after := cur.Last
		if cur.Halted {
			after = cur.Before
		}
		if s.batch, err = s.request(ctx, after); s.batch == nil {
			if err == nil {
				cur.reachEnd()
			}
			return b, err
		}
	}
	seen := violations{page: s.redact.URL(s.cfg.URL)}
	defer func() { b.Violations = seen.list }()
	for size := 0; !limits.AreReached(len(b.Entities), size); {
		it, err := s.batch.items.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return s.endBatch(cur, b)
		}
		if err == nil {
			err = it.Err
		}
		if err != nil {
			return b, s.explain(err)
		}
		s.batch.count++
		s.atEnd = false // the next request must not wait, because these events are committed after it
		e, id, err := s.readEvent(it, &seen)
		if err != nil {
			return b, err
		}
		take, err := s.checkOrder(cur, id, e.ID, &seen)
		if err != nil {
			cur.Halted, b.More = true, true // the cursor is committed before the error is reported
			return b, err
		}
		if !take {
			continue
		}
		s.unread = 0
		if cur.Before, cur.Last = cur.Last, id; cur.First == "" {
			cur.First = hashID(id)
		}
		if cur.skips(e.Modified) {
			b.More = true
			continue
		}
		cur.Start = ""
		size += e.Size()
		b.Entities = append(b.Entities, e)
		if e.Modified.After(b.Newest) {
			b.Newest = e.Modified
		}
	}
	b.More = true
	return b, nil
}

// checkOrder reports whether an event is behind the cursor, and returns an error if the answer is not. id is the ID as
// the server has it, and published the one in the topic.
func (s *Source) checkOrder(cur *cursor, id, published string, seen *violations) (take bool, err error) {
	first, asked := s.batch.count == 1, s.batch.asked
	switch {
	case cur.Halted && first && id == cur.Last:
		cur.Halted = false
		return false, nil
	case cur.Halted:
		return false, s.newForgetfulError(cur.Last, id)
	case cur.Last == "":
		cur.Moved = cur.Moved || s.inTopic(published) // the checkpoint was reset
	case id == cur.Last && (first || id != asked):
		seen.add(kindRepeatedEvent, "the event %s comes twice in a row, or again behind itself", s.redact.Excerpt(id, longestQuote))
		return false, nil
	case id == asked, first && (cur.First == hashID(id) || !cur.Moved && cur.Start == "" && s.inTopic(published)):
		return false, s.newForgetfulError(asked, id)
	case cur.Start != "":
		cur.Moved = cur.Moved || s.inTopic(published)
	}
	return true, nil
}

// newForgetfulError returns the error of a server that does not continue behind an event.
func (s *Source) newForgetfulError(asked, sent string) error {
	return feed.Permanent(fmt.Errorf("%s: the server does not continue behind the event %s, and sends %s: it has forgotten that ID, or ignores lastEventId; "+
		"nothing is published until it sends its events behind an ID again, or 'feedbridge checkpoint set FEED after:ID' names an event that it knows",
		s.redact.URL(s.cfg.URL), s.redact.Excerpt(asked, longestQuote), s.redact.Excerpt(sent, longestQuote)))
}

// endBatch ends the answer that was read to its end.
func (s *Source) endBatch(cur *cursor, b feed.Batch) (feed.Batch, error) {
	empty := s.batch.count == 0
	if cur.Halted {
		return b, s.newForgetfulError(cur.Last, "nothing")
	}
	s.batch.resp.Body.Close()
	s.batch, s.unread = nil, 0
	if b.More = !empty && (len(b.Entities) > 0 || b.More); empty {
		cur.reachEnd()
	}
	return b, nil
}

// request requests the events behind an ID. It returns nil if there are none.
func (s *Source) request(ctx context.Context, last string) (*openBatch, error) {
	u, err := url.Parse(s.cfg.URL)
	if err != nil {
		return nil, feed.Permanent(err)
	}
	q := url.Values{}
	wait := time.Duration(0)
	if last != "" {
		q.Set("lastEventId", last)
		if s.atEnd {
			wait = min(longestPoll, s.cfg.Timeout/2)
			q.Set("timeout", strconv.FormatInt(wait.Milliseconds(), 10))
		}
	}
	u.RawQuery = strings.Trim(u.RawQuery+"&"+q.Encode(), "&")
	asked := time.Now()
	resp, err := s.client.Do(ctx, source.Request{Method: http.MethodGet, URL: u.String()})
	if status := source.StatusOf(err); status == http.StatusGatewayTimeout && wait > 0 && time.Since(asked) >= wait {
		return nil, nil // a proxy ended the wait for an event
	} else if (source.IsGone(err) || status == http.StatusBadRequest) && last != "" {
		return nil, feed.Permanent(fmt.Errorf("%w; the server may have forgotten the event %s, which was read last: if it has, 'feedbridge checkpoint set' can name one that it knows", err, s.redact.Excerpt(last, longestQuote)))
	}
	if err != nil {
		return nil, err
	}
	if resp.Status == http.StatusNoContent {
		resp.Body.Close()
		return nil, nil
	}
	return &openBatch{resp: resp, asked: last, items: jsonpage.NewReader(resp.Body, jsonpage.Options{Item: int(s.cfg.Limits.Entity)})}, nil
}

// unreadTimes is the number of answers in a row that cannot be read after which the error is permanent. Error pages with
// the status 200 are usually gone by then.
const unreadTimes = 5

// explain returns the error of an answer that cannot be read, with its cure.
func (s *Source) explain(err error) error {
	where := s.redact.URL(s.cfg.URL)
	switch {
	case errors.Is(err, jsonpage.ErrNotPage):
		err = fmt.Errorf("%s: the answer is no batch of CloudEvents: %w; check that the url is a feed's; if it is, the provider answers with something else", where, err)
	case errors.Is(err, jsonpage.ErrTruncated):
		err = fmt.Errorf("%s: %w; reading continues behind the last whole event", where, err)
	case errors.Is(err, jsonpage.ErrMalformed):
		err = fmt.Errorf("%s: from there on the events cannot be read: %w; the provider has to correct it", where, err)
	case errors.Is(err, jsonpage.ErrTooLarge):
		err = fmt.Errorf("%s: from there on the events cannot be read: %w", where, err)
	default:
		return err
	}
	if s.unread++; s.unread < unreadTimes {
		return err
	}
	return feed.Permanent(fmt.Errorf("the document could not be read %d times in a row, so its provider has to act: %w", s.unread, err))
}

// Detect reports whether a document is a batch of CloudEvents: a list that is empty, or whose first item has a
// specversion. It reads 1 MiB at most.
func Detect(document io.Reader) bool {
	const most = 1 << 20
	it, err := jsonpage.NewReader(io.LimitReader(document, most), jsonpage.Options{Item: most}).Next()
	if err != nil {
		return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
	}
	members, _ := jsonpage.Members(it.Raw)
	var version string
	return json.Unmarshal(members["specversion"], &version) == nil && version != ""
}

package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/jsonpage"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/message"
)

// lastEventID is the parameter of a request that names the event behind which the answer begins.
const lastEventID = "lastEventId"

// longestWait is the maximum time that a client can wait for events.
const longestWait = time.Minute

// waits are shared by all clients of a server that wait for events.
type waits struct {
	ended context.Context // ends when the server shuts down
	slots *limit.Limit    // for half of the connections, so that others are served
}

// waitsKey is the key of the *waits in the context of a request.
type waitsKey struct{}

// eventID returns the ID of the event at a position. It names the position itself, so it stays valid when the message
// is deleted.
func eventID(epoch string, position uint64) string {
	return epoch + "-" + strconv.FormatUint(position, 10)
}

// parseEventID returns the position behind an event that the feed has, or had.
func parseEventID(id string, span feed.Span) (next uint64, ok bool) {
	epoch, number, _ := strings.Cut(id, "-")
	position, err := strconv.ParseUint(number, 10, 64)
	return position + 1, err == nil && epoch == span.Epoch && position < span.End && id == eventID(epoch, position)
}

// lastEventOf returns the ID of a request; "" at the beginning, for which the pseudo-code of http-feeds.org sends null.
func lastEventOf(query url.Values) string {
	if id := query.Get(lastEventID); id != "null" {
		return id
	}
	return ""
}

// serveEvents answers with the events behind lastEventId, as http-feeds.org has it. If there are none and the request
// has a timeout, it waits for some.
func (f *handler) serveEvents(w *watchedWriter, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	timeout, errTimeout := strconv.ParseUint(cmp.Or(query.Get("timeout"), "0"), 10, 64)
	if err != nil || errTimeout != nil {
		return newAnswer(http.StatusBadRequest, "The query is invalid: want lastEventId=ID, timeout=MILLISECONDS, or both.")
	}
	if r.Method == http.MethodHead || wantsHTML(r) {
		timeout = 0
	}
	span, err := f.pages.spans.Span(r.Context())
	if err != nil {
		return err
	}
	from, last := uint64(0), lastEventOf(query)
	if last != "" {
		var known bool
		if from, known = parseEventID(last, span); !known {
			return f.unknownEvent()
		}
	}
	p, err := f.pages.eventsFrom(r.Context(), span.Epoch, from)
	if err == nil && p.entities == 0 && timeout > 0 {
		p, err = f.awaitEvents(w, r, p, min(longestWait, time.Duration(min(timeout, math.MaxInt32))*time.Millisecond))
	}
	switch {
	case errors.Is(err, errGone):
		return f.unknownEvent()
	case err != nil:
		return err
	}
	defer f.pages.memory.releasePage(p)
	switch err := r.Context().Err(); {
	case err != nil:
		return err // the client has left
	case p.entities > 0 || wantsHTML(r):
		return f.sendPage(w, r, p)
	}
	f.outage.logChange(nil)
	w.Header().Set("Vary", vary)
	w.Header().Set("Content-Type", p.contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("[]"))
	return nil
}

func (f *handler) unknownEvent() error {
	return newAnswer(http.StatusGone, "This feed has no event with that id: its topic was created again, or the id is of another feed. Without lastEventId, %s begins at the oldest event.", f.cfg.entryURL())
}

// awaitEvents returns the first page with events behind p, which has none and is released. When the time is over, it
// returns another one without events.
func (f *handler) awaitEvents(w *watchedWriter, r *http.Request, p *page, timeout time.Duration) (*page, error) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	if all, ok := r.Context().Value(waitsKey{}).(*waits); ok {
		slot := all.slots.TryAcquire()
		if slot == nil {
			f.pages.memory.releasePage(p)
			return nil, errFull
		}
		defer slot.Release()
		defer context.AfterFunc(all.ended, cancel)()
	}
	begun := time.Now()
	defer func() { w.waited = time.Since(begun) }()
	for ctx.Err() == nil {
		f.pages.spans.waitChange(ctx, p.span)
		if ctx.Err() != nil {
			break
		}
		epoch, from := p.id.epoch, p.span.End // there is none before that
		f.pages.memory.releasePage(p)
		var err error
		if p, err = f.pages.eventsFrom(r.Context(), epoch, from); err != nil || p.entities > 0 {
			return p, err
		}
	}
	return p, nil
}

// eventsFrom returns the events from a position on to the end of the page of page_size positions that the first of
// them is on, so that clients which began at different events get the same lists after the first one. The caller
// releases the page.
func (pb *pageBuilder) eventsFrom(ctx context.Context, epoch string, from uint64) (*page, error) {
	span, err := pb.spans.Span(ctx)
	if err != nil {
		return nil, err
	}
	if span.Epoch != epoch {
		return nil, errGone
	}
	key := pageKey{feed: pb.cfg, id: pageID{epoch, uint64(pb.cfg.PageSize), max(from, span.First)}, kind: eventList}
	if p := pb.memory.acquirePage(key); p != nil {
		if p.after.ok || p.span.End == span.End {
			return p, nil
		}
		pb.memory.releasePage(p)
	}
	p, err := shareCall(ctx, &pb.flights, fmt.Sprint(key.kind, " ", key.id), func(ctx context.Context) (*page, error) {
		slot, err := pb.memory.builds.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer slot.Release()
		return pb.buildEvents(ctx, key)
	})
	if err != nil {
		return nil, err
	}
	pb.memory.retainPage(p)
	return p, nil
}

// buildEvents makes a list of events. Its after is set if it does not get more of them.
func (pb *pageBuilder) buildEvents(ctx context.Context, key pageKey) (*page, error) {
	span, err := pb.spans.Span(ctx)
	if err != nil {
		return nil, err
	}
	p := &page{pageKey: key, span: span, linked: true, contentType: pb.format.contentType(nil)}
	from, size := key.id.k, key.id.size
	end := from - from%size + size
	for {
		if err := pb.readEvents(ctx, p, from, min(end, span.End)); err != nil {
			return nil, err
		}
		if p.entities > 0 || end >= span.End {
			break
		}
		k, ok, err := pb.find.nextPage(ctx, pageID{key.id.epoch, size, end/size - 1}, span)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		from, end = k*size, (k+1)*size
	}
	// What was read may be of a topic that was created meanwhile.
	if now, err := pb.log.Span(ctx); err != nil {
		return nil, err
	} else if span.Epoch != key.id.epoch || now.Epoch != span.Epoch {
		return nil, errGone
	}
	if p.entities > 0 {
		p.body = slices.Clone(append(p.body, ']')) // it is cached without unused memory
		p.after.ok = p.after.ok || end <= span.End
	}
	p.length = int64(len(p.body))
	p.tag = fmt.Sprintf("%x-%x", p.length, xxhash.Sum64(p.body))
	if pb.memory.storePage(p); p.body == nil && p.entities > 0 {
		return nil, errFull
	}
	return p, nil
}

// readEvents appends the events at the positions [from, to) to a list. It ends before an event with which the list
// would be larger than a cached page may be, unless that is its first one.
func (pb *pageBuilder) readEvents(ctx context.Context, p *page, from, to uint64) error {
	if from >= to {
		return nil
	}
	var header feed.Header
	for r, err := range pb.log.Read(ctx, from, to) {
		if err != nil {
			return err
		}
		e := pb.decoder.decodeRecord(p.id.epoch, r, header)
		header = e.header
		begin := len(p.body)
		p.body = append(p.body, "[,"[min(p.entities, 1)])
		p.body = newEvent(pb.cfg, p.id.epoch, &e).append(p.body)
		switch n := int64(len(p.body)); {
		case n > pb.memory.largest && p.entities > 0:
			p.body, p.after.ok = p.body[:begin], true
			return nil
		case n > pb.memory.budget:
			return errTooLarge
		}
		p.entities++
		p.modified, p.next = e.taken, e.position+1
	}
	return nil
}

// event is a message as a CloudEvent.
type event struct {
	attributes  feed.Header // with the id first, without datacontenttype
	contentType string      // the datacontenttype; "" without one
	at          time.Time
	data        []byte
	form        dataForm
}

// dataForm is how an event has its data.
type dataForm int

const (
	noData dataForm = iota
	jsonData
	textData
	base64Data
)

// newEvent returns the event of a message. A header with the name of a CloudEvents attribute becomes that attribute.
func newEvent(c *Config, epoch string, e *entity) *event {
	ev := &event{at: e.taken}
	if !e.published.IsZero() {
		ev.at = e.published
	}
	written := e.headerOf("time")
	if at, err := time.Parse(time.RFC3339Nano, written); err == nil {
		ev.at = at
	} else {
		written = ev.at.Format(time.RFC3339Nano)
	}
	ownID, key := "", e.headerValue(messageKey)
	if e.headerValue(message.ContentID) != "" {
		ownID = e.entryID
	}
	add := func(name, value string) {
		if value != "" {
			ev.attributes = append(ev.attributes, feed.Field{Name: name, Value: value})
		}
	}
	add("id", eventID(epoch, e.position))
	add("specversion", "1.0")
	add("type", cmp.Or(e.headerOf("type"), "feedbridge.entity."+strings.ToLower(string(e.op))))
	add("source", cmp.Or(e.headerOf("source"), c.feedURL()))
	add("time", written)
	add("subject", cmp.Or(e.headerOf("subject"), key, ownID))
	add("contentid", cmp.Or(e.headerOf("contentid"), ownID))
	if e.op != feed.Put {
		add("method", string(e.op))
	}
	for _, field := range e.header {
		switch field.Name {
		case "data", "datacontenttype", "method":
		default:
			if _, has := ev.attributes.Get(field.Name); !has && message.IsAttribute(field.Name) {
				add(field.Name, field.Value)
			}
		}
	}
	if !e.untyped {
		ev.contentType = e.contentType
	}
	ev.setData(e.body)
	return ev
}

// setData sets the data, in the form from which a reader gets exactly the body.
func (ev *event) setData(body []byte) {
	value := bytes.Trim(body, " \t\r\n")
	switch {
	case len(body) == 0:
	case !utf8.Valid(body):
		ev.data, ev.form = body, base64Data
	case !message.IsJSON(ev.contentType):
		ev.data, ev.form = body, textData
	case string(value) != "null" && isReadableJSON(value):
		ev.data, ev.form = value, jsonData
	default:
		ev.data, ev.form = body, base64Data
	}
}

// isReadableJSON reports whether readers can read a value within a list of events: feedbridge has a limit for the
// depth of a document, as others do.
func isReadableJSON(value []byte) bool {
	const isFlat = 500
	if bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) > isFlat {
		it, err := jsonpage.NewReader(io.MultiReader(strings.NewReader("[["), bytes.NewReader(value), strings.NewReader("]]")), jsonpage.Options{Item: len(value) + 2}).Next()
		if err != nil || it.Err != nil {
			return false
		}
	}
	return json.Valid(value)
}

// append appends the event as JSON.
func (ev *event) append(b []byte) []byte {
	b = append(b, '{')
	for _, a := range ev.attributes {
		b = appendJSONText(append(append(append(b, '"'), a.Name...), `":`...), a.Value)
		b = append(b, ',')
	}
	if ev.contentType != "" {
		b = append(appendJSONText(append(b, `"datacontenttype":`...), ev.contentType), ',')
	}
	switch ev.form {
	case jsonData:
		return append(append(append(b, `"data":`...), ev.data...), '}')
	case textData:
		return append(appendJSONText(append(b, `"data":`...), string(ev.data)), '}')
	case base64Data:
		b = base64.StdEncoding.AppendEncode(append(b, `"data_base64":"`...), ev.data)
		return append(b, `"}`...)
	}
	b[len(b)-1] = '}' // in place of the comma
	return b
}

// appendJSONText appends a text as JSON has it.
func appendJSONText(b []byte, text string) []byte {
	out := bytes.NewBuffer(b)
	in := json.NewEncoder(out)
	in.SetEscapeHTML(false)
	if err := in.Encode(text); err != nil {
		panic(err) // a text has JSON
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// eventEntities returns the entities that a reader of a feed of http-feeds gets.
func (pb *pageBuilder) eventEntities(ctx context.Context) (iter.Seq2[feed.Entity, error], error) {
	span, err := pb.spans.Span(ctx)
	if err != nil || span.First >= span.End {
		return func(func(feed.Entity, error) bool) {}, err
	}
	return func(yield func(feed.Entity, error) bool) {
		for r, err := range pb.log.Read(ctx, span.First, span.End) {
			if err != nil {
				yield(feed.Entity{}, fmt.Errorf("the topic: %w", err))
				return
			}
			e := pb.decoder.decodeRecord(span.Epoch, r, nil)
			ev := newEvent(pb.cfg, span.Epoch, &e)
			if !yield(ev.asRead(e.op), nil) {
				return
			}
		}
	}, nil
}

// asRead returns an event as feedbridge reads it.
func (ev *event) asRead(op feed.Operation) feed.Entity {
	id := ev.attributes[0].Value
	header := feed.Header{{Name: message.ContentID, Value: id}}
	if ev.contentType == "" && ev.form == jsonData {
		ev.contentType = "application/json"
	}
	if ev.contentType != "" {
		header = append(header, feed.Field{Name: message.ContentType, Value: ev.contentType})
	}
	header = append(header, feed.Field{Name: message.LastModified, Value: message.FormatDate(ev.at)}, feed.Field{Name: message.OperationType, Value: message.FormatOperation(op)})
	for _, a := range ev.attributes[1:] {
		if a.Name != "specversion" && a.Name != "method" {
			header = append(header, a)
		}
	}
	return feed.Entity{ID: id, Op: op, Modified: ev.at.UTC(), Header: header, Body: ev.data}
}

// sendProblem sends an error as a problem document (RFC 9457).
func sendProblem(w http.ResponseWriter, a *answer) {
	b, err := json.Marshal(map[string]any{"title": http.StatusText(a.status), "status": a.status, "detail": a.sentence})
	if err != nil {
		panic(err) // it has texts and a number only
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(a.status)
	_, _ = w.Write(b)
}

package verify

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/message"
)

// side is one of the streams, with the items that were read and are not settled.
type side struct {
	next func() (feed.Entity, error, bool)
	stop func()
	read int
	end  bool
	// ahead is in the stream's order, and settled items are left in it until
	// they come first. byID has those that are not settled.
	ahead []*item
	live  int
	byID  map[string][]*item
}

func newSide(stream iter.Seq2[feed.Entity, error]) *side {
	s := &side{byID: map[string][]*item{}}
	s.next, s.stop = iter.Pull2(stream)
	return s
}

// firstUnmatched returns the first item that is not settled, or nil at the stream's end.
func (s *side) firstUnmatched() (*item, error) {
	for len(s.ahead) > 0 && s.ahead[0].settled {
		s.ahead[0] = nil
		s.ahead = s.ahead[1:]
	}
	if len(s.ahead) == 0 {
		if err := s.readUnmatched(1); err != nil || s.live == 0 {
			return nil, err
		}
	}
	return s.ahead[0], nil
}

// readUnmatched reads on until n items are not settled, or the stream ends.
func (s *side) readUnmatched(n int) error {
	for s.live < n && !s.end {
		e, err, ok := s.next()
		if err != nil {
			return err
		}
		if !ok {
			s.end = true
			return nil
		}
		it := newItem(&e, s.read)
		s.read++
		s.live++
		s.ahead = append(s.ahead, it)
		s.byID[it.id] = append(s.byID[it.id], it)
	}
	return nil
}

// findByID returns the first item with that ID, or nil.
func (s *side) findByID(id string) *item {
	if found := s.byID[id]; len(found) > 0 {
		return found[0]
	}
	return nil
}

// markMatched settles an item, which is the first with its ID.
func (s *side) markMatched(it *item) {
	it.settled = true
	s.live--
	if rest := s.byID[it.id][1:]; len(rest) > 0 {
		s.byID[it.id] = rest
	} else {
		delete(s.byID, it.id)
	}
}

// item is the summary of an entity. It shares no memory with it.
type item struct {
	number   int // in the stream, from 0
	id       string
	settled  bool
	op       feed.Operation
	modified time.Time // in whole seconds, as messages have it
	// timeMade reports that feedbridge made the time, because the feed has none.
	timeMade bool

	// headers has the sum of the values of each header, in their order.
	headers map[unique.Handle[string]]uint64
	body    sum
	// entry is the sum of the fields of an entry of Atom or RSS, without its feed and authors; zero for all others.
	// contentType is json, xml, or item for one of a JSON Feed as the feed has it.
	entry       sum
	contentType string
	authors     string
}

// sum identifies a body.
type sum struct {
	length int
	hash   uint64
}

var seed = maphash.MakeSeed()

func newItem(e *feed.Entity, number int) *item {
	it := &item{
		number: number, id: strings.Clone(e.ID), op: feed.Operation(strings.Clone(string(e.Op))), modified: e.Modified.Truncate(time.Second),
		timeMade: slices.Contains(strings.Fields(e.Made), message.LastModified), body: sum{len(e.Body), maphash.Bytes(seed, e.Body)}, headers: map[unique.Handle[string]]uint64{},
	}
	fields := slices.Clone(e.Header)
	for i := range fields {
		fields[i].Name = textproto.CanonicalMIMEHeaderKey(fields[i].Name)
		fields[i].Value = canonicalValue(fields[i])
	}
	// The length repeats the length of the body. Feeds may omit it, and served feeds
	// have it.
	length := strconv.Itoa(len(e.Body))
	fields = slices.DeleteFunc(fields, func(f feed.Field) bool { return f.Name == "Content-Length" && f.Value == length })
	it.readEntry(e)
	for _, f := range fields {
		name := unique.Make(f.Name)
		it.headers[name] = maphash.String(seed, strconv.FormatUint(it.headers[name], 16)+"\x00"+f.Value)
	}
	return it
}

// readEntry sets the sum of the fields of an entry. They lack the authors, which are in JSON also if they are those
// of the feed.
func (it *item) readEntry(e *feed.Entity) {
	if e.Mark == "" && !slices.ContainsFunc(e.Header, func(f feed.Field) bool { return strings.EqualFold(f.Name, "Entry-Id") }) {
		return
	}
	base, _ := e.Header.Get("Content-Location")
	base = entry.ResolveURL(e.Page, base)
	a, ok := entry.Decode(e.Body, base)
	it.contentType = "json"
	if format, _ := e.Header.Get("Feed-Format"); format == "jsonfeed" && (!ok || a.Feed == nil) {
		it.contentType = "item"
		if d := entry.ReadItem(e.Body, base); d != nil {
			a, ok = d.Entry(base, len(e.Body)), true
		}
	} else if !ok {
		a, ok = entry.Read(e.Body, base)
		it.contentType = "xml"
	}
	if !ok {
		return
	}
	it.authors = fmt.Sprint(a.Authors)
	a.Feed, a.Authors, a.ID = nil, nil, e.ID
	fields := a.Encode(e.ID)
	it.entry = sum{len(fields), maphash.Bytes(seed, fields)}
}

// canonicalValue returns the value of a header. Dates and operations are in the spelling
// that served feeds have, whatever that of the original feed is.
func canonicalValue(f feed.Field) string {
	switch f.Name {
	case message.LastModified:
		if t, _, ok := message.ParseDate(f.Value); ok {
			return message.FormatDate(t)
		}
	case message.OperationType:
		if op, ok := message.ParseOperation(f.Value); ok {
			return message.FormatOperation(op)
		}
	}
	return f.Value
}

// compare names the parts that differ in two entities with the same ID. A time that feedbridge made for
// one of them is not compared.
func (it *item) compare(other *item) (parts []string) {
	if it.timeMade || other.timeMade {
		defer func() {
			parts = slices.DeleteFunc(parts, func(part string) bool { return part == "time" || part == "header "+message.LastModified })
		}()
	}
	isJSON := it.contentType == "json" && other.contentType == "json" && it.authors == other.authors
	if it.entry == other.entry && it.entry != (sum{}) && (isJSON || it.contentType != other.contentType) {
		defer func() {
			parts = slices.DeleteFunc(parts, func(part string) bool { return part == "body" || part == "header "+message.ContentType })
		}()
	}
	if it.op != other.op {
		parts = append(parts, "operation")
	}
	if !it.modified.Equal(other.modified) {
		parts = append(parts, "time")
	}
	var differing []string
	if !maps.Equal(it.headers, other.headers) {
		names := maps.Clone(it.headers)
		maps.Copy(names, other.headers)
		for name := range names {
			if it.headers[name] != other.headers[name] {
				differing = append(differing, "header "+name.Value())
			}
		}
	}
	parts = append(parts, slices.Sorted(slices.Values(differing))...)
	if it.body != other.body {
		parts = append(parts, "body")
	}
	return parts
}

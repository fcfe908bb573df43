package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// Headers of records share memory, and none is part of another.
func TestHeadersOfManyRecords(t *testing.T) {
	t.Parallel()
	var memory headerMemory
	fieldsOf := func(i int) (fields feed.Header) {
		for k := range i % 40 {
			fields = append(fields, feed.Field{Name: fmt.Sprint("name-", k), Value: strings.Repeat(fmt.Sprint(i), k*i%7)})
		}
		if i%100 == 0 { // more than are allocated at once
			fields = slices.Repeat(append(fields, feed.Field{Name: "one of many"}), minHeaders)
		}
		return fields
	}
	var lists [300][]kgo.RecordHeader
	for i := range lists {
		lists[i] = memory.convert(fieldsOf(i))
	}
	for _, list := range lists {
		_ = append(list, list...) // not into the headers of others
	}
	for i, list := range lists {
		for k, f := range fieldsOf(i) {
			// A nil value would be null.
			if list[k].Key != f.Name || string(list[k].Value) != f.Value || list[k].Value == nil {
				t.Errorf("header %d of record %d is %s: %q, want %s: %q", k, i, list[k].Key, list[k].Value, f.Name, f.Value)
			}
		}
	}
}

// Memory that is used again has nothing of the entities of an earlier commit.
func TestResetRecordsHoldNoEntities(t *testing.T) {
	t.Parallel()
	c := new(commitRecords)
	for range 3 {
		headers := c.headers.convert(feed.Header{{Name: "name", Value: "value"}})
		c.entities = append(c.entities, kgo.Record{Value: []byte("body"), Headers: headers})
		c.dead = append(c.dead, kgo.Record{Value: []byte("body"), Headers: headers})
	}
	entities, dead, list := c.entities, c.dead, c.headers.list
	c.reset()
	for i := range entities {
		if entities[i].Value != nil || entities[i].Headers != nil || dead[i].Value != nil || dead[i].Headers != nil || list[i].Key != "" || list[i].Value != nil {
			t.Errorf("record %d is still held", i)
		}
	}
}

// checkEntity decides by an upper bound of the size, and by the message itself only if that is too
// large. So it refuses the same entities.
func TestEntityIsCheckedLikeItsMessage(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 2))
	text := func() string { return strings.Repeat("x", dice.IntN(2)*dice.IntN(600)) }
	names := []string{"content-id", "Status", "X", ""}
	m := recordMaker{topic: Topic{Name: "shop.orders"}}
	for range 5_000 {
		m.topic.Feed = text()
		e := feed.Entity{ID: text(), Page: text(), Mark: text(), Made: text(), Body: []byte(text())}
		if dice.IntN(2) == 0 {
			e.Op, e.Modified = feed.Delete, time.Now()
		}
		name := names[dice.IntN(len(names))] // all alike, so that their terms of the bound count
		for range dice.IntN(60) {
			e.Header = append(e.Header, feed.Field{Name: name})
		}
		header := message.Header(m.topic.Feed, e)
		size := batchOverhead + recordOverhead + len(e.Body)
		for _, f := range header {
			size += headerOverhead + len(f.Name) + len(f.Value)
		}
		if e.Mark != "" {
			size += sequenceSize
		}
		m.limit.Store(int64(size))
		if err := m.checkEntity(e); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		m.limit.Store(int64(size - 1))
		if err := m.checkEntity(e); !errors.Is(err, sink.ErrTooLarge) {
			t.Fatalf("%+v: %v, want that it is too large", e, err)
		}
	}
}

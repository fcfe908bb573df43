package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The records of a fetch share memory, and none can change another one.
func TestRecordsOfAFetch(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1772366400123)
	list, bytes := toFeedRecords([]*kgo.Record{
		{Offset: 3, Timestamp: at, Value: []byte("a"), Headers: []kgo.RecordHeader{{Key: "X", Value: []byte("1")}, {Key: "x", Value: nil}}},
		{Offset: 4, Timestamp: at, Key: []byte("k")},
		{Offset: 9, Timestamp: at, Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "Y", Value: []byte("\xff2")}}},
	})
	want := []feed.Record{
		{Position: 3, Time: at, Body: []byte("a"), Header: feed.Header{{Name: "X", Value: "1"}, {Name: "x", Value: ""}}},
		{Position: 4, Time: at, Key: []byte("k"), Header: feed.Header{}, Tombstone: true},
		{Position: 9, Time: at, Body: []byte{}, Header: feed.Header{{Name: "Y", Value: "\xff2"}}},
	}
	_ = append(list[0].Header, feed.Field{Name: "of the reader"})
	must.Match(t, "", want, list)
	if least := int64(3*recordMemory + 3*fieldMemory); bytes < least || bytes > least+20 {
		t.Errorf("they hold %d bytes, want about %d", bytes, least)
	}
}

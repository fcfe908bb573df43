package kafka_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// consume returns n committed messages of the topic, as another program reads them.
func consume(t *testing.T, c *kfake.Cluster, n int) (all []*kgo.Record) {
	t.Helper()
	cl, _ := admin(t, c, kgo.ConsumeTopics("shop.orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for len(all) < n {
		fetches := cl.PollFetches(t.Context())
		must.Succeed(t, fetches.Err())
		all = append(all, fetches.Records()...)
	}
	return all
}

// The hashes are those of the test of Kafka's own murmur2.
func TestKeysArePlacedAsTheJavaClientDoes(t *testing.T) {
	t.Parallel()
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got, want := kafka.PartitionOf(key, 6), (hash&0x7fffffff)%6; got != want {
			t.Errorf("key %s is in partition %d, want %d", key, got, want)
		}
	}
}

func TestKeysArePlacedInPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Key, topic.Partitions = "/n", 6
		s, c, _ := open(t, topic)
		commit(t, s, 0, 100)
		commit(t, s, 100, 200)
		seen, last := map[int32]int{}, map[int32]string{}
		for _, r := range consume(t, c, 200) {
			if want := kafka.PartitionOf(string(r.Key), 6); r.Partition != want {
				t.Errorf("key %s is in partition %d, want %d", r.Key, r.Partition, want)
			}
			if want := fmt.Sprintf(`{"n":%s}`, r.Key); string(r.Value) != want {
				t.Errorf("key %s has the body %s", r.Key, r.Value)
			}
			if id := fmt.Sprintf("%09s", r.Key); id < last[r.Partition] {
				t.Errorf("%s comes after %s", id, last[r.Partition])
			} else {
				last[r.Partition] = id
			}
			seen[r.Partition]++
		}
		total := 0
		for _, n := range seen {
			total += n
		}
		if len(seen) != 6 || total != 200 {
			t.Errorf("messages by partition: %v", seen)
		}
	})
}

func TestEntitiesWithoutAKeyLieInOnePartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Partitions, topic.Partition = 6, 4
		s, c, _ := open(t, topic)
		commit(t, s, 0, 100)
		for _, r := range consume(t, c, 100) {
			if r.Partition != 4 || r.Key != nil {
				t.Fatalf("%s is in partition %d under key %q", r.Value, r.Partition, r.Key)
			}
		}
	})
}

func TestKey(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key  kafka.Key
		body string
		want string
		err  string
	}{
		"a string":                   {"/id", `{"id":"a\u00e9\n"}`, "aé\n", ""},
		"an empty string":            {"/id", `{"id":""}`, "", ""},
		"a number as it stands":      {"/id", `{"id":1.50e+300}`, "1.50e+300", ""},
		"a large number":             {"/id", `{"id":12345678901234567890}`, "12345678901234567890", ""},
		"true":                       {"/id", `{"id":true}`, "true", ""},
		"within":                     {"/a/b/1/c", `{"x":[{}],"a":{"b":[0,{"c":"found"}]}}`, "found", ""},
		"escaped":                    {"/a~1b~0c", `{"a/b~c":"found"}`, "found", ""},
		"escaped twice":              {"/~01", `{"~1":"found"}`, "found", ""},
		"the name is empty":          {"/", `{"":"found"}`, "found", ""},
		"the first of two":           {"/id", `{"id":1,"id":2}`, "1", ""},
		"behind it is no JSON":       {"/id", `{"id":1,`, "1", ""},
		"nothing there":              {"/id", `{"no":1}`, "", "its body has no text, number, true or false at /id"},
		"nothing in a text":          {"/id/x", `{"id":"text"}`, "", "its body has no text, number, true or false at /id/x"},
		"beyond a list":              {"/1", `[0]`, "", "its body has no text, number, true or false at /1"},
		"an index is no -":           {"/-", `[0]`, "", "its body has no text, number, true or false at /-"},
		"an index has no zeros":      {"/00", `[0]`, "", "its body has no text, number, true or false at /00"},
		"null":                       {"/id", `{"id":null}`, "", "its body has no text, number, true or false at /id"},
		"an object":                  {"/id", `{"id":{}}`, "", "its body has no text, number, true or false at /id"},
		"a list":                     {"/id", `{"id":[]}`, "", "its body has no text, number, true or false at /id"},
		"no body":                    {"/id", ``, "", "its body is not JSON as far as /id"},
		"no JSON":                    {"/id", `<id>1</id>`, "", "its body is not JSON as far as /id"},
		"cut before it":              {"/id", `{"no":1`, "", "its body is not JSON as far as /id"},
		"a header":                   {"header:content-id", ``, "<0@feed.example.com>", ""},
		"a header that is not there": {"header:X-Key", ``, "", "it has no header X-Key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := orders()
			topic.Key = test.key
			s := connect(t, kafka.Config{Brokers: []string{"127.0.0.1:1"}}).Sink(topic)
			e := sinktest.Entities(0, 1)[0]
			e.Body = []byte(test.body)
			err := fits(s, e)
			if test.err != "" {
				wantError(t, err, false, nil, "it has no key: "+test.err, `"missing_key: 'null'"`)
				return
			}
			must.Succeed(t, err)
			if got := s.KeyOf(t, e); got != test.want {
				t.Errorf("key %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":               "",
		"/":              "",
		"/a~0~1":         "",
		"header:X":       "",
		"id":             `"id": want a JSON pointer such as /id, or header:<name>`,
		"header:":        "header: has no name; want one such as header:Content-ID",
		"/a~2":           `"/a~2": in a JSON pointer a ~ is written ~0, and a / within a name ~1`,
		"/a~":            `"/a~": in a JSON pointer a ~ is written ~0, and a / within a name ~1`,
		"$.id":           `"$.id": want a JSON pointer such as /id, or header:<name>`,
		"header:Mixed-X": "",
	} {
		_, err := kafka.ParseKey(s)
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
}

func TestEntityWithoutAKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Key, topic.Partitions, topic.Partition = "/n", 3, 1
		entities := sinktest.Entities(0, 2)
		entities[1].Body = []byte(`{}`)

		s, _, _ := open(t, topic)
		wantError(t, fits(s, entities[1]), false, nil, "it has no key: its body has no text, number, true or false at /n; correct the feed")
		wantError(t, s.Commit(t.Context(), entities, sinktest.At(2)), true, nil, `entity "<1@feed.example.com>": it has no key`)
		if cp := resume(t, s); !cp.IsZero() {
			t.Errorf("checkpoint %+v, want none", cp)
		}
		topic.MissingKey = kafka.KeyNull
		s, c, _ := open(t, topic)
		if err := fits(s, entities[1]); err != nil {
			t.Error(err)
		}
		must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(2)))
		for _, r := range consume(t, c, 2) {
			if r.Partition == 1 && r.Key == nil && string(r.Value) == "{}" {
				return
			}
		}
		t.Error("the entity without a key is not in its partition")
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	entities := sinktest.Entities(0, 3)
	entities[1].Op, entities[1].Header[3].Value = feed.Delete, "http-equiv=DELETE"
	entities[2].Body = nil
	for becomes, want := range map[kafka.Delete][]bool{
		kafka.DeleteMessage:   {false, false, false},
		kafka.DeleteTombstone: {false, true, false},
	} {
		t.Run(string(becomes), bubbled(func(t *testing.T) {
			topic := orders()
			topic.Key, topic.Delete = "header:Content-ID", becomes
			s, c, _ := open(t, topic)
			must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(3)))
			for i, r := range consume(t, c, 3) {
				if string(r.Key) != entities[i].ID {
					t.Errorf("key %s, want %s", r.Key, entities[i].ID)
				}
			}
			var got []bool
			for _, r := range messages(t, s, 0) {
				e, err := message.Entity(r.Header, r.Body)
				must.Succeed(t, err)
				if want := entities[len(got)]; e.Op != want.Op || e.ID != want.ID {
					t.Errorf("%s %s; want %s %s", e.Op, e.ID, want.Op, want.ID)
				}
				got = append(got, r.Tombstone)
			}
			must.Match(t, "tombstones", want, got)
		}))
	}
}

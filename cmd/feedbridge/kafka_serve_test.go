//go:build integration

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

const (
	servedLength = 3000
	servedKills  = 4
	servedPage   = 37 // no page ends where a transaction does
	pageLength   = 50 // of the feed: much of the time is spent in commits
)

// The real program copies a feed to a real Kafka, and is killed in the middle of transactions,
// while another program aborts its own. Another one of ours serves the topic. A client that
// reads it all the while, and one that reads it later, get the feed.
func TestRealKafkaServesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	s := newServedKafka(t)
	s.feed.SetLen(1)
	copier := s.copy()
	admin := kadm.NewClient(newKafkaClient(t, s.broker.Addr()))
	awaitKafka(t, func() bool {
		topics, err := admin.ListTopics(t.Context(), "orders")
		return err == nil && topics.Error() == nil
	})
	live := follow(t, s.broker.Addr(), "orders", map[int32]int64{0: 0})
	reader := s.tail()
	for n := range servedKills {
		s.feed.SetLen(servedLength * (n + 1) / (servedKills + 1))
		live.waitFor(live.len() + 1)
		s.abort(n)
		_ = copier.Process.Kill()
		_ = copier.Wait()
		copier = s.copy()
	}
	s.feed.SetLen(servedLength)
	live.waitFor(servedLength)

	records := readAll(t, s.broker.Addr(), "orders")
	broken := 0
	for i := 1; i < len(records); i++ {
		if records[i].Offset-records[i-1].Offset > 3 { // two may be markers
			broken++
		}
	}
	if t.Logf("%d times there is something between two messages that was never committed", broken); broken < servedKills {
		t.Error("too little was aborted to prove anything")
	}
	want := make([]string, servedLength)
	for i := range want {
		want[i] = fmt.Sprintf("%d@sample", i)
	}
	if diff := cmp.Diff(want, reader.ids(servedLength)); diff != "" {
		t.Errorf("read while it grew (-feed +served):\n%s", diff)
	}
	for _, args := range [][]string{
		{"--feed", s.feedURL, "--feed", s.url + "/feeds/orders/latest"},
		{"--feed", s.url + "/feeds/orders/latest", "--served", "orders"},
	} {
		if r, text := s.verify(args...); r.Equal != servedLength || !r.Same() || !r.Complete {
			t.Errorf("verify %v: %s", args, text)
		}
	}

	t.Run("a compacted topic is refused", func(t *testing.T) {
		policy := "compact"
		if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": &policy}, "state"); err != nil {
			t.Fatal(err)
		}
		awaitKafka(t, func() bool { status, _, _ := s.get(t, "/feeds/state/latest"); return status != http.StatusNotFound })
		status, _, body := s.get(t, "/feeds/state/latest")
		if status != http.StatusInternalServerError || !strings.Contains(body, "cannot be served as a feed; the server's log says why") {
			t.Errorf("got %d %s", status, body)
		}
		var out bytes.Buffer
		var errs logbuffer.Buffer
		if code := runProgram([]string{"check", "--connect"}, s.env, nil, &out, &errs); code != 1 || !regexp.MustCompile(`(?m)^FAIL  served feed state: .*cleanup\.policy=compact`).MatchString(out.String()) {
			t.Errorf("check exits with %d and says\n%s", code, out.String())
		}
	})
	t.Run("retention", func(t *testing.T) {
		// From the newest page to the oldest.
		var pages []string
		for at := "/feeds/orders/latest"; at != ""; {
			_, links, _ := s.get(t, at)
			pages = append(pages, links["self"])
			at = links["prev"]
		}
		slices.Reverse(pages)
		const taken = servedLength / 2
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: records[taken].Offset})
		if _, err := admin.DeleteRecords(t.Context(), offsets); err != nil {
			t.Fatal(err)
		}
		awaitKafka(t, func() bool { status, _, _ := s.get(t, pages[0]); return status == http.StatusGone })
		gone := 0
		for i, page := range pages {
			status, links, body := s.get(t, page)
			switch {
			case status == http.StatusGone && gone == i && strings.Contains(body, "/feeds/orders/latest"):
				gone++
			case status != http.StatusOK, (links["prev"] == "") != (gone == i):
				t.Errorf("page %d of which the first %d are gone: %d %v", i, gone, status, links)
			}
		}
		if gone == 0 || gone == len(pages) {
			t.Fatalf("%d pages of %d are gone", gone, len(pages))
		}
		// The remaining feed begins at some entity: besides the deleted messages at most the
		// rest of a page and the next page are missing.
		r, text := s.verify("--limit", "10000", "--feed", s.feedURL, "--feed", s.url+"/feeds/orders/latest")
		if !r.Complete || r.Missing < taken || r.Missing > taken+2*servedPage || r.Equal != servedLength-r.Missing || *r.Differences[r.Missing-1].First != r.Missing-1 {
			t.Errorf("of %d entities %d were taken: %s", servedLength, taken, text)
		}
		if r, text := s.verify("--feed", s.url+"/feeds/orders/latest", "--served", "orders"); !r.Same() || !r.Complete {
			t.Errorf("got %s", text)
		}
	})
}

// servedKafka is a feed, a broker, and the program that serves the broker's topics.
type servedKafka struct {
	t       *testing.T
	feed    *samplefeed.Feed // grows
	feedURL string
	broker  *kafkatest.Broker
	url     string // of the server
	env     []string
}

func newServedKafka(t *testing.T) *servedKafka {
	s := &servedKafka{t: t, feed: samplefeed.New(samplefeed.Options{PageSize: pageLength, Entity: samplefeed.Sized(100)}), broker: kafkatest.Start(t)}
	upstream := httptest.NewServer(s.feed)
	t.Cleanup(upstream.Close)
	s.feedURL = upstream.URL + "/feed/latest"
	listen := freeAddress(t)
	s.url = "http://" + listen
	s.env = []string{
		"FEEDBRIDGE_BUSES_LAKE_KAFKA_BROKERS=" + s.broker.Addr(),
		"FEEDBRIDGE_SERVE_LISTEN=" + listen,
		fmt.Sprintf("FEEDBRIDGE_SERVE_FEEDS_ORDERS_PAGE_SIZE=%d", servedPage),
		"FEEDBRIDGE_SERVE_FEEDS_STATE_FROM_TOPIC=state",
		"FEEDBRIDGE_ADMIN_LISTEN=",
	}
	spawn(t, "feedbridge", s.env, "run")
	return s
}

// copy starts what copies the feed to the topic.
func (s *servedKafka) copy() *exec.Cmd {
	cmd, _ := spawn(s.t, "feedbridge", []string{
		"FEEDBRIDGE_BUSES_LAKE_KAFKA_BROKERS=" + s.broker.Addr(),
		"FEEDBRIDGE_BUSES_LAKE_KAFKA_TIMEOUT=2s",
		"FEEDBRIDGE_FEEDS_ORDERS_URL=" + s.feedURL,
		"FEEDBRIDGE_FEEDS_ORDERS_EVERY=200ms",
		"FEEDBRIDGE_FEEDS_ORDERS_LIMITS_RATE=40",
		"FEEDBRIDGE_ADMIN_LISTEN=",
	}, "run")
	return cmd
}

// abort writes messages to the topic, and aborts their transaction.
func (s *servedKafka) abort(n int) {
	s.t.Helper()
	client := newKafkaClient(s.t, s.broker.Addr(), kgo.TransactionalID(fmt.Sprintf("another-%d", n)), kgo.DefaultProduceTopic("orders"))
	must.Succeed(s.t, client.BeginTransaction())
	for i := range 2 * servedPage {
		r := &kgo.Record{Value: []byte("aborted"), Headers: []kgo.RecordHeader{{Key: "Content-ID", Value: fmt.Appendf(nil, "aborted-%d-%d", n, i)}}}
		must.Succeed(s.t, client.ProduceSync(s.t.Context(), r).FirstErr())
	}
	must.Succeed(s.t, client.EndTransaction(s.t.Context(), kgo.TryAbort))
}

// tailing is a reader that follows the served feed.
type tailing struct {
	s     *servedKafka
	lines *bufio.Scanner
}

func (s *servedKafka) tail() tailing {
	s.t.Helper()
	awaitKafka(s.t, func() bool { status, _, _ := s.get(s.t, "/feeds/orders/latest"); return status == http.StatusOK })
	_, out := spawn(s.t, "feedbridge", nil, "tail", "--follow", s.url+"/feeds/orders/latest")
	return tailing{s, bufio.NewScanner(out)}
}

// ids are the Content-IDs of the first n entities.
func (r tailing) ids(n int) []string {
	r.s.t.Helper()
	ids := []string{}
	for len(ids) < n && r.lines.Scan() {
		var line struct{ ID string }
		if err := json.Unmarshal(r.lines.Bytes(), &line); err != nil {
			r.s.t.Fatalf("%v in %s", err, r.lines.Text())
		}
		ids = append(ids, line.ID)
	}
	return ids
}

var linkLine = regexp.MustCompile(`^<(.*)>; rel=(self|prev|next)$`)

// get asks the server for a path, or for a URL.
func (s *servedKafka) get(t *testing.T, path string) (status int, links map[string]string, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+strings.TrimPrefix(path, s.url), nil)
	must.Succeed(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, "" // it is not up yet
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	links = map[string]string{}
	for _, line := range resp.Header["Link"] {
		if m := linkLine.FindStringSubmatch(line); m != nil {
			links[m[2]] = m[1]
		}
	}
	return resp.StatusCode, links, string(b)
}

// verify compares, and returns the report.
func (s *servedKafka) verify(args ...string) (r comparison, text string) {
	s.t.Helper()
	var out bytes.Buffer
	var errs logbuffer.Buffer
	runProgram(append([]string{"verify", "--json"}, args...), append(os.Environ(), s.env...), nil, &out, &errs)
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		s.t.Fatalf("%v: %s%s", err, out.String(), errs.String())
	}
	return r, out.String() + errs.String()
}

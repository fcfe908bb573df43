package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// upstreamFeed is a feed, or a site with feeds, that a script may break.
type upstreamFeed struct {
	server *httptest.Server
	feed   *samplefeed.Feed // nil for a site
	pages  http.Handler
	fault  atomic.Pointer[httpfault.Fault] // of every answer
}

func (u *upstreamFeed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := u.fault.Load(); fault != nil {
		(*fault)(w, r, u.pages)
		return
	}
	u.pages.ServeHTTP(w, r)
}

// files serves those of a directory. Their media type is in a file beside them whose name ends
// with .type; without it the extension of the name decides.
type files struct{ dir string }

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file := filepath.Join(f.dir, filepath.FromSlash(path.Clean(r.URL.Path)))
	data, err := os.ReadFile(file)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if kind, err := os.ReadFile(file + ".type"); err == nil {
		w.Header().Set("Content-Type", strings.TrimSpace(string(kind)))
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	http.ServeContent(w, r, file, time.Time{}, bytes.NewReader(data))
}

func site(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 2)
	u := &upstreamFeed{pages: files{ts.MkAbs(args[1])}}
	u.server = httptest.NewServer(u)
	stageOf(ts).upstreams[args[0]] = u
	ts.Setenv(args[0], u.server.URL)
}

// faults are the ways in which a feed can be broken, and healed.
var faults = map[string]httpfault.Fault{
	"healed": nil,
	"down":   httpfault.Reset,
	"gone":   respond(http.StatusGone),
	"broken": respond(http.StatusInternalServerError),
	"html": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><body>Please log in.</body></html>")
	},
	// The sixth page never comes.
	"stuck": on("/feed/pages/5", httpfault.Hang),
	// The third entity of the second page is another one.
	"edited": on("/feed/pages/1", httpfault.Edit(func(_ http.Header, body []byte) []byte {
		id := bytes.Index(body, []byte("Content-ID: 12@sample"))
		edited := bytes.Replace(body[id:], []byte("http-equiv=PUT"), []byte("http-equiv=DELETE"), 1)
		edited = bytes.Replace(edited, []byte("text/plain"), []byte("text/html"), 1)
		return append(body[:id:id], edited...)
	})),
	// Page 21 of the snapshot cannot be read.
	"halfway": on("/feed/snapshots/600/20", httpfault.Status(http.StatusServiceUnavailable)),
	// The second page breaks off.
	"cut": on("/feed/pages/1", httpfault.Cut(700)),
	// The second page is gone.
	"hole": on("/feed/pages/1", respond(http.StatusNotFound)),
	// The second page has a date that is wrong, but not in doubt.
	"weekday": on("/feed/pages/1", httpfault.Edit(func(_ http.Header, body []byte) []byte {
		return bytes.Replace(body, []byte("Wed, 01 Jan 2020"), []byte("Thu, 01 Jan 2020"), 1)
	})),
	// The second page is another one each time: one more entity is a DELETE.
	"unstable": func() httpfault.Fault {
		var n atomic.Int64
		return on("/feed/pages/1", httpfault.Edit(func(h http.Header, body []byte) []byte {
			h.Del("ETag")
			return bytes.Replace(body, []byte("http-equiv=PUT"), []byte("http-equiv=DELETE"), int(n.Add(1)))
		}))
	}(),
	"headless": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodHead {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	},
	"moved": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/feed/latest" {
			http.Redirect(w, r, "/feed/pages/0", http.StatusMovedPermanently)
			return
		}
		next.ServeHTTP(w, r)
	},
	"private": respond(http.StatusUnauthorized),
	// Only requests with the key, or without any, are answered.
	"keyed":   ifKeyed(true),
	"keyless": ifKeyed(false),
	// The second page has an entity of the first one again.
	"repeated": on("/feed/pages/1", httpfault.Edit(func(_ http.Header, body []byte) []byte {
		return bytes.ReplaceAll(body, []byte("Content-ID: 12@sample"), []byte("Content-ID: 3@sample"))
	})),
}

func respond(code int) httpfault.Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { http.Error(w, "no", code) }
}

// ifKeyed answers requests only if they have the headers and the token of a key, or only if they have none.
func ifKeyed(keyed bool) httpfault.Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if sent := r.Header.Get("X-Key") + r.Header.Get("Authorization"); keyed && sent != "kBearer key" || !keyed && sent != "" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// on is a fault of only one page.
func on(path string, fault httpfault.Fault) httpfault.Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodGet || r.URL.Path != path {
			next.ServeHTTP(w, r)
			return
		}
		fault(w, r, next)
	}
}

func upstream(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 2)
	u := &upstreamFeed{feed: samplefeed.New(samplefeed.Options{PageSize: 10, Entity: samplefeed.Sized(100)})}
	u.pages = u.feed
	u.server = httptest.NewServer(u)
	stageOf(ts).upstreams[args[0]] = u
	ts.Setenv(args[0], u.server.URL+"/feed/latest")
	ts.Setenv(args[0]+"_ADDR", u.server.Listener.Addr().String())
	grow(ts, neg, args)
}

func upstreamOf(ts *testscript.TestScript, name string) *upstreamFeed {
	u := stageOf(ts).upstreams[name]
	if u == nil {
		ts.Fatalf("there is no upstream %s", name)
	}
	return u
}

func grow(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 2)
	length, err := strconv.Atoi(args[1])
	ts.Check(err)
	upstreamOf(ts, args[0]).feed.SetLen(length)
}

func spoil(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 2)
	fault, known := faults[args[1]]
	if !known {
		ts.Fatalf("there is no fault %s", args[1])
	}
	u := upstreamOf(ts, args[0])
	if fault == nil {
		u.fault.Store(nil)
		return
	}
	u.fault.Store(&fault)
}

// publish sends messages to a topic on NATS as programs do that know nothing of
// feedbridge. Each line of a file is one: its Content-ID, if that is not -, and
// its body.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, 3)
	nc, err := nats.Connect(args[0], nats.Timeout(patience))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: args[1], Subjects: []string{args[1]}})
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile(args[2])) {
		id, body, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		m := &nats.Msg{Subject: args[1], Data: []byte(body)}
		if id != "-" {
			m.Header = nats.Header{"Content-ID": {id}}
		}
		_, err := js.PublishMsg(ctx, m)
		ts.Check(err)
	}
}

// listMessages writes a line for each message of a topic: its operation and its ID.
func listMessages(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, 3)
	all, err := readBus(args[0], args[1])
	ts.Check(err)
	var text strings.Builder
	for _, m := range all {
		fields := map[string]string{}
		for _, f := range m.Headers {
			fields[f[0]] = f[1]
		}
		fmt.Fprintln(&text, strings.TrimPrefix(fields["Operation-Type"], "http-equiv="), fields["Content-ID"])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text.String()), 0o600))
}

// holds compares a topic with what tail has printed: the same entities in the
// same order, with the same bodies and headers.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, 3)
	var tailed []entityLine
	for text := range strings.Lines(ts.ReadFile(args[2])) {
		var l tailedLine
		ts.Check(json.Unmarshal([]byte(text), &l))
		tailed = append(tailed, entityLine{Headers: l.Headers, Body: l.text(), Base64: l.Base64})
	}
	messages, err := readBus(args[0], args[1])
	ts.Check(err)
	if diff := cmp.Diff(tailed, messages, cmp.Transformer("sorted", func(h [][2]string) []string {
		lines := make([]string, len(h))
		for i, field := range h {
			lines[i] = field[0] + ": " + field[1]
		}
		slices.Sort(lines)
		return lines
	})); diff != "" {
		ts.Fatalf("topic %s differs from %s (-%[2]s +%[1]s):\n%s", args[1], args[2], diff)
	}
}

// readBus returns all messages of a topic on a bus of either kind.
func readBus(bus, topic string) ([]entityLine, error) {
	if broker, onKafka := strings.CutPrefix(bus, "kafka://"); onKafka {
		return readKafka(broker, topic)
	}
	return readTopic(bus, topic)
}

// readTopic returns all messages of a topic, without what feedbridge has added
// to their headers. It uses nothing of feedbridge.
func readTopic(url, topic string) ([]entityLine, error) {
	nc, err := nats.Connect(url, nats.Timeout(patience))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := js.Stream(ctx, topic)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(topic))
	if err != nil {
		return nil, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{topic}})
	if err != nil {
		return nil, err
	}
	var lines []entityLine
	for range info.State.Subjects[topic] {
		msg, err := consumer.Next(jetstream.FetchMaxWait(patience))
		if err != nil {
			return nil, err
		}
		l := entityLine{Body: string(msg.Data())}
		for name, values := range msg.Headers() {
			for _, value := range values {
				if !strings.HasPrefix(name, "Feedbridge-") && !strings.HasPrefix(name, "Nats-") {
					l.Headers = append(l.Headers, [2]string{name, value})
				}
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

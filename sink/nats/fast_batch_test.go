package nats_test

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// streams are those for the two ways of fast ingest, by name.
var streams = map[string][]string{
	"a stream of its own": nil,
	"a shared stream":     {"other"},
}

// fastStream creates the stream of the topic with other subjects.
func fastStream(t *testing.T, url string, others []string) jetstream.JetStream {
	t.Helper()
	config := fitting()
	config.AllowBatchPublish = true
	config.Subjects = append(append(config.Subjects, deadSubject), others...)
	js := admin(t, url)
	createStream(t, js, config)
	return js
}

// newest returns the newest message on a subject of the stream.
func newest(t *testing.T, js jetstream.JetStream, subject string) *jetstream.RawStreamMsg {
	t.Helper()
	stream := ordersStream(t, js)
	m, err := stream.GetLastMsgForSubject(t.Context(), subject)
	must.Succeed(t, err)
	return m
}

// The first commit is an atomic batch, so that the beginning of a topic is never without a checkpoint.
func TestCommitsAreFastAfterTheFirst(t *testing.T) {
	t.Parallel()
	for name, others := range streams {
		parallel.Run(t, name, func(t *testing.T) {
			url := runServer(t, &server.Options{JetStream: true}).ClientURL()
			js := fastStream(t, url, others)
			conn := connect(t, nats.Config{URL: url})
			s := conn.Sink(orders())
			resume(t, s)
			for n, fast := range []bool{false, true, true} {
				commit(t, s, 3*n, 3*n+3)
				if atomic := newest(t, js, orders().Subject).Header.Get("Nats-Batch-Id") != ""; atomic == fast {
					t.Errorf("commit %d is an atomic batch: %v", n, atomic)
				}
			}
			wantFeed(t, s, 9)
			again := conn.Sink(orders())
			resumeAndCommit(t, again, 9, 12)
			commit(t, again, 12, 12)
			commit(t, again, 12, 15)
			if newest(t, js, orders().Subject).Header.Get("Nats-Batch-Id") != "" {
				t.Error("the last commit is an atomic batch")
			}
			wantFeed(t, s, 15)
			if err := s.Commit(t.Context(), sinktest.Entities(9, 3), sinktest.At(12)); !errors.Is(err, checkpoint.ErrConflict) {
				t.Errorf("a stale writer: %v", err)
			}
			wantFeed(t, again, 15)
		})
	}
}

// A copy dies while its commit is on the way: the server has some of its messages, and others arrive
// when another copy has taken over. They are not stored, and those that were are not published again.
func TestMessagesOfADeadCopyArriveLate(t *testing.T) {
	t.Parallel()
	const whole, all = 5, 25
	for name, others := range streams {
		for late := range 4 { // where the other copy is when the rest arrives
			parallel.Run(t, name+", "+[]string{"before it resumes", "before it commits", "after its first commit", "after its second commit"}[late], func(t *testing.T) {
				url := runServer(t, &server.Options{JetStream: true}).ClientURL()
				js := fastStream(t, url, others)
				conn := connect(t, nats.Config{URL: url})
				dying, heir := conn.Sink(orders()), conn.Sink(orders())
				resumeAndCommit(t, dying, 0, 2)
				commit(t, dying, 2, whole)
				first, rest := cutCommit(t, url, js, dying, whole, all)
				first()
				eventually(t, "the server has stored the beginning", func() bool { return spanOf(t, dying.Log()).End > whole+6 })
				steps := []func(){
					func() { resume(t, heir) },
					func() { publishFresh(t, heir, whole, whole+15) },
					func() { publishFresh(t, heir, whole+15, all) },
				}
				for i, step := range steps {
					if i == late {
						rest()
					}
					step()
				}
				if late == len(steps) {
					rest()
				}
				resume(t, heir)
				publishFresh(t, heir, whole, all)
				wantFeed(t, heir, all)
			})
		}
	}
}

// A copy that has resumed does not know the beginning of the fast batch of the copy that committed last.
func TestACopyDoesNotKnowATornFastBatch(t *testing.T) {
	t.Parallel()
	const whole, all = 5, 25
	for name, others := range streams {
		parallel.Run(t, name, func(t *testing.T) {
			url := runServer(t, &server.Options{JetStream: true}).ClientURL()
			js := fastStream(t, url, others)
			conn := connect(t, nats.Config{URL: url})
			dying, heir := conn.Sink(orders()), conn.Sink(orders())
			resumeAndCommit(t, dying, 0, 2)
			commit(t, dying, 2, whole)
			resume(t, heir)
			first, _ := cutCommit(t, url, js, dying, whole, all)
			first()
			eventually(t, "the server has stored the beginning", func() bool { return spanOf(t, dying.Log()).End > whole+6 })
			publishFresh(t, heir, whole, all)
			wantFeed(t, heir, all)
		})
	}
}

// A message of a fast batch is lost on its way. The server stores those before it, and says so.
func TestAMessageOfAFastBatchIsLost(t *testing.T) {
	t.Parallel()
	second := regexp.MustCompile(`HPUB \S+ \S+\.2\.1\.\$FI \d+ (\d+)\r\n`)
	for name, others := range streams {
		parallel.Run(t, name, func(t *testing.T) {
			running := runServer(t, &server.Options{JetStream: true})
			fastStream(t, running.ClientURL(), others)
			p := runProxy(t, running.Addr().String())
			s := connect(t, nats.Config{URL: p.url()}).Sink(orders())
			resumeAndCommit(t, s, 0, 3)
			p.setChange(false, func(data []byte) []byte {
				at := second.FindSubmatchIndex(data)
				if at == nil {
					return data
				}
				size, err := strconv.Atoi(string(data[at[2]:at[3]]))
				if err != nil || at[1]+size+2 > len(data) {
					t.Errorf("the message is not sent at once: %v", err)
					return data
				}
				return append(data[:at[0]], data[at[1]+size+2:]...)
			})
			wantError(t, s.Commit(t.Context(), sinktest.Entities(3, 3), sinktest.At(6)), false, nil, "lost on its way to the server")
			p.setChange(false, nil)
			if cp := resume(t, s); cp.Count != 4 {
				t.Errorf("%d entities are counted, want 4", cp.Count)
			}
			publishFresh(t, s, 3, 6)
			wantFeed(t, s, 6)
		})
	}
}

// publishFresh commits those of the entities that s does not know, and resumes until it is stored.
func publishFresh(t *testing.T, s *nats.Sink, from, to int) {
	t.Helper()
	for {
		fresh := sinktest.Entities(from, to-from)
		for len(fresh) > 0 && !s.IDs().Add(fresh[0].ID) {
			fresh = fresh[1:]
		}
		s.IDs().Rollback()
		err := s.Commit(t.Context(), fresh, sinktest.At(to))
		if err == nil {
			return
		}
		t.Log(err)
		if !errors.Is(err, checkpoint.ErrConflict) && !strings.Contains(err.Error(), "beginning of a batch") {
			t.Fatal(err)
		}
		resume(t, s)
	}
}

// cutCommit makes s commit entities over a connection that forwards nothing, and returns functions that
// forward the first ten messages of the commit, and the rest.
func cutCommit(t *testing.T, url string, js jetstream.JetStream, s *nats.Sink, from, to int) (first, rest func()) {
	t.Helper()
	// The messages are those that the sink sends to another server, whose stream is the same.
	copied := runServer(t, &server.Options{JetStream: true}).ClientURL()
	stream := ordersStream(t, js)
	info, err := stream.Info(t.Context())
	must.Succeed(t, err)
	createStream(t, admin(t, copied), info.Config)
	twin := connect(t, nats.Config{URL: copied}).Sink(orders())
	resumeAndCommit(t, twin, 0, 2)
	commit(t, twin, 2, from)
	nc, err := natsgo.Connect(copied)
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(">")
	must.Succeed(t, err)
	must.Succeed(t, nc.Flush())
	commit(t, twin, from, to)
	must.Succeed(t, nc.Flush())
	var messages []*natsgo.Msg
	for {
		m, err := sub.NextMsg(0)
		if err != nil {
			break
		}
		if strings.HasSuffix(m.Reply, ".$FI") {
			messages = append(messages, m)
		}
	}
	if len(messages) != to-from+1 {
		t.Fatalf("%d messages of the commit", len(messages))
	}
	dying, err := natsgo.Connect(url)
	must.Succeed(t, err)
	t.Cleanup(dying.Close)
	send := func(messages []*natsgo.Msg) {
		for _, m := range messages {
			if err := dying.PublishMsg(&natsgo.Msg{Subject: m.Subject, Reply: m.Reply, Header: m.Header, Data: bytes.Clone(m.Data)}); err != nil {
				t.Error(err)
			}
		}
		if err := dying.Flush(); err != nil {
			t.Error(err)
		}
	}
	return func() { send(messages[:10]) }, func() { send(messages[10:]) }
}

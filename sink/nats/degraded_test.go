package nats_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

const noMessage = `{"error": {"code": 404, "err_code": 10037, "description": "no message found"}}`

// runScript runs a server without JetStream and answers requests to a subject: each with
// the next answer, and all later ones with the last answer. There is a suitable stream.
func runScript(t *testing.T, answers map[string][]string) (url string) {
	t.Helper()
	s := runServer(t, &server.Options{})
	nc, err := natsgo.Connect(s.ClientURL(), natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	config, err := json.Marshal(fitting())
	must.Succeed(t, err)
	answers["$JS.API.STREAM.INFO.shop_orders"] = []string{fmt.Sprintf(`{"config": %s, "state": {}}`, config)}
	for subject, list := range answers {
		// The messages of one subscription are handled one after the other.
		next := 0
		_, err := nc.Subscribe(subject, func(m *natsgo.Msg) {
			_ = m.Respond([]byte(list[min(next, len(list)-1)]))
			next++
		})
		must.Succeed(t, err)
	}
	must.Succeed(t, nc.Flush())
	return s.ClientURL()
}

func TestAnotherMakesTheFirstCommitWhileThisOneLooks(t *testing.T) {
	t.Parallel()
	last := fmt.Sprintf(`{"message": {"seq": 3, "data": %q}}`, base64.StdEncoding.EncodeToString(checkpoint.Encode(sinktest.At(2))))
	url := runScript(t, map[string][]string{"$JS.API.STREAM.MSG.GET.shop_orders": {
		noMessage,                 // of the checkpoint
		`{"message": {"seq": 2}}`, // of the topic: the commit was made in between
		last,
	}})
	cp, err := connect(t, nats.Config{URL: url}).Sink(orders()).Checkpoint(t.Context())
	if err != nil || cp.Count != 2 {
		t.Errorf("checkpoint %+v (%v), want that of the commit", cp, err)
	}
}

// A server takes longer for an answer than a client waits before it repeats its request, and the
// answers to repeated requests come after those to all earlier ones.
func TestAnswerToAnEarlierRequestCounts(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{})
	nc, err := natsgo.Connect(s.ClientURL(), natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	var before *natsgo.Msg
	if _, err := nc.Subscribe("$JS.API.STREAM.INFO.shop_orders", func(m *natsgo.Msg) {
		if before != nil {
			_ = before.Respond([]byte(`{"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}`))
		}
		before = m
	}); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, nc.Flush())
	_, err = connect(t, nats.Config{URL: s.ClientURL(), Timeout: 20 * time.Second}).Log("shop.orders", "shop_orders").Span(t.Context())
	wantError(t, err, false, feed.ErrNoTopic)
}

// TestServerAcknowledgesWithoutBatch has a stream whose configuration allows
// atomic batches and whose leader knows none, as while a cluster is upgraded.
func TestServerAcknowledgesWithoutBatch(t *testing.T) {
	t.Parallel()
	url := runScript(t, map[string][]string{
		"$JS.API.STREAM.MSG.GET.shop_orders": {noMessage},
		"_feedbridge.shop.orders":            {`{"stream": "shop_orders", "seq": 3}`},
	})
	sink := connect(t, nats.Config{URL: url}).Sink(orders())
	resume(t, sink)
	err := sink.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2))
	wantError(t, err, true, nil, "this server has no atomic batches", "make every server of the cluster 2.12 or newer")
	resume(t, sink)
	if err := sink.Commit(t.Context(), nil, sinktest.At(0)); err != nil {
		t.Errorf("a checkpoint alone needs no batch: %v", err)
	}
}

func TestServerIsTooOld(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go greet(conn)
		}
	}()
	c := connect(t, nats.Config{URL: "nats://" + l.Addr().String()})
	want := "has version 2.11.17, which has no atomic batches; feedbridge needs 2.12 or newer"
	wantError(t, c.Check(t.Context()), true, nil, want)
	_, err = c.Sink(orders()).Resume(t.Context())
	wantError(t, err, true, nil, want)
	// The streams of a domain are on another server, which does not answer here.
	c = connect(t, nats.Config{URL: "nats://" + l.Addr().String(), APIPrefix: "$JS.hub.API"})
	c.SetTimeout(50 * time.Millisecond)
	wantError(t, c.Check(t.Context()), false, nil, "no answer from NATS")
}

// greet is a server that only answers a client's connect.
func greet(conn net.Conn) {
	defer conn.Close()
	fmt.Fprint(conn, `INFO {"server_id":"x","version":"2.11.17","headers":true,"max_payload":1048576}`+"\r\n")
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "PING") {
			fmt.Fprint(conn, "PONG\r\n")
		}
	}
}

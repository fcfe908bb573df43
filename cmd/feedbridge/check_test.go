package main

import (
	"bytes"
	"regexp"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The feed's stream exists and has another subject, so the topic is not created.
func TestCheckOfAServedTopicWhoseStreamLacksIt(t *testing.T) {
	url, _ := startServer(t, "nats", t.TempDir(), "-1")
	nc, err := natsgo.Connect(url, natsgo.Timeout(patience))
	must.Succeed(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	must.Succeed(t, err)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var errs logbuffer.Buffer
	code := runProgram([]string{"check", "--connect"}, []string{
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + url, "FEEDBRIDGE_FEEDS_ORDERS_URL=http://127.0.0.1:1/latest",
		"FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_TOPIC=orders", "FEEDBRIDGE_SERVE_LISTEN=127.0.0.1:0",
	}, nil, &out, &errs)
	want := regexp.MustCompile(`(?ms)^FAIL  topic orders on bus main: .*^FAIL  served feed orders: `)
	if code != 1 || !want.MatchString(out.String()) {
		t.Errorf("exit code %d:\n%s%s", code, out.String(), errs.String())
	}
}

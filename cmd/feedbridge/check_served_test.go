package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Who may look at a topic need not be able to read it.
func TestCheckReadsWhatIsServed(t *testing.T) {
	t.Parallel()
	bus, _ := startServer(t, "nats", t.TempDir(), "-1")
	nc, err := nats.Connect(bus, nats.Timeout(patience))
	must.Succeed(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	must.Succeed(t, err)
	env := []string{"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + bus, "FEEDBRIDGE_SERVE_LISTEN=127.0.0.1:0"}
	for name, c := range map[string]jetstream.StreamConfig{
		"good":  {},
		"empty": {},
		"queue": {Retention: jetstream.WorkQueuePolicy},
		"busy":  {MaxConsumers: 1},
	} {
		env = append(env, "FEEDBRIDGE_SERVE_FEEDS_"+strings.ToUpper(name)+"_FROM_TOPIC="+name)
		c.Name, c.Subjects = name, []string{name}
		stream, err := js.CreateStream(t.Context(), c)
		must.Succeed(t, err)
		if name == "empty" {
			continue
		}
		if _, err := js.Publish(t.Context(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "another"}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	var errs logbuffer.Buffer
	if code := runProgram([]string{"check", "--connect"}, env, nil, &out, &errs); code != 1 {
		t.Errorf("it exits with %d", code)
	}
	for _, want := range []string{
		`ok    served feed good \(good on bus main\)`,
		`ok    served feed empty \(empty on bus main, empty\)`,
		`FAIL  served feed queue: .*work queue.*--retention limits.*`,
		`FAIL  served feed busy: .*maximum consumers limit reached.*`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(out.String()) {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
}

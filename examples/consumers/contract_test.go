package consumers_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Types that Modelina generates from what describe prints about two topics are enough to read them: that of the
// running demo, and one of an Atom feed beside it. Each message has one form of the document.
func TestTypesOfTheContractReadTheDemo(t *testing.T) {
	t.Parallel()
	requirePackages(t)
	program := golang("../../cmd/feedbridge")(t)[0]
	demo := runProgram(t, program, nil, "demo", "--data-dir", t.TempDir())
	orders, bus := demo.await(`the feed +(http\S+)`), demo.await(`the topic +orders, on (nats://\S+)`)
	feed := serveNews(t)
	environ := []string{
		"FEEDBRIDGE_BUSES_DEMO_NATS_URL=" + bus, "FEEDBRIDGE_ADMIN_LISTEN=off",
		"FEEDBRIDGE_FEEDS_NEWS_URL=" + feed.url, "FEEDBRIDGE_FEEDS_NEWS_FORMAT=atom", "FEEDBRIDGE_FEEDS_NEWS_EVERY=100ms",
		"FEEDBRIDGE_FEEDS_NEWS_TO_CLOUDEVENTS=true",
	}
	daemon := runProgram(t, program, environ, "run")
	daemon.await(`"msg":"published","feed":"news","entities":2,(.)`)
	feed.deleted.Store(true)
	daemon.await(`"msg":"published","feed":"news","entities":1,(.)`)
	document := describe(t, program, append(environ, "FEEDBRIDGE_FEEDS_ORDERS_URL="+orders, "FEEDBRIDGE_FEEDS_ORDERS_FORMAT=datareplication"))

	writeFile(t, "typescript/types.ts", output(t, nil, "node", "typescript/generate.mjs", document))
	output(t, nil, "node", "typescript/node_modules/typescript/bin/tsc", "-p", "typescript")
	lines := strings.Split(string(output(t, nil, "node", "typescript/target/consumer.js", bus, "3")), "\n")
	want := []string{
		"PUT\torder-event-0@shop.example.com\t{", "PUT\torder-event-1@shop.example.com\t{", "PATCH\torder-event-2@shop.example.com\t{",
		"PUT\turn:1\tNews\tOld\tAda\t", "PUT\turn:2\tNews\tKäse & Brot\tAda\tfood", "DELETE\turn:1\t2026-03-02T12:00:00Z", "",
	}
	if !slices.EqualFunc(lines, want, strings.HasPrefix) {
		t.Errorf("the consumer printed %q, want %q", lines, want)
	}
	wantForms(t, document, natsMessages(t, bus, map[string]int{"orders": 100, "news": 3}), "news-delete news-put orders-delete orders-patch orders-put")
}

// On Kafka there are keys, tombstones, dead letters and topics of several feeds.
func TestMessagesOnKafkaHaveTheFormsOfTheContract(t *testing.T) {
	t.Parallel()
	requirePackages(t)
	program := golang("../../cmd/feedbridge")(t)[0]
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	feed, file := serveNews(t), filepath.Join(t.TempDir(), "feedbridge.yaml")
	writeFile(t, file, []byte(strings.NewReplacer("BROKER", cluster.ListenAddrs()[0], "URL", feed.url).Replace(`
admin: {listen: off}
buses: {lake: {kafka: {brokers: ["BROKER"]}}}
feeds:
  news: {url: "URL", format: atom, every: 100ms, key: "header:Content-ID", to: {kafka: {delete: tombstone}}}
  strict: {url: "URL", format: atom, every: 100ms, key: "header:Feed-Title", to: {cloudevents: true, kafka: {missing_key: dead-letter}}}
  xml: {url: "URL", format: atom, every: 100ms, body: xml, to: {topic: many, cloudevents: true, kafka: {shared: true}}}
  auto: {url: "URL", every: 100ms, to: {topic: many, kafka: {shared: true}}}
`)))
	environ := []string{"FEEDBRIDGE_CONFIG=" + file}
	daemon := runProgram(t, program, environ, "run")
	feeds := []string{"news", "strict", "xml", "auto"}
	for _, name := range feeds {
		daemon.await(`"msg":"published","feed":"` + name + `","entities":2,(.)`)
	}
	feed.deleted.Store(true)
	messages := kafkaMessages(t, cluster.ListenAddrs()[0], map[string]int{"news": 3, "strict": 2, "strict.dead": 1, "many": 6})
	wantForms(t, describe(t, program, environ), messages, "many-auto-entry-delete many-auto-entry-put many-xml-delete many-xml-put news-delete news-put strict-put strict.dead-dead")
}

// newsFeed is an Atom feed of two entries, the first of which is deleted later.
type newsFeed struct {
	url     string
	deleted atomic.Bool
}

func serveNews(t *testing.T) *newsFeed {
	f := &newsFeed{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		first := `<entry><id>urn:1</id><title>Old</title><updated>2026-03-01T11:00:00Z</updated></entry>`
		if f.deleted.Load() {
			first = `<at:deleted-entry ref="urn:1" when="2026-03-02T12:00:00Z"/>`
		}
		_, _ = w.Write([]byte(`<feed xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0">
<id>urn:news</id><title>News</title><updated>2026-03-01T12:00:00Z</updated><author><name>Ada</name></author>
<entry><id>urn:2</id><title>Käse &amp; Brot</title><updated>2026-03-01T12:00:00Z</updated><category term="food"/><a:b xmlns:a="urn:a">1</a:b></entry>
` + first + `</feed>`))
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// requirePackages looks for the packages that check documents and make types of them.
func requirePackages(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		missing(t, "there is no node: %v", err)
	}
	if _, err := os.Stat("typescript/node_modules"); err != nil {
		missing(t, "the packages are not installed: run npm install --no-package-lock in examples/consumers/typescript")
	}
}

// program is a running program with its log.
type program struct {
	t   *testing.T
	log string
}

func runProgram(t *testing.T, file string, environ []string, args ...string) program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), environ...), log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	return program{t, log.Name()}
}

// await waits until the log has what matches, and returns the first group.
func (p program) await(pattern string) string {
	p.t.Helper()
	wanted := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(p.log)
		if err != nil {
			p.t.Fatal(err)
		}
		if m := wanted.FindSubmatch(text); m != nil {
			return string(m[1])
		}
		if time.Now().After(end) {
			p.t.Fatalf("the log has no %s:\n%s", pattern, text)
		}
	}
}

// describe returns a file with what the program prints about all topics. AsyncAPI's parser has no remark about it.
func describe(t *testing.T, program string, environ []string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "asyncapi.json")
	cmd := exec.Command(program, "describe", "--json")
	cmd.Env, cmd.Stderr = append(os.Environ(), environ...), t.Output()
	document, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, document)
	output(t, nil, "node", "typescript/validate.mjs", file)
	return file
}

// storedMessage is a message for conforms.mjs. Its payload is JSON if its type is.
type storedMessage struct {
	Channel string            `json:"channel"`
	Headers map[string]string `json:"headers"`
	Payload any               `json:"payload"`
	Key     any               `json:"key"`
}

func payload(contentType string, body []byte) any {
	switch {
	case body == nil:
		return nil
	case contentType == "application/json":
		return json.RawMessage(body)
	}
	return string(body)
}

// natsMessages returns the first messages of topics.
func natsMessages(t *testing.T, url string, topics map[string]int) (messages []storedMessage) {
	t.Helper()
	conn, err := nats.Connect(url, nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	for topic, number := range topics {
		consumer, err := js.OrderedConsumer(t.Context(), topic, jetstream.OrderedConsumerConfig{FilterSubjects: []string{topic}})
		if err != nil {
			t.Fatal(err)
		}
		for range number {
			msg, err := consumer.Next(jetstream.FetchMaxWait(patience))
			if err != nil {
				t.Fatal(err)
			}
			headers := map[string]string{}
			for name := range msg.Headers() {
				headers[name] = msg.Headers().Get(name)
			}
			messages = append(messages, storedMessage{topic, headers, payload(headers["Content-Type"], msg.Data()), nil})
		}
	}
	return messages
}

// kafkaMessages returns the messages of topics when they have that many.
func kafkaMessages(t *testing.T, broker string, topics map[string]int) (messages []storedMessage) {
	t.Helper()
	var names []string
	left := 0
	for topic, number := range topics {
		names, left = append(names, topic), left+number
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(names...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for left > 0 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			var key any
			if r.Key != nil {
				key = string(r.Key)
			}
			messages = append(messages, storedMessage{r.Topic, headers, payload(headers["Content-Type"], r.Value), key})
			left--
		}
	}
	return messages
}

// wantForms checks that each message has exactly one form of the document, and that there was one of each of the
// forms in want.
func wantForms(t *testing.T, document string, messages []storedMessage, want string) {
	t.Helper()
	var lines bytes.Buffer
	for _, m := range messages {
		if err := json.NewEncoder(&lines).Encode(m); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.TrimSpace(string(output(t, lines.Bytes(), "node", "typescript/conforms.mjs", document))); got != want {
		t.Errorf("got %s, want messages of the forms %s", got, want)
	}
}

// output returns what a command prints.
func output(t *testing.T, input []byte, command string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return out
}

func writeFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

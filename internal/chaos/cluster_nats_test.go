//go:build chaos && linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/sink"
)

// natsStoreSize is the disk space of a nats-server, in bytes.
const natsStoreSize = 512 << 20

// natsBus is a nats-server, or a cluster of three with replicated streams.
type natsBus struct {
	nodes   []*node
	urls    []string // for clients
	monitor []string
	conn    *nats.Conn
	js      jetstream.JetStream

	accountFile string // is included by the configuration of each server
}

// natsAccount is the account of all clients.
const natsAccount = "chaos"

func newNATS(scenario string, nodes int) (bus, error) {
	b := &natsBus{accountFile: chaosDir(scenario, "account.conf")}
	if err := b.writeAccount(0, ""); err != nil {
		return nil, err
	}
	var routes []string
	ports := make([][3]int, nodes)
	for i := range nodes {
		n, err := newNode(scenario, i+1, natsStoreSize)
		if err != nil {
			return nil, err
		}
		for j := range ports[i] {
			// Only one cluster of a run is on a host that nodes share.
			if ports[i][j], err = freePort(n.listenHost()); err != nil {
				return nil, err
			}
		}
		b.nodes = append(b.nodes, n)
		b.urls = append(b.urls, "nats://"+n.address(ports[i][0]))
		b.monitor = append(b.monitor, "http://"+n.address(ports[i][1]))
		routes = append(routes, "nats://"+n.address(ports[i][2]))
	}
	for i, n := range b.nodes {
		// Everything else is as a stock server has it.
		text := fmt.Sprintf("server_name: %s\nlisten: %q\nhttp: %q\nmax_payload: %d\njetstream { store_dir: %q }\nno_auth_user: %s\ninclude ../account.conf\n",
			n.name, n.address(ports[i][0]), n.address(ports[i][1]), messageLimit, n.store, natsAccount)
		if nodes > 1 {
			text += fmt.Sprintf("cluster { name: chaos, listen: %q, routes: [%s] }\n", n.address(ports[i][2]), strings.Join(routes, ", "))
		}
		file := filepath.Join(n.dir, "nats.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		n.command = func() (*exec.Cmd, error) { return exec.Command(chaosDir("nats-server"), "-c", file), nil }
		n.ready = func(ctx context.Context) error {
			var health struct{ Status string }
			if err := getJSON(ctx, b.monitor[i]+"/healthz?js-enabled-only=true", &health); err != nil {
				return err
			}
			if health.Status != "ok" {
				return fmt.Errorf("status %q", health.Status)
			}
			return nil
		}
	}
	var err error
	b.conn, err = nats.Connect(strings.Join(b.urls, ","), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(time.Second), nats.DontRandomize(),
		nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		return nil, err
	}
	b.js, err = jetstream.New(b.conn)
	return b, err
}

func (b *natsBus) servers() []*node { return b.nodes }
func (b *natsBus) close()           { b.conn.Close() }

func (b *natsBus) configure() string {
	return fmt.Sprintf("nats: {url: %q, timeout: 2s}", strings.Join(b.urls, ","))
}

func (b *natsBus) configureTopic(f *feed) string {
	if streamOf(f.topic) == sharedStream {
		return fmt.Sprintf("topic: %s, stream: {name: %s, create: false}", f.topic, sharedStream)
	}
	return fmt.Sprintf("stream: {replicas: %d}", len(b.nodes))
}

// sharedStream is the stream of all topics whose first token it is.
const sharedStream = "shared"

func streamOf(topic string) string {
	stream, _, _ := strings.Cut(topic, ".")
	return stream
}

// createShared creates the shared stream, which allows fast ingest.
func (b *natsBus) createShared(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := b.js.CreateOrUpdateStream(attempt, jetstream.StreamConfig{
			Name: sharedStream, Subjects: []string{sharedStream + ".>", "_feedbridge." + sharedStream + ".>"}, Replicas: len(b.nodes),
			AllowAtomicPublish: true, AllowBatchPublish: true, AllowRollup: true, AllowMsgTTL: true,
		})
		cancel()
		// The cluster may have no leader yet.
		if err == nil || pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// checkIngest returns an error unless a copy reports that commits to the topic of a feed in the shared
// stream are stored by fast ingest, or by atomic batches if the stream is replicated.
func (b *natsBus) checkIngest(ctx context.Context, copies []*program, f *feed) error {
	want := "fast_ingest"
	if len(b.nodes) > 1 {
		want = "atomic_batches"
	}
	for streamOf(f.topic) == sharedStream {
		for _, p := range copies {
			// It is empty if the copy has not read the checkpoint.
			if s, err := p.status(ctx, f); err == nil && s.CommitsBy != "" {
				if s.CommitsBy != want {
					return fmt.Errorf("%s commits %s by %s, want %s", p.name, f.name, s.CommitsBy, want)
				}
				return nil
			}
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("no copy reports how %s is committed", f.name)
		}
	}
	return nil
}

// stream returns the stream of a topic, and the number of messages of its subjects.
func (b *natsBus) stream(ctx context.Context, topic string) (jetstream.Stream, *jetstream.StreamInfo, error) {
	s, err := b.js.Stream(ctx, streamOf(topic))
	if err != nil {
		return nil, nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	return s, info, err
}

// leaders returns one node: the checkpoint is in the same stream.
func (b *natsBus) leaders(ctx context.Context, topic string) ([]*node, error) {
	_, info, err := b.stream(ctx, topic)
	if err != nil {
		return nil, err
	}
	if info.Cluster == nil {
		return b.nodes[:1], nil
	}
	n, err := b.named(info.Cluster.Leader)
	return []*node{n}, err
}

func (b *natsBus) controller(ctx context.Context) (*node, error) {
	var status struct {
		Meta struct{ Leader string } `json:"meta_cluster"`
	}
	var err error
	for _, url := range b.monitor {
		if err = getJSON(ctx, url+"/jsz", &status); err == nil && status.Meta.Leader != "" {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return b.named(status.Meta.Leader)
}

func (b *natsBus) named(name string) (*node, error) {
	for _, n := range b.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node leads: %q", name)
}

func (b *natsBus) tip(ctx context.Context, topic string) (int, string, error) {
	s, info, err := b.stream(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	n := int(info.State.Subjects[topic])
	if n == 0 {
		return 0, "", nil
	}
	last, err := s.GetLastMsgForSubject(ctx, topic)
	if err != nil {
		return 0, "", err
	}
	return n, last.Header.Get(contentIDHeader), nil
}

func (b *natsBus) read(ctx context.Context, topic string, dead bool) ([]message, error) {
	s, info, err := b.stream(ctx, topic)
	if err != nil {
		return nil, err
	}
	subject := topic
	if dead {
		subject += sink.DeadSuffix
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return nil, err
	}
	all := make([]message, info.State.Subjects[subject])
	if len(all) == 0 {
		return nil, nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	for i := range all {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("message %d of %d: %w", i, len(all), err)
		}
		all[i] = message{m.Headers().Get(contentIDHeader), string(m.Data()), m.Headers().Get(deadReasonHeader)}
	}
	return all, nil
}

func (b *natsBus) remove(ctx context.Context, topic string) error {
	if streamOf(topic) != sharedStream {
		return b.js.DeleteStream(ctx, topic)
	}
	s, err := b.js.Stream(ctx, sharedStream)
	for _, subject := range []string{topic, topic + sink.DeadSuffix, "_feedbridge." + topic} {
		if err == nil {
			err = s.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}
	}
	return err
}

// getJSON reads a JSON document from a server.
func getJSON(ctx context.Context, url string, v any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

func (p place) address(port int) string { return net.JoinHostPort(p.host, strconv.Itoa(port)) }

// listenHost is a host of this process where a port of the place can be tried.
func (p place) listenHost() string {
	if p.netns != "" {
		return hubAddress
	}
	return p.host
}

//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A scenario is one task. All versions are published at rate, after those that the feed has when
// the copier starts.
type scenario struct {
	name     string
	what     string
	initial  int // the whole feed, without archives, if duration is 0
	rate     int // versions a second
	duration time.Duration
	window   int
	every    time.Duration // between polls
	kills    bool          // kill the copier, and the bus at every third time
	away     time.Duration // the copier is down for so long
	settled  time.Duration // without a new message, after which the run ends
}

var scenarios = []scenario{
	{name: "kills", what: "kill -9 of the copier and of the NATS server", initial: 500, rate: 100, duration: 45 * time.Second, window: 1000, every: 500 * time.Millisecond, kills: true, settled: 10 * time.Second},
	{name: "away", what: "the copier is down for 18 s, longer than the document reaches back", initial: 500, rate: 100, duration: 25 * time.Second, window: 1000, every: 500 * time.Millisecond, away: 18 * time.Second, settled: 10 * time.Second},
	{name: "speed", what: "a new copier reads one document of 10,000 entries, without faults", initial: 12455, window: 12455, every: 500 * time.Millisecond, settled: 10 * time.Second},
}

// Result is what a run has shown.
type Result struct {
	Counts
	Kills, BusKills int
	CPU             time.Duration
	Took            time.Duration // from the first request to the last message
}

func (r *Result) add(other Result) {
	r.Lost += other.Lost
	r.EditsLost += other.EditsLost
	r.Twice += other.Twice
	r.OutOfOrder += other.OutOfOrder
	r.Kills += other.Kills
	r.BusKills += other.BusKills
}

type run struct {
	scenario
	peer    peer
	command []string
	random  *rand.Rand
	dir     string

	feed   *feed
	copier *process
	bus    *process
	stream jetstream.JetStream
	result Result
}

func (r *run) do(ctx context.Context) (Result, error) {
	r.feed = newFeed(r.window)
	r.feed.noArchives = r.duration == 0
	r.feed.grow(r.initial)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Result{}, err
	}
	server := &http.Server{Handler: r.feed, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // it returns when it is closed
	defer func() { _ = server.Close() }()

	natsURL, err := r.startBus(ctx)
	if err != nil {
		return Result{}, err
	}
	defer r.bus.stop()
	conn, err := connect(ctx, natsURL)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	if r.stream, err = jetstream.New(conn); err != nil {
		return Result{}, err
	}
	if !r.peer.ownStream {
		// Repeats are dropped by Nats-Msg-Id for longer than a run takes. The default is two minutes.
		_, err := r.stream.CreateStream(ctx, jetstream.StreamConfig{Name: "entries", Subjects: []string{"entries"}, Duplicates: time.Hour})
		if err != nil {
			return Result{}, err
		}
	}
	r.copier, err = startProcess(filepath.Join(r.dir, "copier.log"), func() *exec.Cmd {
		cmd := exec.Command(r.command[0], r.command[1:]...) //nolint:noctx // it is killed by stop
		cmd.Dir = r.dir
		cmd.Env = append(os.Environ(), r.peer.env("http://"+listener.Addr().String()+"/feed", natsURL, r.every)...)
		return cmd
	})
	if err != nil {
		return Result{}, err
	}
	defer r.copier.stop()
	r.produce(ctx)
	r.settle(ctx)
	r.copier.stop()
	r.result.CPU = r.copier.cpu
	return r.result, r.read(ctx)
}

// startBus starts a NATS server with file storage, as a process of its own.
func (r *run) startBus(ctx context.Context) (natsURL string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return "", err
	}
	if err := listener.Close(); err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	r.bus, err = startProcess(filepath.Join(r.dir, "bus.log"), func() *exec.Cmd {
		cmd := exec.Command(self) //nolint:noctx // it is killed by stop
		cmd.Env = append(os.Environ(), busVariable+"="+filepath.Join(r.dir, "bus"), "PORT="+port)
		return cmd
	})
	return "nats://127.0.0.1:" + port, err
}

// produce grows the feed at its rate, and makes the faults.
func (r *run) produce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.duration)
	defer cancel()
	faults := make(chan struct{})
	go func() {
		defer close(faults)
		switch {
		case r.kills:
			r.killAtWork(ctx)
		case r.away > 0:
			wait(ctx, r.duration/10)
			r.copier.pause()
			r.result.Kills++
			wait(ctx, r.away)
			r.copier.resume()
		}
	}()
	started := time.Now()
	for wait(ctx, 10*time.Millisecond) {
		r.feed.grow(r.initial + int(time.Since(started).Seconds()*float64(r.rate)))
	}
	r.feed.grow(r.initial + int(r.duration.Seconds())*r.rate)
	<-faults
}

// killAtWork kills the copier, or the bus, up to 150 ms after the copier was sent the current
// document, which is when it publishes. Between two kills are three seconds and a poll.
func (r *run) killAtWork(ctx context.Context) {
	for n := 1; wait(ctx, 3*time.Second); n++ {
		select { // a poll before the wait does not count
		case <-r.feed.served:
		default:
		}
		select {
		case <-r.feed.served:
		case <-ctx.Done():
			return
		}
		wait(ctx, time.Duration(r.random.Int64N(int64(150*time.Millisecond))))
		if n%3 == 0 {
			r.bus.kill()
			r.result.BusKills++
		} else {
			r.copier.kill()
			r.result.Kills++
		}
	}
}

// settle waits until the topic has not grown for a while, or has all entries of a feed that does not grow.
func (r *run) settle(ctx context.Context) {
	var count uint64
	for last := time.Now(); time.Since(last) < r.settled && wait(ctx, 50*time.Millisecond); {
		stream, err := r.topic(ctx)
		if err != nil {
			continue // it does not exist yet, or the bus is starting
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter("entries"))
		if err != nil {
			continue
		}
		if n := info.State.Subjects["entries"]; n != count {
			count, last = n, time.Now()
		}
		if r.duration == 0 && count >= uint64(len(r.feed.newest)) {
			return
		}
	}
}

func (r *run) topic(ctx context.Context) (jetstream.Stream, error) {
	name, err := r.stream.StreamNameBySubject(ctx, "entries")
	if err != nil {
		return nil, err
	}
	return r.stream.Stream(ctx, name)
}

// read reads the topic, and judges it.
func (r *run) read(ctx context.Context) error {
	stream, err := r.topic(ctx)
	if err != nil {
		return fmt.Errorf("find the topic: %w", err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"entries"}})
	if err != nil {
		return err
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return err
	}
	var messages [][]byte
	for pending := info.NumPending; pending > 0; {
		message, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			return fmt.Errorf("read the topic after %d messages: %w", len(messages), err)
		}
		metadata, err := message.Metadata()
		if err != nil {
			return err
		}
		pending = metadata.NumPending
		r.result.Took = metadata.Timestamp.Sub(r.feed.requested)
		messages = append(messages, message.Data())
	}
	r.result.Counts = judge(r.feed.history, messages)
	return nil
}

// wait reports whether ctx has not ended after d.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func connect(ctx context.Context, natsURL string) (*nats.Conn, error) {
	for {
		conn, err := nats.Connect(natsURL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
		if err == nil || !wait(ctx, 100*time.Millisecond) {
			return conn, err
		}
	}
}

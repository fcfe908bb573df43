package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// fastFlow is the number of messages of a fast batch after which the server acknowledges at the
	// latest. It takes at most 500, and divides them among the fast batches of a stream.
	fastFlow = 500
	// pingAfter is the time without an answer after which the server is asked for the state of a
	// fast batch: it may have lost a message, or its acknowledgement may be lost.
	pingAfter = time.Second
)

// The operations of a message of a fast batch, as its reply subject names them.
const (
	fastStart  = "0"
	fastAppend = "1"
	fastCommit = "2"
	fastPing   = "4"
)

// fastBatches receives what the server answers to the fast batches of a connection, which is one
// subscription for all sinks. It is safe for concurrent use.
type fastBatches struct {
	client *client

	mu sync.Mutex
	// nc is the connection with the subscription; nil before the first batch.
	nc *nats.Conn
	// prefix begins the reply subjects, and ends with a dot. It has one length for all connections.
	prefix string
	open   map[string]*fastBatch
}

// begin begins a batch. end must be called when its commit is stored or has failed.
func (f *fastBatches) begin(stream, subject string) (*fastBatch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if nc := f.client.nc(); nc != f.nc {
		prefix := nc.NewInbox() + "."
		if _, err := nc.Subscribe(prefix+">", f.receive); err != nil {
			return nil, err
		}
		f.nc, f.prefix, f.open = nc, prefix, map[string]*fastBatch{}
	}
	b := &fastBatch{nc: f.nc, stream: stream, subject: subject, id: nuid.Next(), changed: make(chan struct{}, 1), flow: fastFlow}
	b.reply = f.prefix + b.id + "." + strconv.Itoa(fastFlow) + ".fail."
	f.open[b.id] = b
	return b, nil
}

// end ends a batch.
func (f *fastBatches) end(b *fastBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, b.id)
}

// receive gives an answer to its batch.
func (f *fastBatches) receive(m *nats.Msg) {
	f.mu.Lock()
	id, _, _ := strings.Cut(m.Subject[len(f.prefix):], ".")
	b := f.open[id]
	f.mu.Unlock()
	if b != nil {
		b.receive(m)
	}
}

// A fastBatch sends the messages of one commit by the fast ingest of nats-server 2.14 (ADR-50). The
// server stores each message as it arrives. After the first that it refuses, or misses, it drops the
// rest. So it stores a beginning of the batch without gaps, and acknowledges only the whole; fence.go has the
// exception. One goroutine sends.
type fastBatch struct {
	nc              *nats.Conn
	stream, subject string
	id              string
	reply           string // all of a reply subject in front of the message's number
	sent            uint64
	changed         chan struct{} // has an element after an answer

	mu sync.Mutex
	// stored is the number of messages that are known to be stored, and flow that after which the
	// server acknowledges.
	stored, flow uint64
	refused      error  // of the first message that was refused or missed
	ack          []byte // of the end of the batch
}

// send sends a message. It waits while twice as many are on the way as the server acknowledges at a
// time. After an error the batch is given up.
func (b *fastBatch) send(ctx context.Context, m *nats.Msg) error {
	operation := fastAppend
	if b.sent == 0 {
		operation = fastStart
	}
	b.sent++
	if err := b.publish(m, operation); err != nil {
		return err
	}
	ended := false
	err := b.wait(ctx, func() bool {
		ended = b.refused != nil || b.ack != nil
		return ended || b.sent < b.stored+2*b.flow
	})
	if err == nil && ended {
		_, err = b.result(ctx)
		err = cmp.Or(err, errors.New("the server has ended the batch before its last message"))
	}
	return err
}

// commit sends the last message, and returns the server's acknowledgement of all. Then they are stored.
func (b *fastBatch) commit(ctx context.Context, m *nats.Msg) ([]byte, error) {
	b.sent++
	if err := b.publish(m, fastCommit); err != nil {
		return nil, err
	}
	return b.result(ctx)
}

// result waits for the end of the batch on the server.
func (b *fastBatch) result(ctx context.Context) ([]byte, error) {
	if err := b.wait(ctx, func() bool { return b.ack != nil }); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ack, b.refused
}

// publish sends a message as number b.sent. nats.go has copied it when it returns.
func (b *fastBatch) publish(m *nats.Msg, operation string) error {
	m.Reply = b.reply + strconv.FormatUint(b.sent, 10) + "." + operation + ".$FI"
	return b.nc.PublishMsg(m)
}

// wait waits until done reports true, which is called with b locked. It asks the server for the state
// of the batch while no answer comes.
func (b *fastBatch) wait(ctx context.Context, done func() bool) error {
	isDone := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return done()
	}
	if isDone() {
		return nil
	}
	ping := time.NewTicker(pingAfter)
	defer ping.Stop()
	for !isDone() {
		select {
		case <-b.changed:
		case <-ping.C:
			if err := b.publish(&nats.Msg{Subject: b.subject}, fastPing); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// receive takes an answer of the server: how far the batch is stored, the error of a message, or the
// end of the batch.
func (b *fastBatch) receive(m *nats.Msg) {
	var answer struct {
		Type     string              `json:"type"`
		Sequence uint64              `json:"seq"`
		Messages uint64              `json:"msgs"`
		Error    *jetstream.APIError `json:"error"`
	}
	err := json.Unmarshal(m.Data, &answer)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ack != nil: // the answer to a ping that met the end on its way
	case m.Header.Get("Status") == strconv.Itoa(http.StatusServiceUnavailable):
		b.refused, b.ack = fmt.Errorf("stream %s does not answer: it is gone, or has no leader", b.stream), m.Data
	case err != nil:
		b.refused, b.ack = fmt.Errorf("NATS answered without an acknowledgement: %w", err), m.Data
	case answer.Type == "ack":
		b.stored, b.flow = max(b.stored, answer.Sequence), max(1, answer.Messages)
	case answer.Type == "gap" && b.refused == nil:
		b.refused = errors.New("a message of the commit was lost on its way to the server, which drops those after it; they are sent again")
	case answer.Type == "err" && b.refused == nil && answer.Error != nil:
		b.refused = answer.Error
	case answer.Type == "":
		b.ack = m.Data
		if b.refused == nil && answer.Error != nil {
			b.refused = answer.Error
		}
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

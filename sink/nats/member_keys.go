package nats

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// fleetTTL is the time for which a member is one without renewing its key. A member that is
	// killed is missed by the others that much later, at most.
	fleetTTL = 12 * time.Second
	// fleetBeat is the interval at which a member renews its key.
	fleetBeat = fleetTTL / 3
	// markerTTL is the time for which the bucket remembers that a key was deleted or has expired.
	markerTTL = time.Minute
)

// bucket is the name of the key-value bucket of a fleet.
type bucket string

// keyPrefix begins the subjects of all keys, as messages have them.
func (b bucket) keyPrefix() string { return "$KV." + string(b) + "." }

// stream returns the name of the bucket's stream.
func (b bucket) stream() string { return "KV_" + string(b) }

// The headers of messages in a bucket.
const (
	markerHeader    = "Nats-Marker-Reason" // of a message that the server stores when a key has expired
	operationHeader = "KV-Operation"
	deleted         = "DEL"
)

// memberKeys are the keys of a bucket, as a watch shows them. They are for one goroutine.
type memberKeys struct {
	prefix string // of subjects
	// messages are the newest of all keys, and then those that follow. ended is closed when there will
	// be no more of them.
	messages chan *nats.Msg
	ended    chan struct{}
	// listed is set when all keys that there were at the start are known.
	listed bool
	// values are those of the keys that are in the bucket, and nil for one that has no time limit.
	values map[string][]byte
	// changed is set when values change.
	changed bool
	stop    func()
}

var errWatchEnded = errors.New("the watch has ended")

// watchKeys watches the keys of the bucket until ctx ends or stop is called. It does not use the
// watch of nats.go, which does not show the headers of messages.
func (b bucket) watchKeys(ctx context.Context, c *client) (*memberKeys, error) {
	js, err := c.nc().JetStream(nats.APIPrefix(c.cfg.apiPrefix()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &memberKeys{
		prefix: b.keyPrefix(), messages: make(chan *nats.Msg, 256), ended: make(chan struct{}),
		values: map[string][]byte{},
	}
	sub, err := js.Subscribe(k.prefix+">", func(m *nats.Msg) {
		select {
		case k.messages <- m:
		case <-ctx.Done():
		}
	}, nats.BindStream(b.stream()), nats.OrderedConsumer(), nats.DeliverLastPerSubject(), nats.Context(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	sub.SetClosedHandler(func(string) { close(k.ended) })
	k.stop = func() {
		_ = sub.Unsubscribe()
		cancel()
	}
	pending, err := sub.InitialConsumerPending()
	k.listed = err == nil && pending == 0
	return k, nil
}

// take records a message. It returns its key, and the key once more if its member has left.
func (k *memberKeys) take(m *nats.Msg) (name string, left []string) {
	name = strings.TrimPrefix(m.Subject, k.prefix)
	if meta, err := m.Metadata(); err == nil && meta.NumPending == 0 && !k.listed {
		k.listed, k.changed = true, true
	}
	before, known := k.values[name]
	if operation := m.Header.Get(operationHeader); operation != "" || m.Header.Get(markerHeader) != "" {
		delete(k.values, name)
		k.changed = k.changed || known
		if operation == deleted {
			left = []string{name}
		}
		return name, left
	}
	var value []byte
	if m.Header.Get(ttl) != "" {
		value = m.Data
	}
	k.values[name] = value
	k.changed = k.changed || !known || string(before) != string(value)
	return name, nil
}

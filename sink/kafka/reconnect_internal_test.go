package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// A probe announces a broker that was unreachable, and no other.
func TestProbe(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	for name, test := range map[string]struct {
		refused bool    // a connection could not be made
		answers []error // of the probes; the last one of all later ones
		want    bool
		probes  int64 // within a minute
	}{
		"a request has failed":              {answers: []error{nil}, want: false, probes: 1},
		"no connection could be made":       {refused: true, answers: []error{nil}, want: true, probes: 1},
		"the broker is away for seconds":    {answers: []error{unreachable, unreachable, unreachable, nil}, want: true, probes: 4},
		"the broker stays away":             {refused: true, answers: []error{unreachable}, want: false, probes: 60},
		"the broker comes back and refuses": {refused: true, answers: []error{unreachable, feed.Permanent(errors.New("refused"))}, want: false, probes: 2},
		"the broker is removed":             {refused: true, answers: []error{unreachable, errGone}, want: false, probes: 2},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			var probes atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newReconnects(ctx, func(_ context.Context, broker int32) error {
				if broker != 7 {
					t.Errorf("broker %d is probed", broker)
				}
				return test.answers[min(int(probes.Add(1)), len(test.answers))-1]
			})
			c := &Conn{client: &client{reconnects: r}}
			reconnected := c.Reconnected()
			// Several connections break at once.
			for range 5 {
				r.suspect(7, test.refused)
			}
			time.Sleep(time.Minute - time.Millisecond)
			synctest.Wait()
			select {
			case <-reconnected.Done():
				if !test.want {
					t.Error("a reconnect was announced")
				}
				if again := c.Reconnected(); again == reconnected {
					t.Error("the context that has ended is returned again")
				}
			default:
				if test.want {
					t.Error("the reconnect was not announced")
				}
			}
			if n := probes.Load(); n != test.probes {
				t.Errorf("%d probes, want %d", n, test.probes)
			}
		})
	}
}

// A probe ends with its connection.
func TestProbeEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var probes atomic.Int32
		r := newReconnects(ctx, func(context.Context, int32) error { probes.Add(1); return errors.New("connection refused") })
		r.suspect(7, true)
		time.Sleep(10 * time.Second)
		cancel()
		synctest.Wait()
		before := probes.Load()
		r.suspect(7, true)
		time.Sleep(10 * time.Second)
		if n := probes.Load(); n != before || before < 9 {
			t.Errorf("%d probes before the end of the connection, and %d after it", before, n-before)
		}
	})
}

func TestPingOfABrokerThatTheClusterDoesNotHave(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	must.Succeed(t, err)
	defer cluster.Close()
	c, err := Connect(t.Context(), Config{Brokers: cluster.ListenAddrs()}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	defer c.Close()
	if err := c.client.ping(t.Context(), 0); err != nil {
		t.Errorf("ping of broker 0: %v", err)
	}
	if err := c.client.ping(t.Context(), 99); !errors.Is(err, errGone) {
		t.Errorf("ping of broker 99: %v, want that it is gone", err)
	}
}

// A broker to which a connection fails is probed. No request was ever sent to it.
func TestBrokerThatIsNotReachedIsProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refuse := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		c := ConnectVia(t, Config{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Second}, slog.New(slog.DiscardHandler), refuse)
		if err := c.Check(t.Context()); err == nil {
			t.Fatal("a broker answers that refuses connections")
		}
		if n := c.Suspects(); n != 1 {
			t.Errorf("%d brokers are probed, want 1", n)
		}
	})
}

// Suspects returns how many brokers are probed.
func (c *Conn) Suspects() int {
	c.client.reconnects.mu.Lock()
	defer c.client.reconnects.mu.Unlock()
	return len(c.client.reconnects.suspects)
}

// Unreachable returns how many brokers were found unreachable and are probed.
func (c *Conn) Unreachable() (n int) {
	c.client.reconnects.mu.Lock()
	defer c.client.reconnects.mu.Unlock()
	for _, unreachable := range c.client.reconnects.suspects {
		if unreachable {
			n++
		}
	}
	return n
}

package daemon_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// A check of the connections tries the fleet, too, on both kinds of buses.
func TestCheckTriesTheFleet(t *testing.T) {
	t.Parallel()
	_, url := newUpstream(t, 1)
	check := func(t *testing.T, bus string) daemon.Connection {
		cfg, err := config.Load(config.Options{Environ: []string{bus, "FEEDBRIDGE_FLEET_NAME=shop", "FEEDBRIDGE_FEEDS_ORDERS_URL=" + url}})
		must.Succeed(t, err)
		for _, c := range daemon.CheckConnections(t.Context(), cfg, daemon.Options{Log: slog.New(slog.DiscardHandler)}, false, func(daemon.Connection) {}) {
			if c.Kind == "fleet" {
				return c
			}
		}
		return daemon.Connection{}
	}
	parallel.Run(t, "NATS", func(t *testing.T) {
		bus, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
		must.Succeed(t, err)
		t.Cleanup(bus.Close)
		if got := check(t, "FEEDBRIDGE_BUSES_MAIN_NATS_URL="+bus.URL()).String(); got != "ok    fleet shop (on bus main, no members yet)" {
			t.Error(got)
		}
		if c := check(t, "FEEDBRIDGE_BUSES_MAIN_NATS_URL=nats://127.0.0.1:1"); c.Kind != "" {
			t.Errorf("on a bus that does not answer: %v", c)
		}
	})
	parallel.Run(t, "Kafka", func(t *testing.T) {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		must.Succeed(t, err)
		t.Cleanup(cluster.Close)
		bus := "FEEDBRIDGE_BUSES_MAIN_KAFKA_BROKERS=" + cluster.ListenAddrs()[0]
		if got := check(t, bus).String(); got != "ok    fleet shop (on bus main, no members yet)" {
			t.Error(got)
		}
		cluster.ControlKey(kmsg.Heartbeat.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
			resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
			return resp, nil, true
		})
		if got := check(t, bus); got.OK || !strings.Contains(got.Error, `may not use the consumer group "feedbridge.shop"`) || !strings.Contains(got.Error, "--operation Read --group feedbridge.shop") {
			t.Error(got)
		}
	})
}

package nats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// runAccounts runs a server with two accounts that have JetStream. The account "shop" uses
// the JetStream of the account "hub" under a prefix; imports are the other subjects of the
// hub that it imports. It returns the URLs of both.
func runAccounts(t *testing.T, domain, prefix, imports string) (hub, shop string) {
	t.Helper()
	port := freePort(t)
	file := filepath.Join(t.TempDir(), "server.conf")
	text := fmt.Sprintf(`
		listen: 127.0.0.1:%d
		jetstream: { store_dir: %s, domain: "%s" }
		accounts: {
			hub: {
				jetstream: enabled
				users: [ { user: hub, password: p } ]
				exports: [ { service: "$JS.API.>" }, { service: "shop.orders" }, { service: "_feedbridge.shop.orders" } ]
			}
			shop: {
				jetstream: enabled
				users: [ { user: shop, password: p } ]
				imports: [ { service: { account: hub, subject: "$JS.API.>" }, to: "%s.>" } %s ]
			}
		}`, port, strconv.Quote(t.TempDir()), domain, prefix, imports)
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	opts, err := server.ProcessConfigFile(file)
	must.Succeed(t, err)
	runServer(t, opts)
	return fmt.Sprintf("nats://hub:p@127.0.0.1:%d", port), fmt.Sprintf("nats://shop:p@127.0.0.1:%d", port)
}

func TestStreamOfAnotherAccount(t *testing.T) {
	t.Parallel()
	hub, shop := runAccounts(t, "", "hub.API", `, { service: { account: hub, subject: "shop.orders" } }, { service: { account: hub, subject: "_feedbridge.shop.orders" } }`)
	s := connect(t, nats.Config{URL: shop, APIPrefix: "hub.API"}).Sink(orders())
	resumeAndCommit(t, s, 0, 3)
	commit(t, s, 3, 5)
	wantFeed(t, connect(t, nats.Config{URL: hub}).Sink(orders()), 5)
}

// The account of the user has a stream with the same name and subjects as the one that is
// read through the prefix. Both are in the same JetStream domain, so the acknowledgement is
// the same as that of the right stream.
func TestAnotherAccountsStreamHasTheSubject(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ domain, prefix string }{{"", "hub.API"}, {"", "$JS.hub.API"}, {"shop", "$JS.hub.API"}} {
		parallel.Run(t, at.domain+" "+at.prefix, func(t *testing.T) {
			hub, shop := runAccounts(t, at.domain, at.prefix, "")
			resume(t, connect(t, nats.Config{URL: shop}).Sink(orders()))
			s := connect(t, nats.Config{URL: shop, APIPrefix: at.prefix}).Sink(orders())
			resume(t, s)
			err := s.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3))
			wantError(t, err, true, nil, "acknowledged a commit for the stream of that name behind api_prefix "+at.prefix, "has the subject _feedbridge.shop.orders, too")
			if cp := resume(t, connect(t, nats.Config{URL: hub}).Sink(orders())); !cp.IsZero() {
				t.Errorf("checkpoint %+v, want none", cp)
			}
		})
	}
}

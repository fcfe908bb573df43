package nats_test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/nats"
)

const fleetBucket = "feedbridge-fleet-shop"

// checkFleet is Check of a copy of the fleet shop.
func checkFleet(t *testing.T, cfg nats.Config) (int, error) {
	t.Helper()
	refusal := refusalOf("")
	member := connectLogging(t, cfg, refusal).Fleet(nats.FleetOptions{Name: "shop"})
	ctx, cancel := refusal.bindContext(t.Context()) // a refused request gets no answer
	defer cancel()
	return member.Check(ctx)
}

func TestCheckOfAFleetChangesNothing(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	if n, err := checkFleet(t, nats.Config{URL: url}); err != nil || n != 0 {
		t.Fatalf("%d members, error %v; want 0 of a fleet that has never run", n, err)
	}
	js := admin(t, url)
	if info, err := js.AccountInfo(t.Context()); err != nil || info.Streams > 0 {
		t.Fatalf("%d streams, error %v", info.Streams, err)
	}
	a := joinFleet(t, url, "a")
	joinFleet(t, url, "b")
	a.await(t, "a", "b")
	kv, err := js.KeyValue(t.Context(), fleetBucket)
	must.Succeed(t, err)
	if _, err := kv.PutString(t.Context(), "no-member", "hello"); err != nil {
		t.Fatal(err)
	}
	if n, err := checkFleet(t, nats.Config{URL: url}); err != nil || n != 2 {
		t.Errorf("%d members, error %v; want 2", n, err)
	}
	keys, err := kv.Keys(t.Context())
	if slices.Sort(keys); err != nil || !slices.Equal(keys, []string{"a", "b", "no-member"}) {
		t.Errorf("the bucket has the keys %v, error %v", keys, err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+fleetBucket)
	must.Succeed(t, err)
	eventually(t, "only the two members watch the bucket", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers == 2
	})
}

// Each permission that Run needs is missing once.
func TestCheckOfAFleetNeedsThePermissionsOfRun(t *testing.T) {
	t.Parallel()
	all := []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.KV_" + fleetBucket, "$JS.API.STREAM.CREATE.KV_" + fleetBucket,
		"$JS.API.CONSUMER.CREATE.KV_" + fleetBucket + ".>", "$JS.API.CONSUMER.DELETE.KV_" + fleetBucket + ".*", "$KV." + fleetBucket + ".>",
	}
	for name, test := range map[string]struct {
		without int // the position in all; -1 for none
		exists  bool
	}{
		"all, and no bucket":             {-1, false},
		"all, and a bucket":              {-1, true},
		"none to see the bucket":         {1, true},
		"none to create it":              {2, false},
		"none to create one that exists": {2, true},
		"none to watch it":               {3, true},
		"none to publish":                {5, true},
		"none to publish, and no bucket": {5, false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			some := slices.Clone(all)
			if test.without >= 0 {
				some = slices.Delete(some, test.without, test.without+1)
			}
			url := runServer(t, &server.Options{JetStream: true, NoAuthUser: "root", Users: []*server.User{
				{Username: "root"},
				{Username: "fb", Password: "secret", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Allow: some}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
				}},
			}}).ClientURL()
			if test.exists {
				joinFleet(t, url, "a").await(t, "a")
			}
			cfg := nats.Config{URL: url, Username: "fb", Password: "secret"}
			if test.without < 0 || test.without == 2 && test.exists {
				if _, err := checkFleet(t, cfg); err != nil {
					t.Error(err)
				}
				return
			}
			_, err := checkFleet(t, cfg)
			wantError(t, err, true, nil, "Permissions Violation for Publish", "grant this user the permissions that "+docs.URL+"scaling.md#nats lists")
		})
	}
}

func TestCheckOfAFleetFindsAnUnfitBucket(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		create func(js jetstream.JetStream) error
		want   string
	}{
		"no time limits": {func(js jetstream.JetStream) error {
			_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: fleetBucket})
			return err
		}, "run 'nats stream edit KV_feedbridge-fleet-shop --allow-msg-ttl --subject-del-markers-ttl 1m0s'"},
		"no bucket": {func(js jetstream.JetStream) error {
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KV_" + fleetBucket, Subjects: []string{"x"}})
			return err
		}, "is no key-value bucket; give the fleet another name"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			url := runServer(t, &server.Options{JetStream: true}).ClientURL()
			must.Succeed(t, test.create(admin(t, url)))
			_, err := checkFleet(t, nats.Config{URL: url})
			wantError(t, err, true, nil, test.want)
		})
	}
	_, err := checkFleet(t, nats.Config{URL: "nats://127.0.0.1:1"})
	wantError(t, err, false, nil, "no NATS server answers")
}

package nats_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/nats"
)

const fleetBucket = "feedbridge-fleet-shop"

// wantRefused waits until a copy reports that it cannot join until a person acts.
func wantRefused(t *testing.T, cfg nats.Config, want string) {
	t.Helper()
	cfg.Timeout = time.Second
	m := joinFleetWith(t, cfg, "a", nats.FleetOptions{})
	eventually(t, "the copy cannot join", func() bool { return errors.Is(m.Err(), feed.ErrPermanent) })
	wantError(t, m.Err(), true, nil, want)
}

// Each permission that a member needs is missing once.
func TestFleetNeedsPermissions(t *testing.T) {
	t.Parallel()
	all := []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.KV_" + fleetBucket, "$JS.API.STREAM.CREATE.KV_" + fleetBucket,
		"$JS.API.CONSUMER.CREATE.KV_" + fleetBucket + ".>", "$JS.API.CONSUMER.DELETE.KV_" + fleetBucket + ".*", "$KV." + fleetBucket + ".>",
	}
	for name, without := range map[string]int{"to see the bucket": 1, "to create it": 2, "to watch it": 3, "to publish": 5} {
		parallel.Run(t, name, func(t *testing.T) {
			url := runServer(t, &server.Options{JetStream: true, Users: []*server.User{{Username: "fb", Password: "secret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: slices.Delete(slices.Clone(all), without, without+1)}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}}}}).ClientURL()
			wantRefused(t, nats.Config{URL: url, Username: "fb", Password: "secret"}, "grant this user the permissions that "+docs.URL+"scaling.md#nats lists")
		})
	}
}

func TestFleetRefusesAnUnfitBucket(t *testing.T) {
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
			wantRefused(t, nats.Config{URL: url}, test.want)
		})
	}
}

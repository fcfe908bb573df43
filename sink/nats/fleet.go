package nats

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/fleet"
)

const (
	// fleetTTL is the time for which a member is one without renewing its key. A member that is
	// killed is missed by the others that much later, at most.
	fleetTTL = 12 * time.Second
	// fleetBeat is the interval at which a member renews its key.
	fleetBeat = fleetTTL / 3
	// fleetStale is the time after which a key that was not renewed is no member's, though it is
	// still in the bucket, as after a purge of the stream.
	fleetStale = 2 * fleetTTL
)

// FleetOptions describe the bucket of a fleet.
type FleetOptions struct {
	// Name is the name of the fleet. It has only letters, digits, - and _.
	Name string
	// Replicas is the number of servers that store the bucket, if it has to be created.
	Replicas int
}

// Fleet is the [fleet.Bus] of a fleet. Each member keeps a key alive in a JetStream key-value bucket of
// the fleet, and watches those of the others. The key has a time limit, so a member that is killed or
// frozen is missed by the others; one that stops deletes it. A key without a time limit, as a person
// stores it, is no member's.
//
// Nothing that a topic holds depends on the bucket. If it is deleted, it is created again.
type Fleet struct {
	client *client
	opts   FleetOptions
	bucket string
	// interval is the time after which the key is renewed.
	interval time.Duration
	// joined is set before the key is stored for the first time.
	joined bool
}

// Fleet returns the bus of a fleet. It makes no request; [Fleet.Join] does.
func (c *Conn) Fleet(opts FleetOptions) *Fleet {
	return &Fleet{client: c.client, opts: opts, bucket: bucketPrefix + opts.Name, interval: fleetBeat}
}

// Join implements [fleet.Bus].
func (f *Fleet) Join(ctx context.Context, self fleet.Self, report func(fleet.Report)) error {
	scope := f.scope(self.Name)
	err := f.client.runSession(ctx, scope, func(ctx context.Context, _ *session) error {
		return f.takePart(ctx, scope, self, report)
	})
	if ctx.Err() != nil {
		f.leave(context.WithoutCancel(ctx), self.Name)
		return nil
	}
	return err
}

// takePart renews the key and follows those of the others, until there is an error.
func (f *Fleet) takePart(ctx context.Context, scope scope, self fleet.Self, report func(fleet.Report)) error {
	if err := f.openBucket(ctx); err != nil {
		return err
	}
	store := func(ctx context.Context) error { return f.store(ctx, self) }
	if err := f.client.retryRequest(ctx, store); err != nil {
		return err
	}
	keys, err := f.watchKeys(ctx)
	if err != nil {
		return err
	}
	defer keys.stop()
	beat := time.NewTicker(f.interval)
	defer beat.Stop()
	echoed := time.Now() // when the watch last had a key of this copy
	failing := false     // the key cannot be renewed
	// renew stores the key. If the bus does not answer in time, the next attempt follows, and the watch
	// shows whether it was too late.
	renew := func() error {
		attempt, cancel := contextWithTimeout(ctx, min(f.client.cfg.Timeout, fleetBeat))
		defer cancel()
		explainer := f.client.newExplainer(scope)
		err := store(attempt)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case attempt.Err() == nil, errors.Is(explainer.explainError(attempt, err), feed.ErrPermanent):
			return err
		default:
			report(fleet.Report{Err: causeOf(attempt, err)})
		}
		failing = err != nil
		return nil
	}
	for {
		select {
		case m := <-keys.messages:
			now, recovered := time.Now(), false
			name, left := keys.take(m, now)
			if name == self.Name {
				if _, ok := keys.values[name]; ok && keys.values[name] != nil {
					recovered, echoed = failing, now
				} else if err := renew(); err != nil { // deleted by a person, or expired: it is back before the others act
					return err
				}
			}
			if keys.listed && (keys.changed || recovered) {
				report(fleet.Report{Members: maps.Clone(keys.values), Left: left})
				keys.changed = false
			}
		case <-self.Changed:
			if err := renew(); err != nil {
				return err
			}
		case <-beat.C:
			if keys.removeStale(self.Name, time.Now()) {
				report(fleet.Report{Members: maps.Clone(keys.values)})
			}
			if err := renew(); err != nil {
				return err
			}
			if time.Since(echoed) > 2*fleetTTL && !failing {
				return errors.New("the watch of the members is stale: it lacks the renewed key of this copy")
			}
		case <-keys.ended:
			return errWatchEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// store stores the key of this copy, which expires after fleetTTL.
func (f *Fleet) store(ctx context.Context, self fleet.Self) error {
	m := nats.NewMsg(f.subject(self.Name))
	m.Data = self.Value()
	f.joined = true
	return f.publish(ctx, m, fleetTTL)
}

// leaveTimeout limits the last request of a member that leaves.
const leaveTimeout = 2 * time.Second

// leave deletes the key, if it may be stored. After an error it expires.
func (f *Fleet) leave(ctx context.Context, name string) {
	if !f.joined {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	// Not the client's Delete, whose marker stays in the bucket for ever.
	m := nats.NewMsg(f.subject(name))
	m.Header.Set(operationHeader, deleted)
	if err := f.publish(ctx, m, markerTTL); err != nil {
		f.client.log.Warn("cannot leave the fleet; the other copies take over the feeds when the key of this copy expires", "fleet", f.opts.Name, "within", fleetTTL, "error", err)
	}
}

// publish stores a message that expires. Its subject is that of a key.
func (f *Fleet) publish(ctx context.Context, m *nats.Msg, ttl time.Duration) error {
	_, err := f.client.js.PublishMsg(ctx, m, jetstream.WithMsgTTL(ttl), jetstream.WithExpectStream(f.stream()))
	return err
}

// subject returns the subject of a member's key. Buckets of another JetStream domain or account
// are published to through its API, as the client does.
func (f *Fleet) subject(name string) string {
	subject := f.keyPrefix() + name
	if prefix := f.client.cfg.apiPrefix(); prefix != jetstream.DefaultAPIPrefix {
		return prefix + subject
	}
	return subject
}

// keyPrefix begins the subjects of all keys, as messages have them.
func (f *Fleet) keyPrefix() string { return "$KV." + f.bucket + "." }

// stream returns the name of the bucket's stream.
func (f *Fleet) stream() string { return "KV_" + f.bucket }

// scope returns the scope of the requests of a member.
func (f *Fleet) scope(name string) scope { return scope{[]string{f.subject(name)}, f.stream()} }

// markerTTL is the time for which the bucket remembers that a key was deleted or has expired.
const markerTTL = time.Minute

// openBucket creates the bucket if there is none.
func (f *Fleet) openBucket(ctx context.Context) error {
	err := f.findBucket(ctx)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return err
	}
	if f.joined {
		f.client.log.Warn("the bucket of the fleet is gone, and is created again", "fleet", f.opts.Name, "bucket", f.bucket)
	}
	err = f.client.retryRequest(ctx, func(ctx context.Context) error {
		_, err := f.client.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: f.bucket, Description: "The members of the feedbridge fleet " + f.opts.Name,
			LimitMarkerTTL: markerTTL, Replicas: f.opts.Replicas,
		})
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported):
		return feed.Permanent(errors.New("the NATS server has no time limits for keys; feedbridge needs 2.12 or newer"))
	case err != nil && !errors.Is(err, jetstream.ErrBucketExists): // another copy was faster
		return err
	}
	return f.findBucket(ctx)
}

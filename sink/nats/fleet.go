package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/fleet"
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
	bucket bucket
	// interval is the time after which the key is renewed.
	interval time.Duration
	// joined is set before the key is stored for the first time.
	joined bool
}

// Fleet returns the bus of a fleet. It makes no request; [Fleet.Join] does.
func (c *Conn) Fleet(opts FleetOptions) *Fleet {
	return &Fleet{client: c.client, opts: opts, bucket: bucket(bucketPrefix + opts.Name), interval: fleetBeat}
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
	f.joined = true
	store := func(ctx context.Context) (*jetstream.PubAck, error) { return f.store(ctx, self) }
	if _, err := firstAnswer(ctx, f.client, store); err != nil {
		return err
	}
	keys, err := f.bucket.watchKeys(ctx, f.client)
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
		explainer := newExplainer(&f.client.cfg, f.client.sessions, scope)
		_, err := store(attempt)
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
			recovered := false
			name, left := keys.take(m)
			if name == self.Name {
				if _, ok := keys.values[name]; ok && keys.values[name] != nil {
					recovered, echoed = failing, time.Now()
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
func (f *Fleet) store(ctx context.Context, self fleet.Self) (*jetstream.PubAck, error) {
	m := nats.NewMsg(f.subject(self.Name))
	m.Data = self.Value()
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
	if _, err := f.publish(ctx, m, markerTTL); err != nil {
		f.client.log.Warn("cannot leave the fleet; the other copies take over the feeds when the key of this copy expires", "fleet", f.opts.Name, "within", fleetTTL, "error", err)
	}
}

// publish stores a message that expires. Its subject is that of a key.
func (f *Fleet) publish(ctx context.Context, m *nats.Msg, ttl time.Duration) (*jetstream.PubAck, error) {
	return f.client.js().PublishMsg(ctx, m, jetstream.WithMsgTTL(ttl), jetstream.WithExpectStream(f.bucket.stream()))
}

// subject returns the subject of a member's key. Buckets of another JetStream domain or account
// are published to through its API, as the client does.
func (f *Fleet) subject(name string) string {
	subject := f.bucket.keyPrefix() + name
	if prefix := f.client.cfg.apiPrefix(); prefix != jetstream.DefaultAPIPrefix {
		return prefix + subject
	}
	return subject
}

// scope returns the scope of the requests of a member.
func (f *Fleet) scope(name string) scope { return scope{[]string{f.subject(name)}, f.bucket.stream()} }

// openBucket creates the bucket if there is none.
func (f *Fleet) openBucket(ctx context.Context) error {
	err := f.findBucket(ctx)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if f.joined {
		f.client.log.Warn("the bucket of the fleet is gone, and is created again", "fleet", f.opts.Name, "bucket", f.bucket)
	}
	_, err = firstAnswer(ctx, f.client, func(ctx context.Context) (jetstream.KeyValue, error) {
		return f.client.js().CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: string(f.bucket), Description: "The members of the feedbridge fleet " + f.opts.Name,
			LimitMarkerTTL: markerTTL, Replicas: f.opts.Replicas,
		})
	})
	switch {
	case errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported):
		return feed.Permanent(errors.New("the NATS server has no time limits for keys; feedbridge needs 2.12 or newer"))
	case err != nil && !errors.Is(err, jetstream.ErrBucketExists): // another copy was faster
		return err
	}
	return f.findBucket(ctx)
}

// findBucket returns [jetstream.ErrStreamNotFound] if there is no bucket, or why it is not fit for a fleet.
func (f *Fleet) findBucket(ctx context.Context) error {
	stream := f.bucket.stream()
	info, err := f.client.streamInfo(ctx, stream)
	switch {
	case err != nil:
		return err
	case info.Config.MaxMsgsPerSubject < 1:
		return feed.Permanent(fmt.Errorf("the stream %s is no key-value bucket; give the fleet another name", stream))
	case !info.Config.AllowMsgTTL || info.Config.SubjectDeleteMarkerTTL <= 0:
		return feed.Permanent(fmt.Errorf("the keys of the bucket %s have no time limits of their own; run 'nats stream edit %s --allow-msg-ttl --subject-del-markers-ttl %v'", f.bucket, stream, markerTTL))
	}
	return nil
}

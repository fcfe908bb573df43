package nats

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/retry"
)

// FleetOptions describe the membership of a copy in a fleet.
type FleetOptions struct {
	// Name is the name of the fleet. It has only letters, digits, - and _.
	Name string
	// Self is the name of this copy. No other copy has it.
	Self string
	// Replicas is the number of servers that store the bucket, if it has to be created.
	Replicas int
	// Topics returns the topics that this copy has feeds for. It is called at any time.
	Topics func() *fleet.Topics
}

// Fleet is the membership of a copy in a fleet. Each member keeps a key alive in a JetStream
// key-value bucket of the fleet, and watches those of the others. The key has a time limit, so a
// member that is killed or frozen is missed by the others; one that stops deletes it.
//
// Nothing that a topic holds depends on the bucket. If it is deleted, it is created again.
type Fleet struct {
	client *client
	opts   FleetOptions
	bucket string
	// key is the name of this copy as the bucket has it.
	key    string
	roster roster
	// interval is the time after which the key is renewed.
	interval time.Duration
	// assignments has the newest assignment that has not been passed on yet.
	assignments chan fleet.Assignment
	// strange are the keys that are no member's and were logged.
	strange map[string]bool
	// failing is set while the key cannot be renewed, for the log.
	failing bool
	// joined is set before the key is stored for the first time.
	joined bool
}

// Fleet returns the membership of this copy in a fleet. It makes no request; [Fleet.Run] does.
func (c *Conn) Fleet(opts FleetOptions) *Fleet {
	key := memberKey(opts.Self)
	return &Fleet{
		client: c.client, opts: opts, bucket: bucketPrefix + opts.Name, key: key,
		roster: roster{self: key}, interval: fleetBeat, strange: map[string]bool{}, assignments: make(chan fleet.Assignment, 1),
	}
}

// memberKey returns a name as a key of a bucket: characters that keys cannot have are replaced. Those
// of host names remain.
func memberKey(name string) string {
	key := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, name)
	if slices.Contains(strings.Split(key, "."), "") {
		key = strings.ReplaceAll(key, ".", "_") // subjects have no empty tokens
	}
	return key
}

// memberInfo is the value of a member's key.
type memberInfo struct {
	// Topics is the fingerprint of the member's topics. It is never empty.
	Topics string `json:"topics"`
}

// decodeMember returns the value of a key, and false if it is no member's.
func decodeMember(value []byte) (info memberInfo, ok bool) {
	err := json.Unmarshal(value, &info)
	return info, err == nil && info.Topics != ""
}

// Run takes part in the fleet until ctx ends, and then leaves it. It calls assigned whenever the
// assignment has changed, from one goroutine. While the bus does not answer, the last assignment
// remains. Run returns nil after ctx has ended. Otherwise it returns an error that requires
// action by a person, or that the connection was closed; it may be called again after it, and then calls
// assigned even if nothing has changed.
func (f *Fleet) Run(ctx context.Context, assigned func(fleet.Assignment)) error {
	// Keys are renewed while assigned waits for commits.
	passing, stop := context.WithCancel(ctx)
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case a := <-f.assignments:
				assigned(a)
			case <-passing.Done():
				return
			}
		}
	}()
	defer func() {
		stop()
		<-passed
	}()
	f.roster.restart()
	backoff := retry.Backoff{Min: fleetDelay, Max: fleetBeat}
	for {
		began := time.Now()
		err := f.client.runSession(ctx, f.scope(), f.takePart)
		switch {
		case ctx.Err() != nil:
			f.leave(context.WithoutCancel(ctx))
			return nil
		case errors.Is(err, feed.ErrPermanent), f.client.nc.IsClosed():
			return err
		}
		f.client.log.Warn("the fleet cannot be watched, and is tried again", "fleet", f.opts.Name, "error", err)
		if time.Since(began) > fleetTTL {
			backoff = retry.Backoff{Min: fleetDelay, Max: fleetBeat}
		}
		reconnected := f.client.sessions.nextConnection()
		timer := time.NewTimer(backoff.Next())
		select {
		case <-reconnected:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

var errWatchEnded = errors.New("the watch has ended")

// takePart renews the key and follows those of the others, until there is an error.
func (f *Fleet) takePart(ctx context.Context, _ *session) error {
	kv, err := f.openBucket(ctx)
	if err != nil {
		return err
	}
	if err := f.client.retryRequest(ctx, f.beat); err != nil {
		return err
	}
	watch, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	f.roster.clear()
	if f.roster.acting != nil {
		f.roster.hold(time.Now())
	}
	listed := false // all keys that there were at the start
	beat := time.NewTicker(f.interval)
	defer beat.Stop()
	echoed := time.Now() // when the watch last had a key of this copy
	for {
		var due <-chan time.Time
		if listed && !f.roster.due.IsZero() {
			due = time.After(time.Until(f.roster.due))
		}
		select {
		case entry, ok := <-watch.Updates():
			switch {
			case !ok:
				return errWatchEnded
			case entry == nil:
				listed = true
				f.roster.check(time.Now())
			default:
				f.note(entry)
				if entry.Key() != f.key {
					continue
				}
				echoed = time.Now()
				if entry.Operation() == jetstream.KeyValuePut {
					continue
				}
				// The key was deleted by a person, or has expired. It is back before the others take
				// over.
				if err := f.renew(ctx); err != nil {
					return err
				}
			}
		case <-beat.C:
			if now := time.Now(); now.Sub(echoed) < 2*fleetBeat {
				f.roster.expireStale(now)
			}
			if err := f.renew(ctx); err != nil {
				return err
			}
			if time.Since(echoed) > 2*fleetTTL && !f.failing {
				return errors.New("the watch does not show the renewed key of this copy")
			}
		case <-due:
			if a, ok := f.roster.next(f.opts.Topics(), time.Now()); ok {
				f.pass(a)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// note records a change of a key.
func (f *Fleet) note(entry jetstream.KeyValueEntry) {
	now := time.Now()
	switch entry.Operation() {
	case jetstream.KeyValuePut:
		info, ok := decodeMember(entry.Value())
		if !ok {
			if !f.strange[entry.Key()] {
				f.strange[entry.Key()] = true
				f.client.log.Warn("the bucket of the fleet has a key that is no member's; it is ignored, and can be deleted", "fleet", f.opts.Name, "bucket", f.bucket, "key", entry.Key())
			}
			return
		}
		f.roster.put(entry.Key(), info.Topics, now)
	case jetstream.KeyValueDelete:
		f.roster.leave(entry.Key(), now)
	default:
		f.roster.expire(entry.Key(), now)
	}
}

// pass passes an assignment on, in place of one that has not been yet.
func (f *Fleet) pass(a fleet.Assignment) {
	select {
	case <-f.assignments:
	default:
	}
	f.assignments <- a
}

// renew is beat, for a member. If the bus does not answer in time, that is logged, and the key is
// left as it is: the next attempt follows, and the watch shows whether it was too late.
func (f *Fleet) renew(ctx context.Context) error {
	attempt, cancel := contextWithTimeout(ctx, min(f.client.cfg.Timeout, fleetBeat))
	defer cancel()
	explainer := f.client.newExplainer(f.scope())
	err := f.beat(attempt)
	switch {
	case err == nil:
		f.failing = false
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case attempt.Err() == nil, errors.Is(explainer.explainError(attempt, err), feed.ErrPermanent):
		return err
	case !f.failing:
		f.failing = true
		f.client.log.Warn("cannot renew the membership in the fleet, and is trying again", "fleet", f.opts.Name, "error", causeOf(attempt, err))
	}
	return nil
}

// beat stores the key of this copy, which expires after fleetTTL.
func (f *Fleet) beat(ctx context.Context) error {
	value, err := json.Marshal(memberInfo{Topics: f.opts.Topics().Fingerprint()})
	if err != nil {
		return err
	}
	m := nats.NewMsg(f.subject())
	m.Data = value
	f.joined = true
	return f.publish(ctx, m, fleetTTL)
}

// leaveTimeout limits the last request of a member that leaves.
const leaveTimeout = 2 * time.Second

// leave deletes the key, if it may be stored. After an error it expires.
func (f *Fleet) leave(ctx context.Context) {
	if !f.joined {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	// Not the client's Delete, whose marker stays in the bucket for ever.
	m := nats.NewMsg(f.subject())
	m.Header.Set("KV-Operation", "DEL")
	if err := f.publish(ctx, m, markerTTL); err != nil {
		f.client.log.Warn("cannot leave the fleet; the other copies take over the feeds when the key of this copy expires", "fleet", f.opts.Name, "within", fleetTTL, "error", err)
	}
}

// publish stores a message that expires. Its subject is that of a key.
func (f *Fleet) publish(ctx context.Context, m *nats.Msg, ttl time.Duration) error {
	_, err := f.client.js.PublishMsg(ctx, m, jetstream.WithMsgTTL(ttl), jetstream.WithExpectStream(f.stream()))
	return err
}

// subject returns the subject of this copy's key. Buckets of another JetStream domain or account
// are published to through its API, as the client does.
func (f *Fleet) subject() string {
	subject := "$KV." + f.bucket + "." + f.key
	if prefix := f.client.cfg.apiPrefix(); prefix != jetstream.DefaultAPIPrefix {
		return prefix + subject
	}
	return subject
}

// stream returns the name of the bucket's stream.
func (f *Fleet) stream() string { return "KV_" + f.bucket }

// scope returns the scope of the requests about the bucket.
func (f *Fleet) scope() scope { return scope{[]string{f.subject()}, f.stream()} }

// markerTTL is the time for which the bucket remembers that a key was deleted or has expired.
const markerTTL = time.Minute

// openBucket returns the bucket. It creates one if there is none.
func (f *Fleet) openBucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := f.findBucket(ctx)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
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
		return nil, feed.Permanent(errors.New("the NATS server has no time limits for keys; feedbridge needs 2.12 or newer"))
	case err != nil && !errors.Is(err, jetstream.ErrBucketExists): // another copy was faster
		return nil, err
	}
	return f.findBucket(ctx)
}

package nats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/fleet"
)

// Check implements [fleet.Bus]. Permissions to create and to publish are tried with requests that the
// server refuses for another reason. A missing bucket is no error, because [Fleet.Join] creates it. ctx
// bounds the whole check.
func (f *Fleet) Check(ctx context.Context) (members int, err error) {
	const self = "feedbridge-check"
	err = f.client.runSession(ctx, f.scope(self), func(ctx context.Context, _ *session) error {
		err := f.findBucket(ctx)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && f.client.cfg.apiPrefix() != jetstream.DefaultAPIPrefix:
			// Without the stream nothing answers a message to another domain or account, whether
			// it is permitted or not.
			return f.tryCreate(ctx)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			err = f.tryCreate(ctx)
		case err == nil:
			members, err = f.countMembers(ctx)
		}
		if err != nil {
			return err
		}
		return f.tryPublish(ctx, self)
	})
	return members, err
}

// countMembers returns the number of keys of members. Reading needs the permission to watch.
func (f *Fleet) countMembers(ctx context.Context) (n int, err error) {
	ctx, cancel := f.client.withTimeout(ctx)
	defer cancel()
	keys, err := f.bucket.watchKeys(ctx, f.client)
	if err != nil {
		return 0, causeOf(ctx, err)
	}
	defer keys.stop()
	for !keys.listed {
		select {
		case m := <-keys.messages:
			keys.take(m, time.Now())
		case <-keys.ended:
			return 0, errWatchEnded
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	for name, value := range keys.values {
		if fleet.IsMember(name, value) {
			n++
		}
	}
	return n, nil
}

// unusedStream is the name of no stream of feedbridge. Requests that name it where another name is
// required are refused.
const unusedStream = "feedbridge-check"

// The errors of requests that name unusedStream.
const (
	codeStreamMismatch = 10056
	codeNotThisStream  = 10060
)

// tryCreate returns an error if this user may not create the bucket. The request names two streams,
// so that it creates neither.
func (f *Fleet) tryCreate(ctx context.Context) error {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := f.client.requestJSON(ctx, "STREAM.CREATE."+f.bucket.stream(), jetstream.StreamConfig{Name: unusedStream}, &answer); err != nil {
		return err
	}
	if answer.Error != nil && answer.Error.ErrorCode != codeStreamMismatch {
		return answer.Error
	}
	return nil
}

// tryPublish returns an error if this user may not store a key. The message is for
// another stream than the bucket's, so the server does not store it.
func (f *Fleet) tryPublish(ctx context.Context, name string) error {
	_, err := firstAnswer(ctx, f.client, func(ctx context.Context) (*jetstream.PubAck, error) {
		return f.client.js.PublishMsg(ctx, nats.NewMsg(f.subject(name)), jetstream.WithRetryAttempts(0), jetstream.WithExpectStream(unusedStream))
	})
	// Without a stream the bucket does not exist yet, and the subject is permitted.
	if errors.Is(err, jetstream.ErrNoStreamResponse) || codeOf(err) == codeNotThisStream {
		return nil
	}
	return err
}

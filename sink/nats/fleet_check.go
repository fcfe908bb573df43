package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
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
		case errors.Is(err, jetstream.ErrBucketNotFound) && f.client.cfg.apiPrefix() != jetstream.DefaultAPIPrefix:
			// Without the stream nothing answers a message to another domain or account, whether
			// it is permitted or not.
			return f.tryCreate(ctx)
		case errors.Is(err, jetstream.ErrBucketNotFound):
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
	keys, err := f.watchKeys(ctx)
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
	request, err := json.Marshal(jetstream.StreamConfig{Name: unusedStream})
	if err != nil {
		return err
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := f.client.requestJSON(ctx, "STREAM.CREATE."+f.stream(), request, &answer); err != nil {
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
	m := nats.NewMsg(f.subject(name))
	err := f.client.retryRequest(ctx, func(ctx context.Context) error {
		_, err := f.client.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0), jetstream.WithExpectStream(unusedStream))
		return err
	})
	var api jetstream.JetStreamError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return nil // the bucket does not exist yet, and the subject is permitted
	case errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == codeNotThisStream:
		return nil
	}
	return err
}

// findBucket returns [jetstream.ErrBucketNotFound] if there is no bucket, or why it is not fit for a fleet.
func (f *Fleet) findBucket(ctx context.Context) error {
	err := f.client.retryRequest(ctx, func(ctx context.Context) error {
		_, err := f.client.js.KeyValue(ctx, f.bucket)
		return err
	})
	if err == nil {
		err = f.checkBucket(ctx)
	}
	if errors.Is(err, jetstream.ErrBadBucket) {
		err = feed.Permanent(fmt.Errorf("the stream %s is no key-value bucket; give the fleet another name", f.stream()))
	}
	return err
}

// checkBucket returns an error unless the keys of the bucket can have time limits of their own.
func (f *Fleet) checkBucket(ctx context.Context) error {
	info, err := f.client.streamInfo(ctx, f.stream())
	if err != nil {
		return err
	}
	if !info.Config.AllowMsgTTL || info.Config.SubjectDeleteMarkerTTL <= 0 {
		return feed.Permanent(fmt.Errorf("the keys of the bucket %s have no time limits of their own; run 'nats stream edit %s --allow-msg-ttl --subject-del-markers-ttl %v'", f.bucket, f.stream(), markerTTL))
	}
	return nil
}

package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// streamChecker checks that the stream of a topic can hold it, and creates a missing stream.
// It never changes an existing one.
type streamChecker struct {
	client *client
	topic  *Topic
}

// ensureStream returns the topic's stream as its leader describes it, or an error with everything
// that is wrong with it. It creates a stream that is missing, unless this process has seen a
// checkpoint there.
func (s *streamChecker) ensureStream(ctx context.Context, seen bool) (*streamInfo, error) {
	info, err := s.readInfo(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if seen {
			// A new stream would hide that the history is gone, and the feed would be
			// published from its start.
			return nil, feed.Permanent(fmt.Errorf("stream %s is gone, and the topic with it: %w; restore it, "+
				"or start the feed over in a new one with 'feedbridge checkpoint reset %s'", s.topic.Stream.Name, checkpoint.ErrMissing, s.topic.Feed))
		}
		info, err = s.createStream(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkConfig(info.Config); err != nil {
		return nil, err
	}
	return info, nil
}

func (s *streamChecker) readInfo(ctx context.Context) (*streamInfo, error) {
	return s.client.streamInfo(ctx, s.topic.Stream.Name)
}

func (s *streamChecker) createStream(ctx context.Context) (*streamInfo, error) {
	want := s.topic.Stream
	if !want.Create {
		return nil, s.missingError()
	}
	ctx, cancel := s.client.withTimeout(ctx)
	defer cancel()
	description := "feed " + s.topic.Feed
	if len(want.Subjects) > 0 {
		description = "feeds"
	}
	_, err := s.client.js().CreateStream(ctx, jetstream.StreamConfig{
		Name:        want.Name,
		Description: description + ", written by feedbridge",
		Subjects:    s.topic.createdSubjects(),
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		// The oldest messages make room for new ones, as with MaxAge: both limits bound
		// the size of the topic and stop no commit.
		Discard:            jetstream.DiscardOld,
		Replicas:           max(1, want.Replicas),
		MaxAge:             want.MaxAge,
		MaxBytes:           cmp.Or(want.MaxBytes, -1),
		MaxMsgs:            -1,
		AllowAtomicPublish: true,
		AllowBatchPublish:  true,
		AllowRollup:        true,
		AllowMsgTTL:        true,
	})
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		s.client.log.Info("created a stream", "stream", want.Name, "subjects", s.topic.createdSubjects(), "replicas", max(1, want.Replicas))
		return s.waitUntilKnown(ctx)
	case !ok:
		return nil, causeOf(ctx, err)
	case api.ErrorCode == jetstream.JSErrCodeStreamNameInUse:
		// Another copy, or a person, has just created it.
		return s.readInfo(ctx)
	case api.ErrorCode == codeSubjectOverlap:
		return nil, s.overlapError(ctx)
	}
	return nil, fmt.Errorf("create stream %s: %w", want.Name, apiError(api, want.Name, s.client.cfg))
}

// waitUntilKnown returns the description of a stream that was just created. The servers of a
// cluster do not learn of it at the same time, and until then they answer that it does not
// exist.
func (s *streamChecker) waitUntilKnown(ctx context.Context) (*streamInfo, error) {
	for {
		info, err := s.readInfo(ctx)
		if err == nil {
			_, err = s.client.lastMessage(ctx, s.topic.Stream.Name, s.topic.Subject)
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return info, err
		}
		if err := retry.Sleep(ctx, replicationWait); err != nil {
			return nil, err
		}
	}
}

// missingError returns the error about a missing stream that must not be created.
func (s *streamChecker) missingError() error {
	return feed.Permanent(fmt.Errorf("there is no stream %s, and stream.create is off; create it with "+
		"'nats stream add %[1]s --subjects %s --storage file --retention limits --allow-batch --allow-fast --allow-rollup --allow-msg-ttl --defaults'",
		s.topic.Stream.Name, strings.Join(s.topic.createdSubjects(), ",")))
}

// overlapError returns an error that names the streams that have the subjects already.
func (s *streamChecker) overlapError(ctx context.Context) error {
	var taken []string
	for _, subject := range s.topic.createdSubjects() {
		if name, err := s.client.js().StreamNameBySubject(ctx, subject); err == nil {
			taken = append(taken, fmt.Sprintf("%s belongs to stream %s", subject, name))
		}
	}
	if len(taken) == 0 {
		taken = append(taken, "part of "+strings.Join(s.topic.createdSubjects(), " or ")+" belongs to another stream")
	}
	return feed.Permanent(fmt.Errorf("cannot create stream %s: %s; name that stream in stream.name, or give the feed another topic",
		s.topic.Stream.Name, strings.Join(taken, " and ")))
}

// checkConfig returns an error with everything in the configuration of a stream that keeps
// it from holding the topic.
func (s *streamChecker) checkConfig(c jetstream.StreamConfig) error {
	if wrong := s.findProblems(c); len(wrong) > 0 {
		return feed.Permanent(fmt.Errorf("stream %s cannot hold the topic: %s", c.Name, strings.Join(wrong, "; ")))
	}
	return nil
}

// findProblems returns a sentence, with its cure, for everything in a configuration that
// keeps the stream from holding the topic. It must be the configuration that the server
// returns: a server before 2.12 accepts a request for atomic batches, and ignores it.
func (s *streamChecker) findProblems(c jetstream.StreamConfig) []string {
	var wrong []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	edit := "run 'nats stream edit " + c.Name + " "
	// The server stores messages from a source whatever the subjects of the stream are.
	add(len(c.Sources) > 0, "it copies messages from other streams, which may be of the topic; give the feed a stream without sources")
	add(c.Mirror != nil, "it is a mirror, which accepts no messages; give the feed a stream of its own")
	add(c.Sealed, "it is sealed; give the feed another stream")
	add(c.Retention != jetstream.LimitsPolicy, "its retention is %s, which deletes the checkpoint; give the feed another stream, with --retention limits",
		strings.ToLower(c.Retention.String()))
	var missing []string
	for _, subject := range s.topic.subjects() {
		if !coversSubject(c.Subjects, subject) {
			missing = append(missing, subject)
		}
	}
	add(len(missing) > 0, "it does not have %s; %s--subjects %s'", strings.Join(missing, " and "), edit,
		strings.Join(append(c.Subjects, missing...), ","))
	add(!c.AllowAtomicPublish, "it allows no atomic batches; %s--allow-batch'", edit)
	add(!c.AllowRollup, "it allows no roll-ups; %s--allow-rollup'", edit)
	add(c.DenyPurge, "it denies purging, and so roll-ups, and that cannot be changed; give the feed another stream, without --deny-purge")
	add(!c.AllowMsgTTL, "it allows no TTL per message; %s--allow-msg-ttl'", edit)
	add(c.NoAck, "it does not acknowledge; %s--ack'", edit)
	add(c.SubjectTransform != nil, "it transforms subjects; %s--no-transform'", edit)
	add(c.AllowMsgCounter, "it is a counter; give the feed another stream")
	add(c.MaxMsgSize > 0 && c.MaxMsgSize < leastMessage, "its max_msg_size of %d bytes is too small for a checkpoint; %s--max-msg-size=-1'", c.MaxMsgSize, edit)
	payload := s.client.nc().MaxPayload()
	add(payload > 0 && payload < leastMessage, "the server's max_payload of %d bytes is too small for a checkpoint; raise it to at least %d", payload, leastMessage)
	// Only in a stream without other subjects is the checkpoint always among the newest
	// messages.
	add(!s.topic.ownsAll(c.Subjects) && c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0),
		"it takes other subjects, too, and discards its oldest messages, which may be the checkpoint; give the feed a stream of its own, or %s--max-bytes=-1 --max-msgs=-1'", edit)
	return wrong
}

// coversSubject reports whether one of the patterns of a stream matches subject.
func coversSubject(patterns []string, subject string) bool {
	for _, p := range patterns {
		if matchTokens(strings.Split(p, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

func matchTokens(pattern, subject []string) bool {
	for i, token := range pattern {
		switch {
		case i >= len(subject):
			return false
		case token == ">":
			return true
		case token != "*" && token != subject[i]:
			return false
		}
	}
	return len(pattern) == len(subject)
}

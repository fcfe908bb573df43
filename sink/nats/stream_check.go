package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// checkStream returns the topic's stream as its leader describes it, or an error
// that says everything that is wrong with it. It creates a stream that is
// missing, and never changes one that is there.
func (s *Sink) checkStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	info, err := s.streamInfo(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if s.seen.checkpoint != nil {
			// To create it anew would publish the feed from its start, and
			// hide that the history is gone.
			return nil, feed.Permanent(fmt.Errorf("stream %s is gone, and the topic with it: %w; restore it, "+
				"or start the feed over in a new one with 'feedbridge checkpoint reset %s'", s.topic.Stream.Name, checkpoint.ErrMissing, s.topic.Feed))
		}
		info, err = s.createStream(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := s.fitness(info.Config); err != nil {
		return nil, err
	}
	limit := s.conn.nc.MaxPayload()
	if n := int64(info.Config.MaxMsgSize); n > 0 {
		limit = min(limit, n)
	}
	s.limit.Store(limit)
	return info, nil
}

func (s *Sink) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	return s.conn.streamInfo(ctx, s.topic.Stream.Name)
}

func (s *Sink) createStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	want := s.topic.Stream
	if !want.Create {
		return nil, s.errNoStream()
	}
	ctx, cancel := s.conn.bounded(ctx)
	defer cancel()
	maxBytes := want.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
	}
	stream, err := s.conn.js.CreateStream(ctx, jetstream.StreamConfig{
		Name:        want.Name,
		Description: "feed " + s.topic.Feed + ", written by feedbridge",
		Subjects:    s.subjects(),
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		// What is old makes room for what is new, as with MaxAge: both are
		// there to bound what is kept, not what is published.
		Discard:            jetstream.DiscardOld,
		Replicas:           max(1, want.Replicas),
		MaxAge:             want.MaxAge,
		MaxBytes:           maxBytes,
		MaxMsgs:            -1,
		AllowAtomicPublish: true,
		AllowRollup:        true,
		AllowMsgTTL:        true,
	})
	var api jetstream.JetStreamError
	switch {
	case err == nil:
		s.conn.log.Info("created a stream", "stream", want.Name, "subjects", s.subjects(), "replicas", max(1, want.Replicas))
		return stream.CachedInfo(), s.settled(ctx)
	case !errors.As(err, &api) || api.APIError() == nil:
		return nil, causeOf(ctx, err)
	case api.APIError().ErrorCode == codeNameInUse:
		// Another copy has created it this moment, or a person.
		return s.streamInfo(ctx)
	case api.APIError().ErrorCode == codeSubjectOverlap:
		return nil, s.overlap(ctx)
	}
	return nil, fmt.Errorf("create stream %s: %w", want.Name, refusal(api.APIError(), want.Name))
}

// settled waits until a stream that was created can be asked: the servers of a cluster
// do not know of it all at once, and the others say that it is not there.
func (s *Sink) settled(ctx context.Context) error {
	for {
		_, err := s.conn.last(ctx, s.topic.Stream.Name, s.topic.Subject)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func (s *Sink) errNoStream() error {
	return feed.Permanent(fmt.Errorf("there is no stream %s, and stream.create is off; create it with "+
		"'nats stream add %[1]s --subjects %s --storage file --retention limits --allow-batch --allow-rollup --allow-msg-ttl --defaults'",
		s.topic.Stream.Name, strings.Join(s.subjects(), ",")))
}

// overlap says which streams have the subjects already.
func (s *Sink) overlap(ctx context.Context) error {
	var taken []string
	for _, subject := range s.subjects() {
		if name, err := s.conn.js.StreamNameBySubject(ctx, subject); err == nil {
			taken = append(taken, fmt.Sprintf("%s belongs to stream %s", subject, name))
		}
	}
	if len(taken) == 0 {
		taken = append(taken, "part of "+strings.Join(s.subjects(), " or ")+" belongs to another stream")
	}
	return feed.Permanent(fmt.Errorf("cannot create stream %s: %s; name that stream in stream.name, or give the feed another topic",
		s.topic.Stream.Name, strings.Join(taken, " and ")))
}

// fitness returns an error that says everything that makes a stream unfit.
func (s *Sink) fitness(c jetstream.StreamConfig) error {
	if wrong := s.misfits(c); len(wrong) > 0 {
		return feed.Permanent(fmt.Errorf("stream %s cannot hold the topic: %s", c.Name, strings.Join(wrong, "; ")))
	}
	return nil
}

// misfits returns a sentence, with its cure, for everything that makes a stream
// unfit. What counts is what the server says that the configuration is: a
// server before 2.12 accepts a request for atomic batches, and ignores it.
func (s *Sink) misfits(c jetstream.StreamConfig) []string {
	var wrong []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	edit := "run 'nats stream edit " + c.Name + " "
	for _, source := range c.Sources {
		subjects := s.sourced(source)
		add(len(subjects) > 0, "it takes messages from stream %s, which may be of %s; give the feed a stream of its own, or limit the source to other subjects "+
			"with a filter", source.Name, strings.Join(subjects, " and "))
	}
	add(c.Mirror != nil, "it is a mirror, which takes no messages; give the feed a stream of its own")
	add(c.Sealed, "it is sealed for ever; give the feed another stream")
	add(c.Retention != jetstream.LimitsPolicy, "its retention is %s, which deletes the checkpoint; give the feed another stream, with --retention limits",
		strings.ToLower(c.Retention.String()))
	var missing []string
	for _, subject := range s.subjects() {
		if !covers(c.Subjects, subject) {
			missing = append(missing, subject)
		}
	}
	add(len(missing) > 0, "it does not have %s; %s--subjects %s'", strings.Join(missing, " and "), edit,
		strings.Join(append(c.Subjects, missing...), ","))
	add(!c.AllowAtomicPublish, "it allows no atomic batches; %s--allow-batch'", edit)
	add(!c.AllowRollup, "it allows no roll-ups; %s--allow-rollup'", edit)
	add(c.DenyPurge, "it denies purging, and so roll-ups, for ever; give the feed another stream, without --deny-purge")
	add(!c.AllowMsgTTL, "it allows no TTL per message; %s--allow-msg-ttl'", edit)
	add(c.NoAck, "it does not acknowledge; %s--ack'", edit)
	add(c.SubjectTransform != nil, "it transforms subjects; %s--no-transform'", edit)
	add(c.AllowMsgCounter, "it is a counter; give the feed another stream")
	add(c.MaxMsgSize > 0 && c.MaxMsgSize < leastMessage, "its max_msg_size of %d bytes is too small for a checkpoint; %s--max-msg-size=-1'", c.MaxMsgSize, edit)
	payload := s.conn.nc.MaxPayload()
	add(payload > 0 && payload < leastMessage, "the server's max_payload of %d bytes is too small for a checkpoint; raise it to %d at least", payload, leastMessage)
	// Only a topic that has the stream for itself has its checkpoint among the
	// newest messages always.
	add(!s.alone(c.Subjects) && c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0),
		"it takes other subjects, too, and discards its oldest messages, which may be the checkpoint; give the feed a stream of its own, or %s--max-bytes=-1 --max-msgs=-1'", edit)
	return wrong
}

// sourced returns which of the topic's subjects a source of its stream may write to. The
// server stores what comes from a source whatever the subjects of the stream are.
func (s *Sink) sourced(source *jetstream.StreamSource) []string {
	patterns := []string{cmp.Or(source.FilterSubject, ">")}
	if len(source.SubjectTransforms) > 0 {
		patterns = nil
	}
	for _, transform := range source.SubjectTransforms {
		to := cmp.Or(transform.Destination, transform.Source, ">")
		if i := strings.IndexAny(to, "{$"); i >= 0 {
			// What stands for {{wildcard(1)}} or $1 may be several words.
			to = to[:strings.LastIndexByte(to[:i], '.')+1] + ">"
		}
		patterns = append(patterns, to)
	}
	return slices.DeleteFunc(s.subjects(), func(subject string) bool { return !covers(patterns, subject) })
}

// covers says whether one of the patterns of a stream matches subject.
func covers(patterns []string, subject string) bool {
	for _, p := range patterns {
		if matches(strings.Split(p, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

func matches(pattern, subject []string) bool {
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

package kafka

import (
	"context"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// Checkpoint returns the checkpoint that the topic has, with the errors of
// Resume, but that of another feed is returned as it is if this feed has none. It
// changes nothing: a topic that is missing is an empty one.
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.do(ctx, func(ctx context.Context) error {
		last, err := s.inspect(ctx)
		if err != nil {
			return err
		}
		if last.data != nil {
			if cp, err = decode(last.data, s.topic.Feed); err != nil {
				return err
			}
		}
		d, err := s.client.describe(ctx, s.topic.Name)
		switch {
		case missing(err) && cp.Count == 0:
			return nil
		case missing(err):
			return s.check.errGone()
		case err != nil:
			return err
		}
		if err := s.check.sameTopic(d, last); err != nil {
			return err
		}
		if last.data != nil {
			return s.check.stayLost(ctx, d, last.ends)
		}
		ends, err := s.check.waitStable(ctx, d, nil, nil)
		if err != nil {
			return err
		}
		written, err := s.dedupe.written(ctx, d, ends)
		if err == nil && written {
			err = s.errMissing()
		}
		return err
	})
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return cp, nil
}

// inspect returns the newest checkpoint of the feed; of another feed, if the topic
// is not shared and has none of this one; and none.
func (s *Sink) inspect(ctx context.Context) (stored, error) {
	feeds, err := s.checkpoints.find(ctx, false, s.client.cfg.Timeout, nil)
	if missing(err) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	return s.checkpoints.newestOf(feeds), nil
}

// Check says what would keep a Resume and a Commit from working, without changing
// anything: a topic that is missing and may be created is fine.
func (s *Sink) Check(ctx context.Context) error {
	return s.do(ctx, func(ctx context.Context) error {
		c := s.client
		feeds, err := s.checkpoints.find(ctx, false, c.cfg.Timeout, nil)
		switch {
		case missing(err) && s.topic.Create:
			err = missingCheckpointTopic(c, s.topic.Replication).mayCreate(ctx)
		case err == nil:
			err = s.checkpoints.foreign(feeds)
		}
		if err != nil {
			return err
		}
		if err := s.transactions.id.mayUse(ctx); err != nil {
			return err
		}
		d, err := c.describe(ctx, s.topic.Name)
		if missing(err) && s.topic.Create {
			return s.check.missing().mayCreate(ctx)
		}
		if err != nil {
			return err
		}
		_, err = s.check.fit(ctx, d)
		return err
	})
}

// Forgets returns what in the topic's configuration takes messages of the feed
// away in time; nothing if it keeps all of them, or if this user may not see it.
func (s *Sink) Forgets(ctx context.Context) (limits []string, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		limits, err = s.check.forgets(ctx)
		return err
	})
	return limits, err
}

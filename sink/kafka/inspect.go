package kafka

import (
	"context"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// Checkpoint returns the stored checkpoint, with the errors of Resume. If this feed has none
// and another feed has one, it returns that one. It changes nothing; a topic that is missing
// counts as empty.
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.withExplainedErrors(ctx, func(ctx context.Context) error {
		last, err := s.readCheckpoint(ctx)
		if err != nil {
			return err
		}
		if last.data != nil {
			if cp, err = decodeCheckpoint(last.data, s.topic.Feed); err != nil {
				return err
			}
		}
		d, err := s.client.describeTopic(ctx, s.topic.Name)
		switch {
		case isMissingTopic(err) && cp.Count == 0:
			return nil
		case isMissingTopic(err):
			return s.check.errGone()
		case err != nil:
			return err
		}
		if err := s.check.sameTopic(d, last.topic); err != nil {
			return err
		}
		deadTopic, err := s.dead.describeTopic(ctx)
		if err != nil {
			return err
		}
		if last.data != nil {
			if _, err := s.check.confirmEnds(ctx, d, last.topic); err != nil {
				return err
			}
			_, err := s.check.confirmEnds(ctx, deadTopic, last.dead)
			return err
		}
		ends, err := s.check.waitStable(ctx, d, topicEnds{}, nil)
		if err != nil {
			return err
		}
		dead, err := s.dead.waitStable(ctx, deadTopic, topicEnds{}, nil)
		if err != nil {
			return err
		}
		written, err := s.dedupe.hasMessages(ctx, d, ends, dead)
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

// readCheckpoint returns the newest checkpoint of the feed; that of another feed, if the topic
// is not shared and has none of this one; or the zero value.
func (s *Sink) readCheckpoint(ctx context.Context) (storedCheckpoint, error) {
	feeds, err := s.checkpoints.findCheckpoints(ctx, false, s.client.cfg.Timeout, nil)
	if err != nil && !isMissingTopic(err) {
		return storedCheckpoint{}, err
	}
	return s.checkpoints.newestOf(feeds), nil
}

// Check returns an error if a Resume or a Commit would fail. It changes nothing. A topic that
// is missing and may be created is no error.
func (s *Sink) Check(ctx context.Context) error {
	return s.withExplainedErrors(ctx, func(ctx context.Context) error {
		c := s.client
		feeds, err := s.checkpoints.findCheckpoints(ctx, false, c.cfg.Timeout, nil)
		switch {
		case isMissingTopic(err) && s.topic.Create:
			err = missingCheckpointTopic(c, s.topic.Replication).mayCreate(ctx)
		case err == nil:
			err = s.checkpoints.checkOwner(feeds)
		}
		if err != nil {
			return err
		}
		if err := s.transactions.id.checkPermission(ctx); err != nil {
			return err
		}
		if err := s.dead.check(ctx); err != nil {
			return err
		}
		d, err := c.describeTopic(ctx, s.topic.Name)
		if isMissingTopic(err) {
			return s.check.missingTopic().mayCreate(ctx)
		}
		if err != nil {
			return err
		}
		_, err = s.check.checkFit(ctx, d)
		return err
	})
}

// RetentionLimits returns the settings of the topic by which messages of the feed are deleted
// in time; none if it keeps all of them, or if this user may not see the configuration.
func (s *Sink) RetentionLimits(ctx context.Context) (limits []string, err error) {
	err = s.withExplainedErrors(ctx, func(ctx context.Context) error {
		limits, err = s.check.retentionLimits(ctx)
		return err
	})
	return limits, err
}

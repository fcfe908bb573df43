package nats

import (
	"time"

	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/feed"
)

const (
	// stagedFor is how long what was staged may be used. A server forgets a
	// batch in which it gets nothing for 10 s.
	stagedFor = 5 * time.Second
	// stagingPause is how long nothing is staged after a commit has failed.
	stagingPause = time.Minute
	// A server has at most 50 batches under way in a stream, and 1,000 in all.
	// What is staged stays under way from one commit to the next, so with many
	// sinks a batch at a time is what works.
	stagingSinks        = 100
	stagingSinksAStream = 10
)

// mayStage says whether there are few enough sinks to send ahead.
func (s *Sink) mayStage() bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, n := range c.sinks {
		all += n
	}
	return all <= stagingSinks && c.sinks[s.topic.Stream.Name] <= stagingSinksAStream && time.Since(s.failed) > stagingPause
}

// staged are entities that the server was sent ahead of their commit, as a batch
// without its end. It knows nothing of their place in the topic, so a commit that
// is fenced, or never made, leaves nothing of them.
type staged struct {
	id       string
	entities []feed.Entity
	at       time.Time
}

// stage sends entities ahead. It returns nil if there is nothing to use later;
// what went wrong the commit will find out.
func (s *Sink) stage(entities []feed.Entity) *staged {
	if len(entities) == 0 || len(entities) > MaxEntities {
		return nil
	}
	ahead := &staged{nuid.Next(), entities, time.Now()}
	if s.publishBatch(ahead.id, s.first, entities) != nil {
		return nil
	}
	return ahead
}

// serves says whether a commit of these entities, the very same slice, can use
// what was staged. Whoever returned them from next does not write to them.
func (s *staged) serves(entities []feed.Entity) bool {
	return s != nil && len(entities) > 0 && len(s.entities) == len(entities) && &s.entities[0] == &entities[0] &&
		time.Since(s.at) < stagedFor
}

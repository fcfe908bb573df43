package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/serve"
)

const (
	// newestMessages is how many messages of a topic are shown.
	newestMessages = 3
	// newestTimeout limits the time for reading them, and newestPartitions the partitions that are read.
	newestTimeout    = 5 * time.Second
	newestPartitions = 16
)

// Newest is the answer to a request for the newest messages of the topic of a feed, the newest first.
type Newest struct {
	Feed     string                `json:"feed"`
	Messages []serve.NewestMessage `json:"messages"`
}

// serveNewest reads the newest messages of the topic of a feed, whichever copy runs it. Nothing is kept, and one
// request is answered at a time: messages may be large.
func (c *feedCommands) serveNewest(reading *limit.Limit) admin.Change {
	return func(ctx context.Context, r *http.Request) (any, error) {
		f, err := c.find(r.PathValue("feed"))
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, newestTimeout, fmt.Errorf("bus %s has not answered within %v; try again", f.cfg.To.Bus, newestTimeout))
		defer cancel()
		slot, err := reading.Acquire(ctx)
		if err != nil {
			return nil, commandError(r.PathValue("feed"), err)
		}
		defer slot.Release()
		answer := Newest{Feed: r.PathValue("feed"), Messages: []serve.NewestMessage{}}
		for partition := range newestPartitions {
			topic := f.bus.openLog(config.From{Bus: f.cfg.To.Bus, Topic: f.cfg.To.Topic, Partition: partition})
			messages, err := serve.Newest(ctx, topic, newestMessages)
			switch {
			case errors.Is(err, feed.ErrNoTopic), err != nil && partition > 0 && ctx.Err() == nil:
				return answer, nil // there are no more partitions, or nothing was published yet
			case ctx.Err() != nil:
				return nil, commandError(answer.Feed, context.Cause(ctx))
			case err != nil:
				return nil, commandError(answer.Feed, err)
			}
			answer.Messages = append(answer.Messages, messages...)
			slices.SortStableFunc(answer.Messages, func(a, b serve.NewestMessage) int { return b.Stored().Compare(a.Stored()) })
			answer.Messages = answer.Messages[:min(len(answer.Messages), newestMessages)]
			if f.bus.conf.Kafka == nil {
				break
			}
		}
		return answer, nil
	}
}

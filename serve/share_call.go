package serve

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/feed"
)

// busTimeout limits the time of one request to the bus, such as a page of large
// messages. The Log itself detects earlier that the bus does not answer.
const busTimeout = 2 * time.Minute

// shareCall calls do once for all concurrent callers with the same key, and returns its
// result to each. The call continues when callers leave, for at most [busTimeout]. A panic of
// do is an error that matches [feed.ErrPermanent].
func shareCall[T any](ctx context.Context, flights *singleflight.Group, key string, do func(context.Context) (T, error)) (T, error) {
	done := flights.DoChan(key, func() (result any, err error) {
		defer feed.RecoverPanic(&err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), busTimeout)
		defer cancel()
		return do(ctx)
	})
	var zero T
	select {
	case r := <-done:
		if r.Err != nil {
			return zero, r.Err
		}
		return r.Val.(T), nil
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

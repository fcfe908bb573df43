package nats

import (
	"context"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// A server that is not the leader of a stream drops requests about it.
func TestRequestIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dropped int
		want    string
	}{
		"an election":      {3, ""},
		"no leader at all": {1000, "no answer from NATS within 10s"},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			c := &client{cfg: Config{Timeout: 10 * time.Second}, repeatAfter: defaultRepeatAfter}
			begin, requests := time.Now(), 0
			at := []time.Duration{0, 1000, 3000, 5500, 8000} // ms
			err := c.retryRequest(t.Context(), func(ctx context.Context) error {
				if since := time.Since(begin); requests >= len(at) || since != at[requests]*time.Millisecond {
					t.Errorf("request %d after %v", requests+1, since)
				}
				if requests++; requests > test.dropped {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			switch {
			case test.want == "" && (err != nil || requests != test.dropped+1):
				t.Errorf("error %v after %d requests", err, requests)
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

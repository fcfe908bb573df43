package nats

import (
	"context"
	"sync/atomic"
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
			begin, requests := time.Now(), atomic.Int32{}
			at := []time.Duration{0, 1000, 3000, 5500, 8000} // ms
			_, err := firstAnswer(t.Context(), c, func(ctx context.Context) (string, error) {
				n := int(requests.Add(1))
				if since := time.Since(begin); n > len(at) || since != at[n-1]*time.Millisecond {
					t.Errorf("request %d after %v", n, since)
				}
				if n > test.dropped {
					return "", nil
				}
				<-ctx.Done()
				return "", ctx.Err()
			})
			switch {
			case test.want == "" && (err != nil || int(requests.Load()) != test.dropped+1):
				t.Errorf("error %v after %d requests", err, requests.Load())
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

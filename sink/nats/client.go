package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
)

// client makes requests to JetStream over one connection. Requests that change nothing are
// repeated until they are answered. It is safe for concurrent use.
type client struct {
	cfg      Config
	log      *slog.Logger
	sessions *sessionTracker
	// repeatAfter is the time after which a request without an answer is repeated, if the timeout
	// is long enough.
	repeatAfter time.Duration
	// consumerTTL is the time for which the server keeps the consumer of a reader that is
	// gone, and keptLifetime the time for which a reader is kept for the next Read of its Log.
	consumerTTL, keptLifetime time.Duration
}

// nc returns the connection of nats.go in use; see [Conn].
func (c *client) nc() *nats.Conn { return c.sessions.nc.Load() }

func (c *client) js() jetstream.JetStream {
	js, _ := jetstream.NewWithAPIPrefix(c.nc(), c.cfg.apiPrefix()) // it refuses only an empty prefix
	return js
}

// withSession is runSession for requests about a topic, which is named in errors. stream is empty if
// it is not known.
func (c *client) withSession(ctx context.Context, topic, stream string, f func(context.Context, *session) error) error {
	refused := true // before there was a request about the topic
	err := c.runSession(ctx, topicScope(topic, stream), func(ctx context.Context, ses *session) error {
		refused = false
		return f(ctx, ses)
	})
	if err == nil || refused {
		return err
	}
	return fmt.Errorf("topic %q: %w", topic, err)
}

// runSession calls f with the current session, and makes its errors understandable. The context
// of f ends with the session; f bounds its requests, which are those of a scope.
func (c *client) runSession(ctx context.Context, requests scope, f func(context.Context, *session) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ses, err := c.sessions.activeSession()
	if err != nil {
		return err
	}
	if err := c.checkVersion(); err != nil {
		return err
	}
	explainer := newExplainer(&c.cfg, c.sessions, requests)
	ctx, cancel := ses.bindContext(ctx)
	defer cancel()
	if err := f(ctx, ses); err != nil {
		return explainer.explainError(ctx, err)
	}
	return nil
}

// minor is the first minor version of 2.x that has atomic batches.
const minor = 12

func (c *client) checkVersion() error {
	if c.cfg.apiPrefix() != jetstream.DefaultAPIPrefix {
		// The streams may be on another server than this one. Their configuration and the
		// acknowledgements show whether that server has atomic batches.
		return nil
	}
	if c.hasMinor(minor) {
		return nil
	}
	return feed.Permanent(fmt.Errorf("the NATS server at %s has version %s, which has no atomic batches; feedbridge needs 2.%d or newer",
		c.sessions.servers, c.nc().ConnectedServerVersion(), minor))
}

// hasMinor reports whether the server has a minor version of 2.x, or a newer one. A version that cannot be
// read is that of a private build, which passes for new.
func (c *client) hasMinor(minor int) bool {
	var major, n int
	_, err := fmt.Sscanf(c.nc().ConnectedServerVersion(), "%d.%d", &major, &n)
	return err != nil || major > 2 || major == 2 && n >= minor
}

const (
	// defaultRepeatAfter is the time after which a request without an answer is repeated.
	defaultRepeatAfter = time.Second
	// defaultKeptLifetime is how long a reader is kept for the next Read.
	defaultKeptLifetime = 2 * time.Second
)

// firstAnswer makes a request that changes nothing, and again when there is no answer in time, until
// one of these requests is answered or the timeout of the configuration is over. A server that is not
// the leader of a stream drops requests about the stream, and during an election all servers drop
// them. An answer of megabytes may come after the request was repeated.
func firstAnswer[T any](ctx context.Context, c *client, request func(context.Context) (T, error)) (answer T, _ error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	type result struct {
		answer T
		err    error
	}
	results := make(chan result)
	for n := 0; ; n++ {
		go func() {
			answer, err := request(ctx)
			select {
			case results <- result{answer, err}:
			case <-ctx.Done():
			}
		}()
		repeat := time.NewTimer(c.waitForAnswer(n))
		select {
		case first := <-results:
			repeat.Stop()
			return first.answer, causeOf(ctx, first.err)
		case <-repeat.C:
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
	}
}

// waitForAnswer returns how long to wait before a request is repeated that was repeated n times: each
// time twice as long, because a slow server answers none in a time that is too short, up to a
// quarter of the timeout.
func (c *client) waitForAnswer(n int) time.Duration {
	return min(c.repeatAfter<<n, c.cfg.Timeout/4)
}

// withTimeout returns a context that bounds one request by the timeout of the
// configuration.
func (c *client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return contextWithTimeout(ctx, c.cfg.Timeout)
}

// contextWithTimeout returns a context that ends after d, with an error about NATS as its
// cause.
func contextWithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer from NATS within %v", d))
}

// streamInfo is a stream as its leader describes it.
type streamInfo struct {
	jetstream.StreamInfo
	// Domain is the JetStream domain of the leader, empty if it has none. Acknowledgements
	// of the stream name the same.
	Domain string `json:"domain"`
}

// streamInfo asks the leader of a stream. The client's Stream does not return the domain.
func (c *client) streamInfo(ctx context.Context, stream string) (*streamInfo, error) {
	var answer struct {
		streamInfo
		Error *jetstream.APIError `json:"error"`
	}
	if err := c.requestJSON(ctx, "STREAM.INFO."+stream, struct{}{}, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != nil:
		return nil, answer.Error
	case answer.Config.Name != stream:
		return nil, errors.New("NATS answered without the stream")
	}
	return &answer.streamInfo, nil
}

// requestJSON sends a request that changes nothing to the JetStream API, and decodes the answer.
func (c *client) requestJSON(ctx context.Context, subject string, request, answer any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := firstAnswer(ctx, c, func(ctx context.Context) (*nats.Msg, error) {
		return c.nc().RequestWithContext(ctx, c.cfg.apiPrefix()+subject, data)
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("NATS answered with invalid JSON: %w", err)
	}
	return nil
}

// lastMessage returns the newest message on a subject, or nil.
func (c *client) lastMessage(ctx context.Context, stream, subject string) (*storedMessage, error) {
	return c.getMessage(ctx, stream, map[string]any{"last_by_subj": subject})
}

// firstMessage returns the oldest message on a subject, or nil.
func (c *client) firstMessage(ctx context.Context, stream, subject string) (*storedMessage, error) {
	return c.getMessage(ctx, stream, map[string]any{"next_by_subj": subject, "seq": 1})
}

// messageAt returns the message at a sequence, or nil.
func (c *client) messageAt(ctx context.Context, stream string, sequence uint64) (*storedMessage, error) {
	return c.getMessage(ctx, stream, map[string]any{"seq": sequence})
}

// getMessage returns the message that a query selects, or nil. The stream's leader answers
// it: replicas may be behind, and any of them may answer Direct Get.
func (c *client) getMessage(ctx context.Context, stream string, query map[string]any) (*storedMessage, error) {
	var answer struct {
		Message *storedMessage      `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := c.requestJSON(ctx, "STREAM.MSG.GET."+stream, query, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case answer.Error != nil:
		return nil, answer.Error
	case answer.Message == nil:
		return nil, errors.New("NATS answered without a message")
	}
	return answer.Message, nil
}

// replicationWait is the wait before a server is asked again for what another server of the
// cluster is known to have.
const replicationWait = 10 * time.Millisecond

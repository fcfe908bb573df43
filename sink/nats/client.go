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
	servers  string // for errors: without user names and passwords
	log      *slog.Logger
	nc       *nats.Conn
	js       jetstream.JetStream
	sessions *sessionTracker
	// repeatAfter is the time after which a request without an answer is repeated, if the timeout
	// is long enough.
	repeatAfter time.Duration
	// consumerTTL is the time for which the server keeps the consumer of a reader that is
	// gone, and keptLifetime the time for which a reader is kept for the next Read of its Log.
	consumerTTL, keptLifetime time.Duration
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
	explainer := c.newExplainer(requests)
	ctx, cancel := ses.bindContext(ctx)
	defer cancel()
	if err := f(ctx, ses); err != nil {
		return explainer.explainError(ctx, err)
	}
	return nil
}

// newExplainer returns an explainer for the errors of requests that are made after this call.
func (c *client) newExplainer(requests scope) explainer {
	return explainer{
		cfg: &c.cfg, servers: c.servers, violations: &c.sessions.violations, lastError: c.nc.LastError, requests: requests,
		before: c.nc.LastError(), counted: c.sessions.violations.counted(),
	}
}

// checkJetStream returns an error unless there is a connection, to a server that is new
// enough, whose JetStream this account may use.
func (c *client) checkJetStream(ctx context.Context) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	return c.runSession(ctx, scope{}, func(ctx context.Context, _ *session) error {
		_, err := c.js.AccountInfo(ctx)
		return err
	})
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
		c.servers, c.nc.ConnectedServerVersion(), minor))
}

// hasMinor reports whether the server has a minor version of 2.x, or a newer one. A version that cannot be
// read is that of a private build, which passes for new.
func (c *client) hasMinor(minor int) bool {
	var major, n int
	_, err := fmt.Sscanf(c.nc.ConnectedServerVersion(), "%d.%d", &major, &n)
	return err != nil || major > 2 || major == 2 && n >= minor
}

// defaultRepeatAfter is the time after which a request without an answer is repeated.
const defaultRepeatAfter = time.Second

// retryRequest repeats a request that changes nothing until it is answered or the timeout
// of the configuration is over. A server that is not the leader of a stream drops requests
// about the stream, and during an election all servers drop them.
func (c *client) retryRequest(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, c.waitForAnswer(n))
		err := request(attempt)
		timeout := attempt.Err()
		cancel()
		if err == nil || timeout == nil || !errors.Is(err, timeout) || ctx.Err() != nil {
			return causeOf(ctx, err)
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

// streamInfo asks the leader of a stream, also for the number of messages on a subject if one is given.
// The client's Stream does not return the domain.
func (c *client) streamInfo(ctx context.Context, stream string, subject ...string) (*streamInfo, error) {
	var request []byte
	if len(subject) > 0 {
		request, _ = json.Marshal(map[string]string{"subjects_filter": subject[0]}) // strings cannot fail
	}
	var answer struct {
		streamInfo
		Error *jetstream.APIError `json:"error"`
	}
	if err := c.requestJSON(ctx, "STREAM.INFO."+stream, request, &answer); err != nil {
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

// requestJSON sends a request that changes nothing to the JetStream API, and decodes the
// answer. It repeats the request like retryRequest, but the first answer counts, whichever request
// it is to: an answer with a message of megabytes may take longer than a second, and the answers to
// the repeated requests come after it.
func (c *client) requestJSON(ctx context.Context, subject string, request []byte, answer any) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	type result struct {
		reply *nats.Msg
		err   error
	}
	results := make(chan result)
	send := func() {
		reply, err := c.nc.RequestWithContext(ctx, c.cfg.apiPrefix()+subject, request)
		select {
		case results <- result{reply, err}:
		case <-ctx.Done():
		}
	}
	var first result
	for n := 0; first == (result{}); n++ {
		go send()
		repeat := time.NewTimer(c.waitForAnswer(n))
		select {
		case first = <-results:
		case <-repeat.C:
		case <-ctx.Done():
			first.err = ctx.Err()
		}
		repeat.Stop()
	}
	if first.err != nil {
		return causeOf(ctx, first.err)
	}
	if err := json.Unmarshal(first.reply.Data, answer); err != nil {
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
	request, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Message *storedMessage      `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := c.requestJSON(ctx, "STREAM.MSG.GET."+stream, request, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == codeNoMessage:
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

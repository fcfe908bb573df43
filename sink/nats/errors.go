package nats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// The error codes of the JetStream API that mean something in particular here;
// the package comment has the table. nats.go has no names for those of batches.
const (
	codeAccountResources    = 10002
	codeInsufficient        = 10023
	codeMemoryResources     = 10028
	codeNoMessage           = 10037
	codeStorageResources    = 10047
	codeMessageTooLarge     = 10054
	codeNameInUse           = 10058
	codeSubjectOverlap      = 10065
	codeWrongLastSequence   = 10071
	codeReplicas            = 10074
	codeStoreFailed         = 10077
	codeSealed              = 10109
	codeRollup              = 10111
	codeInactiveThreshold   = 10153
	codeWrongLastReplicated = 10164
	codeTTLInvalid          = 10165
	codeTTLDisabled         = 10166
	codeAtomicDisabled      = 10174
	codeBatchIncomplete     = 10176
	codeBatchTooLarge       = 10199
)

// cures say what a person can do about an error. An error with a cure is
// permanent, whatever its status.
var cures = map[jetstream.ErrorCode]string{
	codeAccountResources: "raise the account's JetStream limits",
	codeInsufficient:     "raise the server's JetStream limits",
	codeMemoryResources:  "raise the server's JetStream limits",
	codeStorageResources: "raise the server's JetStream limits",
	codeMessageTooLarge:  "that is the checkpoint: raise max_msg_size with 'nats stream edit %s --max-msg-size', or max_payload of the server",
	codeSealed:           "a sealed stream takes no messages for ever; give the feed another one",
	codeRollup:           "run 'nats stream edit %s --allow-rollup'",
	codeTTLInvalid:       "is this NATS server of version 2.12 or newer?",
	codeReplicas:         "lower stream.replicas, or use a cluster",
	codeTTLDisabled:      "run 'nats stream edit %s --allow-msg-ttl'",
	codeAtomicDisabled:   "run 'nats stream edit %s --allow-batch'",
	codeBatchTooLarge:    "raise max_batch_size in the server's JetStream limits to 1000",
}

// refusal turns the answer of the JetStream API into an error that says whether
// trying again can help, and what else does.
func refusal(e *jetstream.APIError, stream string) error {
	err := fmt.Errorf("%s (NATS error %d)", e.Description, e.ErrorCode)
	switch e.ErrorCode {
	case codeWrongLastSequence, codeWrongLastReplicated:
		return fmt.Errorf("%w: %w", checkpoint.ErrConflict, err)
	case codeStoreFailed:
		// "maximum bytes exceeded" and "maximum messages exceeded" are of the
		// operator's making; the store of a server that stops fails too.
		if strings.HasPrefix(e.Description, "maximum ") {
			return feed.Permanent(fmt.Errorf("%w; the stream is full and discards what is new: raise its limits, and do not purge it, which takes the checkpoint, too", err))
		}
		return err
	}
	if cure, ok := cures[e.ErrorCode]; ok {
		if strings.Contains(cure, "%s") {
			cure = fmt.Sprintf(cure, stream)
		}
		return feed.Permanent(fmt.Errorf("%w; %s", err, cure))
	}
	if e.ErrorCode == codeBatchIncomplete {
		return fmt.Errorf("%w; the server has dropped the batch: its disk is full (see its log), its leader has changed, or it has too many batches at once; it is sent again", err)
	}
	if e.Code == http.StatusTooManyRequests || e.Code >= http.StatusInternalServerError {
		return err
	}
	return feed.Permanent(err)
}

// explain turns the error of a request that was made within ctx into what a
// person can understand. before is what [nats.Conn.LastError] was before the
// request: the server reports a missing permission beside the request, which
// gets no answer at all.
func (c *Conn) explain(ctx context.Context, before, err error) error {
	if last := c.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) && !same(last, before) {
		return feed.Permanent(fmt.Errorf("%w; grant this user what the documentation lists", last))
	}
	var api jetstream.JetStreamError
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return feed.Permanent(fmt.Errorf("JetStream is off for this account on NATS at %s; enable it in the server's configuration", c.servers))
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		// A cluster that has no leader yet answers like that, too.
		return fmt.Errorf("JetStream does not answer on NATS at %s: it is off, or has no leader; %s", c.servers, c.cfg.noJetStream())
	case errors.As(err, &api) && api.APIError() != nil:
		return refusal(api.APIError(), "")
	}
	return causeOf(ctx, err)
}

// noJetStream says what to do if JetStream does not answer.
func (c Config) noJetStream() string {
	switch {
	case c.Domain != "":
		return fmt.Sprintf("is there a JetStream domain %s?", c.Domain)
	case c.APIPrefix != "":
		return fmt.Sprintf("is api_prefix %s right?", c.APIPrefix)
	}
	return "start the server with --jetstream, or, if this is a leaf node and its hub has the streams, set the bus's domain"
}

// causeOf is the reason why ctx ended, if it did and err says no more than that.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}

// same compares two errors by identity. The errors of nats.go that it is used
// for are pointers.
func same(a, b error) bool { return a == b } //nolint:errorlint // identity is what is asked for

package nats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
)

// The error codes of the JetStream API that this package handles in a way of their own, and that
// nats.go has no names for.
const (
	codeAccountResources  = 10002
	codeInsufficient      = 10023
	codeMaximumStreams    = 10027
	codeMemoryResources   = 10028
	codeStorageResources  = 10047
	codeSubjectOverlap    = 10065
	codeReplicas          = 10074
	codeStoreFailed       = 10077
	codeInactiveThreshold = 10153
	codeBatchIncomplete   = 10176
	codeBatchTooLarge     = 10199
	codeFastDisabled      = 10205
	codeUnknownBatch      = 10208
)

// codesFull are the errors of a server or an account without room for more messages.
var codesFull = []jetstream.ErrorCode{codeAccountResources, codeInsufficient, codeStorageResources}

// cures has the actions of a person that cure an error, by its code. An error with a cure
// is permanent, whatever its status. The next Resume reports what
// is wrong with the configuration of a stream.
var cures = map[jetstream.ErrorCode]string{
	codeAccountResources:                           "raise the account's JetStream limits",
	codeInsufficient:                               "raise the server's JetStream limits",
	jetstream.JSErrCodeMaximumConsumersLimit:       "raise the limit on consumers of the stream or the account; feedbridge needs one while it loads IDs",
	codeMaximumStreams:                             "raise the account's limit on streams, or set stream.name to one that has the topic",
	codeMemoryResources:                            "raise the server's JetStream limits",
	codeStorageResources:                           "raise the server's JetStream limits",
	jetstream.JSErrCodeStreamMessageExceedsMaximum: "that is the checkpoint: raise max_msg_size with 'nats stream edit %s --max-msg-size', or max_payload of the server",
	codeReplicas:                                   "lower stream.replicas, or use a cluster",
	codeBatchTooLarge:                              "raise max_batch_size in the server's JetStream limits to 1000",
}

// apiError turns an error of the JetStream API into one that matches [feed.ErrPermanent] if
// a retry cannot help, and that names the cure if there is one.
func apiError(e *jetstream.APIError, stream string, cfg Config) error {
	err := fmt.Errorf("%s (NATS error %d)", e.Description, e.ErrorCode)
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant: // see isConflict
		return fmt.Errorf("%w: %w", checkpoint.ErrConflict, err)
	case codeStoreFailed:
		// "maximum bytes exceeded" and "maximum messages exceeded" come from limits of the
		// stream; the store also fails while a server stops.
		if strings.HasPrefix(e.Description, "maximum ") {
			return feed.Permanent(fmt.Errorf("%w; the stream is full and refuses new messages: raise its limits, and do not purge it, which deletes the checkpoint, too", err))
		}
		return err
	}
	if cfg.FullCure != "" && slices.Contains(codesFull, e.ErrorCode) {
		return feed.Permanent(fmt.Errorf("%s (NATS error %d)", cfg.FullCure, e.ErrorCode))
	}
	if cure, ok := cures[e.ErrorCode]; ok {
		if strings.Contains(cure, "%s") {
			cure = fmt.Sprintf(cure, stream)
		}
		return feed.Permanent(fmt.Errorf("%w; %s", err, cure))
	}
	if e.ErrorCode == codeBatchIncomplete || e.ErrorCode == codeUnknownBatch {
		return fmt.Errorf("%w; the server has dropped the batch: its disk or the storage of the account is full (see its log), its leader has changed, or it has too many batches at once; it is sent again", err)
	}
	// A stream that is missing was there a moment ago, or allowed fast batches. The retry begins with
	// Resume, which finds another way or whose error has the cure.
	if e.ErrorCode == jetstream.JSErrCodeStreamNotFound || e.ErrorCode == codeFastDisabled || e.Code == http.StatusTooManyRequests || e.Code >= http.StatusInternalServerError {
		return err
	}
	return feed.Permanent(err)
}

// An explainer turns the errors of requests into errors that a person can act on. It is made
// before the requests: the server reports a missing permission to the connection, and does
// not answer the request.
type explainer struct {
	cfg      *Config
	sessions *sessionTracker
	requests scope
	// before is the connection's last error when the explainer was made, and counted the number
	// of its violations.
	before  error
	counted int
}

// newExplainer returns an explainer for the errors of requests that are made after this call.
func newExplainer(cfg *Config, sessions *sessionTracker, requests scope) explainer {
	return explainer{cfg, sessions, requests, sessions.nc.Load().LastError(), sessions.violations.counted()}
}

// violation returns the permissions violation because of which a request may have failed; nil if
// there is none. The last error of the connection may not be among the violations yet.
func (e explainer) violation() error {
	for _, err := range append(e.sessions.violations.after(e.counted), e.sessions.nc.Load().LastError()) {
		if errors.Is(err, nats.ErrPermissionViolation) && !isSameError(err, e.before) && e.requests.includes(err, e.cfg.apiPrefix()) {
			return err
		}
	}
	return nil
}

// explainError returns the explanation of err, the error of a request that was made within ctx.
func (e explainer) explainError(ctx context.Context, err error) error {
	if refused := e.violation(); refused != nil && !isConflict(err) {
		page := docs.URL + "nats.md#permissions"
		if strings.Contains(refused.Error(), bucketPrefix) {
			page = docs.URL + "scaling.md#nats"
		}
		return feed.Permanent(fmt.Errorf("%w; grant this user the permissions that %s lists", refused, page))
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return feed.Permanent(fmt.Errorf("JetStream is off for this account on NATS at %s; enable it in the server's configuration", e.sessions.servers))
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		// A cluster that has no leader yet answers like that, too.
		return fmt.Errorf("JetStream does not answer on NATS at %s: it is off, or has no leader; start the server with --jetstream, "+
			"or, if this is a leaf node or the streams are those of another account, correct api_prefix", e.sessions.servers)
	case ok:
		return apiError(api, e.requests.stream, *e.cfg)
	case errors.Is(err, nats.ErrMaxPayload): // Fits has refused larger entities
		return feed.Permanent(fmt.Errorf("%w; that is the checkpoint: raise max_payload of the server", err))
	}
	return causeOf(ctx, err)
}

// codeOf returns the code of an error of the JetStream API; 0 for any other error.
func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// isConflict reports whether the server has refused a commit because of its fence. It was permitted
// then: a violation at the same time is that of another request of the connection.
func isConflict(err error) bool {
	code := codeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant || errors.Is(err, checkpoint.ErrConflict)
}

// causeOf returns the reason why ctx ended, if it did and err is only the error of ctx.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}

// isSameError compares two errors by identity. The errors of nats.go that it is used for
// are pointers.
func isSameError(a, b error) bool { return a == b } //nolint:errorlint // identity is compared on purpose

package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// cures has, for errors of the brokers, the action by which a person can correct them. An error
// with a cure is permanent.
var cures = map[*kerr.Error]string{
	kerr.ClusterAuthorizationFailed:  "this user lacks a right to the cluster; before Kafka 2.8 a producer needs IdempotentWrite on it",
	kerr.TopicAuthorizationFailed:    "this user lacks a right to a topic; grant what " + docs.URL + "kafka.md#acls lists",
	kerr.SecurityDisabled:            "the brokers have no authorizer",
	kerr.InvalidTransactionTimeout:   "lower timeout, of which it is six times, or raise the brokers' transaction.max.timeout.ms",
	kerr.InvalidRecord:               "the topic refuses the message; is it compacted, which takes no messages without a key?",
	kerr.InvalidTimestamp:            "the topic refuses the time of the message; correct the clocks of the copies",
	kerr.InvalidTopicException:       "the name of the topic is not valid in Kafka",
	kerr.PolicyViolation:             "the cluster's policy forbids it; ask its administrator",
	kerr.UnsupportedCompressionType:  "the brokers do not know this compression; set another one",
	kerr.UnsupportedForMessageFormat: "the topic has message.format.version of before 0.11, which has no transactions; raise it",
	kerr.UnsupportedSaslMechanism:    "the brokers do not offer this mechanism; check sasl.mechanism",
	kerr.IllegalSaslState:            "the brokers expect no SASL on this port; check brokers and sasl",
}

// isFenced reports whether another producer has initialized the transactional id. The last of
// the errors is that of a transaction that the cluster aborted for that, or because it timed
// out. These are indistinguishable, so both are handled alike.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidTxnState)
}

// diagnosis explains the errors of a cluster. As a hook of every kgo client it remembers why
// the newest attempt to connect to a broker failed: while kgo retries, a request only times
// out.
type diagnosis struct {
	cfg     Config
	log     *slog.Logger
	brokers string // for errors and logs
	closed  atomic.Bool
	// refused reports that a broker has closed a connection during authentication, which
	// is how some of them refuse credentials, and that none has taken them since.
	refused atomic.Bool
	// down is the error of the newest attempt; that or the pointer is nil if there is none.
	down atomic.Pointer[error]
	// throttled is the newest request of a broker to wait for long; nil if there was none.
	throttled atomic.Pointer[throttled]
}

// throttled is the request of a broker that a client waits, as it is over a quota (KIP-219). The broker
// has accepted what the client has sent. kgo sends it nothing more on the connection until then.
type throttled struct {
	wait  time.Duration
	until time.Time
}

func newDiagnosis(cfg Config, log *slog.Logger) *diagnosis {
	return &diagnosis{cfg: cfg, log: log, brokers: strings.Join(cfg.Brokers, ", ")}
}

// OnBrokerConnect is called when a connection is ready for use, or failed.
func (d *diagnosis) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if timedOut(err) {
		return
	}
	if d.down.Store(&err); err == nil {
		d.refused.Store(false)
	}
}

// OnBrokerThrottle is called for every answer with which a broker asks to wait.
func (d *diagnosis) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	if wait < d.cfg.Timeout/5 {
		return // which delays no commit for long
	}
	if d.recentThrottle() == 0 {
		d.log.Warn("the brokers hold this client back, as it is over its quota", "client_id", d.cfg.ClientID, "for", wait)
	}
	d.throttled.Store(&throttled{wait, time.Now().Add(wait)})
}

// recentThrottle returns how long a broker has asked to wait last, or zero if that has ended long ago.
func (d *diagnosis) recentThrottle() time.Duration {
	if t := d.throttled.Load(); t != nil && time.Since(t.until) < d.cfg.TransactionTimeout {
		return t.wait
	}
	return 0
}

// timedOut reports whether the time for a connection was over, which proves nothing about the
// broker.
func timedOut(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// OnBrokerRead is called for every answer.
func (d *diagnosis) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == kmsg.SASLAuthenticate.Int16() && errors.Is(err, io.EOF) {
		d.refused.Store(true)
	}
}

var errNotConfirmed = errors.New("the cluster has not confirmed in time that the transaction is committed")

// silence reports that no answer came in time.
type silence struct {
	brokers string
	after   time.Duration
}

func (e *silence) Error() string {
	return fmt.Sprintf("no answer from Kafka at %s within %v", e.brokers, e.after)
}

// explainError returns err, the error of a request within ctx, with its cause and cure. An
// error that a person has to correct is permanent.
func (d *diagnosis) explainError(ctx context.Context, err error) error {
	if isKafka(err) {
		return d.explainKafka(err)
	}
	if d.closed.Load() {
		return fmt.Errorf("the connection to Kafka at %s is closed", d.brokers)
	}
	err = causeOf(ctx, err)
	quiet, late := errors.AsType[*silence](err)
	late = late || errors.Is(err, errNotConfirmed) || errors.Is(err, kgo.ErrRecordTimeout)
	if wait := d.recentThrottle(); late && wait > 0 {
		return fmt.Errorf("Kafka at %s holds this client back by a quota: it has last asked it to wait %v; raise producer_byte_rate, consumer_byte_rate "+
			"or request_percentage of the user or of client_id %q", d.brokers, wait, d.cfg.ClientID)
	}
	if quiet != nil {
		// kgo does not return the reason while it retries to connect.
		if d.refused.Load() {
			return d.errRefused()
		}
		down := d.down.Load()
		if down == nil || *down == nil {
			return err
		}
		if err = *down; isKafka(err) {
			return d.explainKafka(err)
		}
	}
	return d.explainConnection(err)
}

// explainConnection explains an error of a connection, or of its absence.
func (d *diagnosis) explainConnection(err error) error {
	var (
		untrusted *tls.CertificateVerificationError
		plaintext tls.RecordHeaderError
		eof       *kgo.ErrFirstReadEOF
		token     *credential.TokenError
		op        *net.OpError
		late      net.Error
	)
	switch {
	case errors.Is(err, feed.ErrPermanent), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &token):
		return fmt.Errorf("fetching a token (sasl.oauth2) from %s: %w; check token_url, client_id, the client's secret, and scopes", d.cfg.SASL.OAuth2.TokenURL, token)
	case strings.Contains(err.Error(), "invalid large response size"): // kgo has no error to match
		return feed.Permanent(fmt.Errorf("the server at %s is not a Kafka broker, or expects TLS on this port: %w; check brokers and tls.enabled", d.brokers, err))
	case errors.As(err, &untrusted):
		return feed.Permanent(fmt.Errorf("the certificate of Kafka at %s is not trusted: %w; check the brokers' names and tls.server_name, or set tls.ca_file", d.brokers, untrusted.Err))
	case errors.As(err, &plaintext):
		return feed.Permanent(fmt.Errorf("Kafka at %s does not speak TLS on this port; check brokers and tls", d.brokers))
	case errors.As(err, &op) && op.Op == "remote error":
		return feed.Permanent(fmt.Errorf("Kafka at %s refuses the TLS connection: %w; check tls.cert_file", d.brokers, op.Err))
	case d.refused.Load() && errors.Is(err, io.EOF):
		return d.errRefused()
	case errors.As(err, &eof):
		return fmt.Errorf("Kafka at %s closes every connection at once; check brokers, and whether tls and sasl are what it expects on this port", d.brokers)
	case errors.As(err, &op) && op.Op == "dial" && !op.Timeout():
		return fmt.Errorf("no Kafka broker answers at %s: %w; is it running?", d.brokers, op.Err)
	case errors.As(err, &late) && late.Timeout():
		return &silence{d.brokers, d.cfg.Timeout}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("Kafka at %s has closed the connection", d.brokers)
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return fmt.Errorf("Kafka at %s has not accepted the messages within %v", d.brokers, d.cfg.Timeout)
	}
	return err
}

// explainKafka explains an error code that a broker has answered.
func (d *diagnosis) explainKafka(err error) error {
	k, _ := errors.AsType[*kerr.Error](err)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return d.errRefused()
	case errors.Is(err, kerr.UnsupportedVersion):
		return errTooOld(d.brokers)
	}
	if cure, ok := cures[k]; ok {
		return feed.Permanent(fmt.Errorf("%w; %s", err, cure))
	}
	return err
}

// minRelease is the oldest release of Kafka that is supported: the first one with the requests
// that client.checkVersions needs.
const minRelease = "2.5"

func errTooOld(brokers string) error {
	return feed.Permanent(fmt.Errorf("the Kafka cluster at %s is too old: feedbridge needs transactions as Kafka has them from %s on; upgrade it", brokers, minRelease))
}

func (d *diagnosis) errRefused() error {
	return feed.Permanent(fmt.Errorf("Kafka at %s refuses the credentials (sasl.mechanism %q); check sasl", d.brokers, d.cfg.SASL.Mechanism))
}

// isKafka reports whether err is an error code that a broker has answered.
func isKafka(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}

// isMissingTopic reports whether an error is that a topic does not exist.
func isMissingTopic(err error) bool { return errors.Is(err, kerr.UnknownTopicOrPartition) }

// isTransient reports whether a retry may succeed.
func isTransient(err error) bool { return kerr.IsRetriable(err) || errors.Is(err, errNoLeader) }

var errNoLeader = errors.New("the partition has no leader")

// causeOf returns the cause of ctx if ctx has ended and err has no other reason; otherwise err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, kgo.ErrClientClosed)) {
		return cause
	}
	return err
}

package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// cures say what a person can do about an error of the brokers. An error with a
// cure is permanent.
var cures = map[*kerr.Error]string{
	kerr.ClusterAuthorizationFailed:  "this user lacks a right to the cluster; before Kafka 2.8 a producer needs IdempotentWrite on it",
	kerr.TopicAuthorizationFailed:    "this user lacks a right to a topic; grant what the documentation lists",
	kerr.SecurityDisabled:            "the brokers have no authorizer",
	kerr.InvalidTransactionTimeout:   "lower transaction_timeout, or raise the brokers' transaction.max.timeout.ms",
	kerr.InvalidRecord:               "the topic refuses the message; is it compacted, which takes no messages without a key?",
	kerr.InvalidTopicException:       "Kafka takes no such name for a topic",
	kerr.PolicyViolation:             "the cluster's policy forbids it; ask who runs it",
	kerr.UnsupportedCompressionType:  "the brokers do not know this compression; set another one",
	kerr.UnsupportedForMessageFormat: "the topic has message.format.version of before 0.11, which has no transactions; raise it",
	kerr.UnsupportedSaslMechanism:    "the brokers do not offer this mechanism; check sasl.mechanism",
	kerr.IllegalSaslState:            "the brokers expect no SASL on this port; check brokers and sasl",
}

// notices say what an error that goes by means.
var notices = map[*kerr.Error]string{
	kerr.NotEnoughReplicas:            "not enough replicas of a partition are in sync; are brokers down?",
	kerr.NotEnoughReplicasAfterAppend: "not enough replicas of a partition are in sync; are brokers down?",
	kerr.CoordinatorNotAvailable:      "the cluster has no coordinator for transactions yet",
	kerr.ConcurrentTransactions:       "the transaction before is still being ended",
}

// explain turns the error of something that was done within ctx into what a
// person can understand.
func (s *Sink) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, feed.ErrPermanent), errors.Is(err, checkpoint.ErrConflict):
		return err
	case isFenced(err):
		return fmt.Errorf("%w: another producer has taken the transactional id %q (%w); if no other copy of this feed runs, "+
			"another program uses it: set transactional_id_prefix", checkpoint.ErrConflict, s.transactionalID, err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return feed.Permanent(fmt.Errorf("this user may not use the transactional id %q (%w); run 'kafka-acls.sh --bootstrap-server %s --add "+
			"--allow-principal User:%s --operation Write --operation Describe --transactional-id %[1]q'",
			s.transactionalID, err, s.conn.cfg.Brokers[0], either(s.conn.cfg.SASL.Username, "NAME")))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		// It does not say which one.
		return feed.Permanent(fmt.Errorf("this user lacks a right to topic %s or %s (%w); run 'kafka-acls.sh --bootstrap-server %s --add "+
			"--allow-principal User:%s --operation Read --operation Write --operation Create --operation DescribeConfigs --topic %[1]s --topic %[2]s'",
			s.topic.Name, s.conn.cfg.Checkpoints, err, s.conn.cfg.Brokers[0], either(s.conn.cfg.SASL.Username, "NAME")))
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return feed.Permanent(fmt.Errorf("%w: %w", sink.ErrTooLarge, err))
	case missing(err) && !s.topic.Create:
		if strings.Contains(err.Error(), s.conn.cfg.Checkpoints) {
			return s.errNone(s.conn.cfg.Checkpoints)
		}
		return s.errNone(s.topic.Name)
	}
	return s.conn.explain(ctx, err)
}

// isFenced reports whether another producer has initialized the transactional id. The last of
// the errors is that of a transaction that the cluster aborted for that, or because it timed
// out. These are indistinguishable, so both are handled alike.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidTxnState)
}

// explainCheckpoint is for an error of writing a checkpoint that has size bytes. It is no
// [sink.ErrTooLarge], for that is about an entity.
func (s *Sink) explainCheckpoint(err error, size int) error {
	if !errors.Is(err, kerr.MessageTooLarge) && !errors.Is(err, kerr.RecordListTooLarge) {
		return err
	}
	if size > defaultBatch-batchOverhead-recordOverhead {
		return feed.Permanent(fmt.Errorf("the checkpoint is too large: it has %d bytes, and may have %d; its cursor grows with what the feed "+
			"repeats, so report the feed, or move the position with 'feedbridge checkpoint set %s'", size, defaultBatch, s.topic.Feed))
	}
	return feed.Permanent(fmt.Errorf("the checkpoint is too large: it has %d bytes, which topic %s does not take; run "+
		"'kafka-configs.sh --bootstrap-server %s --alter --topic %[2]s --add-config max.message.bytes=1048588'", size, s.conn.cfg.Checkpoints, s.conn.cfg.Brokers[0]))
}

// notKafka returns the first bytes that a server has sent which does not speak Kafka's protocol.
// kgo takes them for the size of an answer, and has no error to match.
func notKafka(err error) (text string, ok bool) {
	_, rest, ok := strings.Cut(err.Error(), "invalid large response size ")
	if !ok {
		return "", false
	}
	number, _, _ := strings.Cut(rest, " ")
	size, bad := strconv.ParseUint(number, 10, 32)
	if bad != nil {
		return "", false
	}
	return string(binary.BigEndian.AppendUint32(nil, uint32(size))), true
}

func (c *Conn) explain(ctx context.Context, err error) error {
	if isKafka(err) {
		return c.explainKafka(err)
	}
	if c.isClosed() {
		return fmt.Errorf("the connection to Kafka at %s is closed", c.brokers)
	}
	err = causeOf(ctx, err)
	var quiet *silence
	if errors.As(err, &quiet) {
		// While franz-go tries to connect, nobody is told why it cannot.
		if c.refused.Load() {
			return c.errRefused()
		}
		down := c.lastDown()
		if down == nil {
			return err
		}
		if isKafka(down) {
			return c.explainKafka(down)
		}
		err = down
	}
	var (
		untrusted *tls.CertificateVerificationError
		plaintext tls.RecordHeaderError
		eof       *kgo.ErrFirstReadEOF
		token     *tokenError
		op        *net.OpError
		late      net.Error
	)
	first, foreign := notKafka(err)
	switch {
	case errors.Is(err, feed.ErrPermanent), errors.Is(err, context.Canceled), errors.As(err, &token):
		return err
	case foreign && first[0] == 21: // a TLS alert
		return feed.Permanent(fmt.Errorf("Kafka at %s expects TLS on this port; set tls.enabled, or name the port without it in brokers", c.brokers))
	case foreign:
		return feed.Permanent(fmt.Errorf("the server at %s is no Kafka broker: it begins with %q; check brokers", c.brokers, first))
	case errors.As(err, &untrusted):
		return feed.Permanent(fmt.Errorf("the certificate of Kafka at %s is not trusted: %w; check the brokers' names and tls.server_name, or set tls.ca_file", c.brokers, untrusted.Err))
	case errors.As(err, &plaintext):
		return feed.Permanent(fmt.Errorf("Kafka at %s does not speak TLS on this port; check brokers and tls", c.brokers))
	case errors.As(err, &op) && op.Op == "remote error":
		return feed.Permanent(fmt.Errorf("Kafka at %s refuses the TLS connection: %w; check tls.cert_file", c.brokers, op.Err))
	case c.refused.Load() && errors.Is(err, io.EOF):
		return c.errRefused()
	case errors.As(err, &eof) && c.cfg.SASL.Mechanism == "" && !c.cfg.TLS.on():
		return fmt.Errorf("Kafka at %s closes every connection at once: does it expect TLS or SASL on this port? neither is configured", c.brokers)
	case errors.As(err, &eof):
		return fmt.Errorf("Kafka at %s closes every connection at once; check brokers, tls, and %s", c.brokers, c.cfg.proof())
	case errors.As(err, &op) && op.Op == "dial" && !op.Timeout():
		return fmt.Errorf("no Kafka broker answers at %s: %w; is it running?", c.brokers, op.Err)
	case errors.As(err, &late) && late.Timeout():
		return &silence{c.brokers, c.cfg.Timeout}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("Kafka at %s has closed the connection", c.brokers)
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return fmt.Errorf("Kafka at %s has not taken the messages within %v", c.brokers, c.cfg.Timeout)
	}
	return err
}

// explainKafka is for what a broker answers.
func (c *Conn) explainKafka(err error) error {
	var k *kerr.Error
	errors.As(err, &k)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return c.errRefused()
	case errors.Is(err, kerr.UnsupportedVersion):
		return c.errTooOld()
	}
	if cure, ok := cures[k]; ok {
		return feed.Permanent(fmt.Errorf("%w; %s", err, cure))
	}
	if notice, ok := notices[k]; ok {
		return fmt.Errorf("%w: %s", err, notice)
	}
	return err
}

func (c *Conn) errRefused() error {
	return feed.Permanent(fmt.Errorf("Kafka at %s refuses %s; check them", c.brokers, c.cfg.proof()))
}

// noPartition says that a topic lacks the partition that is to be read. It matches
// [feed.ErrNoTopic]: there is nothing to read.
type noPartition struct {
	wanted int32
	has    int
}

func (e *noPartition) Error() string {
	return fmt.Sprintf("it has no partition %d, only 0 to %d; set serve.feeds.NAME.from.partition to one of these", e.wanted, e.has-1)
}

func (e *noPartition) Is(target error) bool { return target == feed.ErrNoTopic }

// isKafka says whether an error is one that a broker has answered.
func isKafka(err error) bool {
	var k *kerr.Error
	return errors.As(err, &k)
}

// proof says in what way c proves who connects, for an error about it.
func (c Config) proof() string {
	switch c.SASL.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
		return fmt.Sprintf("the username and password (sasl, %s)", c.SASL.Mechanism)
	case OAuthBearer:
		return "the token (sasl, OAUTHBEARER)"
	case MSKIAM:
		return "the keys (sasl, AWS_MSK_IAM)"
	}
	return "that the connection comes without sasl"
}

// causeOf is the reason why ctx ended, if it did and err says no more than that.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, kgo.ErrClientClosed)) {
		return cause
	}
	return err
}

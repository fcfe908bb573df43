package nats

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// maxHeader is the largest header of a message that JetStream stores, in bytes.
const maxHeader = math.MaxUint16

// leastMessage is the least limit of a message's size that a stream may have, in bytes.
// A checkpoint has about 350 bytes besides its cursor, most of which is URLs and
// Content-IDs, so with less than this hardly any would fit.
const leastMessage = 1024

// overhead is what the headers of a batch, and of the first message but for the
// topic's name, add to a message.
const overhead = len("NATS/1.0\r\n\r\n") +
	len(batchID+": 0123456789012345678901\r\n") + len(batchSequence+": 999\r\n") + len(firstOf+": \r\n")

// Fits returns an error for an entity that cannot be published as it is: one
// that is too large with its headers, which matches [sink.ErrTooLarge], or one
// with a header that the NATS protocol has no way to carry. It is safe for
// concurrent use.
func (s *Sink) Fits(e feed.Entity) error {
	var buf [24]feed.Field
	return s.fits(codec.AppendHeader(buf[:0], s.topic.Feed, e), len(e.Body))
}

// fits is [Sink.Fits] for a message.
func (s *Sink) fits(h feed.Header, body int) error {
	size := overhead + len(s.topic.Subject)
	for i := range h {
		if err := carried(&h[i]); err != nil {
			return err
		}
		size += len(h[i].Name) + len(": \r\n") + len(h[i].Value)
	}
	if size > maxHeader {
		return fmt.Errorf("%w: its headers have %d bytes and NATS takes %d", sink.ErrTooLarge, size, maxHeader)
	}
	size += body
	if limit := s.limit.Load(); limit > 0 && int64(size) > limit {
		return fmt.Errorf("%w: it has %d bytes with its headers and NATS takes %d; raise max_payload in the server's configuration, "+
			"and the stream's --max-msg-size if it has one", sink.ErrTooLarge, size, limit)
	}
	return nil
}

// checkpointFits returns an error if the message of a checkpoint is too large. It is
// no entity's fault, and the limit can be raised: what a checkpoint has to say is bounded.
func (s *Sink) checkpointFits(m *nats.Msg) error {
	size := int64(len("NATS/1.0\r\n\r\n") + len(m.Data))
	for name, values := range m.Header {
		for _, value := range values {
			size += int64(len(name) + len(": \r\n") + len(value))
		}
	}
	stream := s.topic.Stream.Name
	if limit := s.conn.nc.MaxPayload(); size > limit {
		return feed.Permanent(fmt.Errorf("the checkpoint of %d bytes is larger than max_payload %d of the NATS server; raise it to at least %[1]d", size, limit))
	}
	if limit := s.limit.Load(); size > limit {
		return feed.Permanent(fmt.Errorf("the checkpoint of %d bytes is larger than max_msg_size %d of stream %s; raise it to at least %[1]d with "+
			"'nats stream edit %[3]s --max-msg-size %[1]d'", size, limit, stream))
	}
	return nil
}

// carried returns an error for a field that nats.go would refuse or change.
func carried(f *feed.Field) error {
	if f.Name == "" {
		return errors.New("a header has no name")
	}
	for i := range len(f.Name) {
		if !nameBytes[f.Name[i]] {
			return fmt.Errorf("the header %q cannot be carried by NATS: no %q in names", f.Name, f.Name[i])
		}
	}
	if strings.IndexByte(f.Value, '\n') >= 0 || strings.IndexByte(f.Value, '\r') >= 0 {
		return fmt.Errorf("the header %q cannot be carried by NATS: its value has a line break", f.Name)
	}
	return nil
}

// nameBytes are those that nats.go takes in the name of a header: printable
// ASCII but for separators.
var nameBytes = func() (set [256]bool) {
	for b := byte(33); b < 127; b++ {
		set[b] = !strings.ContainsRune("\"()/,:;<=>?@[\\]{}", rune(b))
	}
	return set
}()

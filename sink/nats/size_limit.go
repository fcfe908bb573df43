package nats

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// maxHeader is the largest header of a message that JetStream stores, in bytes.
const maxHeader = math.MaxUint16

// leastMessage is the smallest limit of a message's size that a stream may have, in bytes.
// A checkpoint has about 350 bytes besides its cursor, most of which is URLs and
// Content-IDs, so with a smaller limit hardly any would fit.
const leastMessage = 1024

// overhead is the size of the headers that a batch adds to a message, in bytes, with those of
// the topic's first message and of the fence, but without their subjects.
const overhead = len("NATS/1.0\r\n\r\n") +
	len(batchID+": 0123456789012345678901\r\n") + len(batchSequence+": 999\r\n") + len(firstOf+": \r\n") +
	len(expectedLast+": 18446744073709551615\r\n") + len(expectedOf+": \r\n") + len(expectedStream+": 18446744073709551615\r\n")

// sizeLimit is the largest message that the server and the stream of a topic take. It is
// safe for concurrent use.
type sizeLimit struct {
	client *client
	topic  *Topic
	// bytes is the limit with headers; 0 before the first setFrom.
	bytes atomic.Int64
}

// setFrom takes the limit of the server, and of the stream's configuration if that is lower.
func (l *sizeLimit) setFrom(c jetstream.StreamConfig) {
	limit := l.client.nc().MaxPayload()
	if n := int64(c.MaxMsgSize); n > 0 {
		limit = min(limit, n)
	}
	l.bytes.Store(limit)
}

// overhead returns the size of the headers that a batch adds to a message of the topic at most.
func (l *sizeLimit) overhead() int {
	return overhead + len(l.topic.Subject) + len(l.topic.deadSubject())
}

// checkEntity returns an error if the message of an entity with header h cannot be published;
// see [Sink.Fits]. namesChecked reports that it returned no error about a header with the same names.
func (l *sizeLimit) checkEntity(h feed.Header, namesChecked bool, body int) error {
	size := l.overhead()
	for i := range h {
		check := checkField
		if namesChecked {
			check = checkValue
		}
		if err := check(&h[i]); err != nil {
			return fmt.Errorf("%w: %w", sink.ErrHeader, err)
		}
		size += len(h[i].Name) + len(": \r\n") + len(h[i].Value)
	}
	if size > maxHeader {
		return fmt.Errorf("%w: its headers have %d bytes and NATS accepts %d", sink.ErrTooLarge, size, maxHeader)
	}
	size += body
	if limit := l.bytes.Load(); limit > 0 && int64(size) > limit {
		return fmt.Errorf("%w: it has %d bytes with its headers and NATS accepts %d; raise max_payload in the server's configuration, "+
			"and the stream's --max-msg-size if it has one", sink.ErrTooLarge, size, limit)
	}
	return nil
}

// carries reports whether the message of a checkpoint has room for the one before it in its header.
func (l *sizeLimit) carries(checkpoint, previous []byte) bool {
	room := l.deadLetterRoom()
	return len(previous)+leastMessage/4 <= min(room.Header, room.Message-len(checkpoint))
}

// deadLetterRoom returns the space for a dead letter.
func (l *sizeLimit) deadLetterRoom() codec.Room {
	most := cmp.Or(l.bytes.Load(), math.MaxInt32)
	used := l.overhead()
	return codec.Room{Header: maxHeader - used, Message: int(most) - used, Field: func(f feed.Field) (int, bool) {
		return len(f.Name) + len(": \r\n") + len(f.Value), checkField(&f) == nil
	}}
}

// checkField returns an error for a header field that nats.go would refuse or change.
func checkField(f *feed.Field) error {
	if f.Name == "" {
		return errors.New("it has no name")
	}
	for i := range len(f.Name) {
		if !nameBytes[f.Name[i]] {
			return fmt.Errorf("%q: NATS has no %q in names", f.Name, f.Name[i])
		}
	}
	return checkValue(f)
}

// checkValue is checkField for a field whose name is known to be valid.
func checkValue(f *feed.Field) error {
	if strings.IndexByte(f.Value, '\n') >= 0 || strings.IndexByte(f.Value, '\r') >= 0 {
		return fmt.Errorf("%q: its value has a line break", f.Name)
	}
	return nil
}

// nameBytes has the bytes that nats.go accepts in the name of a header: printable
// ASCII without separators.
var nameBytes = func() (set [256]bool) {
	for b := byte(33); b < 127; b++ {
		set[b] = !strings.ContainsRune("\"()/,:;<=>?@[\\]{}", rune(b))
	}
	return set
}()

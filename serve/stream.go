package serve

import (
	"context"
	"io"
	"iter"

	"github.com/feedbridge/feedbridge/internal/connlimit"
)

// stream is a page that is not held in memory, read from the topic while it is
// sent. It is an [io.ReadSeeker] for [http.ServeContent], which asks for its length and reads all of it.
type stream struct {
	ctx      context.Context
	f        *pageBuilder
	p        *page
	next     func() ([]byte, error, bool) // nil before the start
	stop     func()
	leftover []byte
	at       int64 // of leftover in the page

	slot *connlimit.Slot
	sent int // by the last Read, which the client has taken when it is called again
}

// streamChunks are the bytes of a page that has no links in it.
func (pb *pageBuilder) streamChunks(ctx context.Context, p *page) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		head, tail := pb.format.headAndTail(pb.cfg, p)
		if !yield(head, nil) {
			return
		}
		var b []byte
		for e, err := range pb.newReading(ctx, p, nil).readEntities(ctx) {
			if err == nil {
				b = pb.format.appendEntity(b[:0], p, e)
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
		yield(tail, nil)
	}
}

func (s *stream) Read(b []byte) (n int, err error) {
	s.slot.Took(s.sent)
	defer func() {
		s.sent = n
		s.slot.Wait()
	}()
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.at >= s.p.length {
		return 0, io.EOF
	}
	if s.next == nil {
		s.next, s.stop = iter.Pull2(s.f.streamChunks(s.ctx, s.p))
	}
	for len(s.leftover) == 0 {
		chunk, err, ok := s.next()
		switch {
		case err != nil:
			return 0, err
		case !ok:
			return 0, errCut
		}
		s.leftover = chunk
	}
	n = copy(b, s.leftover)
	s.leftover, s.at = s.leftover[n:], s.at+int64(n)
	return n, nil
}

func (s *stream) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset += s.p.length
	}
	return offset, nil
}

// Close ends the reading.
func (s *stream) Close() {
	if s.stop != nil {
		s.stop()
	}
}

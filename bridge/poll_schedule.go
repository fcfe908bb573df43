package bridge

import (
	"hash/fnv"
	"io"
	"time"
)

// pollSchedule has the times of the polls of a feed that is read to its end.
type pollSchedule struct {
	feed, writer string
	every        time.Duration
}

// nextPoll is [Bridge.NextPoll].
func (s pollSchedule) nextPoll(polled time.Time) time.Time {
	if s.every <= 0 {
		return polled
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, s.feed+"\x00"+s.writer)
	offset := time.Duration(h.Sum64() % uint64(s.every))
	earliest := polled.Add(s.every / 2)
	missing := (offset - time.Duration(earliest.UnixNano())%s.every) % s.every
	if missing < 0 {
		missing += s.every
	}
	return earliest.Add(missing)
}

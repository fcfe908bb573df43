package daemon

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxQueuedLog limits the lines of the log that wait to be written, in bytes.
const maxQueuedLog = 4 << 20

// LogQueue is a writer of lines that does not wait for its output: a pipe that nobody reads would stop
// every feed at its next line. While the queue is full, lines are dropped and counted. It is safe for
// concurrent use. If the process is killed, the lines in the queue are lost.
type LogQueue struct {
	out io.Writer

	mu      sync.Mutex // guards the fields below
	lines   [][]byte
	bytes   int           // of lines, and of the line that is being written
	began   time.Time     // when the line that is being written was begun
	drained chan struct{} // closed when all lines are written; nil while there are none
	dropped uint64
}

// NewLogQueue returns a queue that writes to out. It has a goroutine only while it has lines.
func NewLogQueue(out io.Writer) *LogQueue { return &LogQueue{out: out} }

// Write adds a line to the queue, or drops it. It returns no error.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(line) > maxQueuedLog {
		q.dropped++
		return len(line), nil
	}
	q.lines = append(q.lines, bytes.Clone(line))
	q.bytes += len(line)
	if q.drained == nil {
		q.drained, q.began = make(chan struct{}), time.Now()
		go q.drain()
	}
	return len(line), nil
}

// drain writes the lines until there are none.
func (q *LogQueue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lines) > 0 {
		line := q.lines[0]
		q.lines, q.began = q.lines[1:], time.Now()
		q.mu.Unlock()
		_, err := q.out.Write(line)
		q.mu.Lock()
		q.bytes -= len(line)
		if err != nil {
			q.dropped++
		}
	}
	close(q.drained)
	q.lines, q.drained = nil, nil
}

// Flush returns when all lines are written, or after limit.
func (q *LogQueue) Flush(limit time.Duration) {
	q.mu.Lock()
	drained := q.drained
	q.mu.Unlock()
	if drained == nil {
		return
	}
	select {
	case <-drained:
	case <-time.After(limit):
	}
}

// Dropped returns 0 if q is nil, and otherwise the number of lines that were not written: the queue was full, or the reader is gone.
func (q *LogQueue) Dropped() uint64 {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Stuck returns 0 if q is nil, and otherwise for how long the output has not taken the line that is being written.
func (q *LogQueue) Stuck() time.Duration {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drained == nil {
		return 0
	}
	return time.Since(q.began)
}

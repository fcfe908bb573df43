package main

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// statusLine writes to standard error. On a terminal it keeps a line at the bottom that shows
// the progress of a command, and whatever is written, such as the log, scrolls by above it.
type statusLine struct {
	w io.Writer
	// width returns the number of columns; nil unless w is a terminal that can redraw a
	// line.
	width func() int

	mu   sync.Mutex // guards line, and serializes writes
	line string     // as it is on the terminal
}

// refresh is the interval at which the line is drawn.
const refresh = 200 * time.Millisecond

func newStatusLine(w io.Writer) *statusLine {
	s := &statusLine{w: w}
	if isTerminal(w) && os.Getenv("TERM") != "dumb" {
		fd := int(w.(*os.File).Fd())
		s.width = func() int {
			if width, _, err := term.GetSize(fd); err == nil && width > 0 {
				return width
			}
			return 80
		}
	}
	return s
}

// Write writes whole lines above the status line.
func (s *statusLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(p)
	}
	// One write, so that the line does not flicker.
	_, err := io.WriteString(s.w, erase+string(p)+s.line)
	return len(p), err
}

const erase = "\r\x1b[K"

// showUntilStopped shows what text returns until stop is called, which leaves the last line on the
// terminal. It does nothing if there is no terminal.
func (s *statusLine) showUntilStopped(text func() string) (stop func()) {
	if s.width == nil {
		return func() {}
	}
	done := make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		ticker := time.NewTicker(refresh)
		defer ticker.Stop()
		for {
			s.drawLine(text())
			select {
			case <-ticker.C:
			case <-done:
				s.drawLine(text())
				s.endLine()
				return
			}
		}
	})
	return func() {
		close(done)
		drawing.Wait()
	}
}

// drawLine shows line, cut to the terminal's width with room for a ^C: a line that wraps cannot
// be erased. The last of the parts between two spaces matters most, so the first are left out.
func (s *statusLine) drawLine(line string) {
	room := max(0, s.width()-len("^C")-1)
	for _, rest, more := strings.Cut(line, "  "); more && len(line) > room; _, rest, more = strings.Cut(line, "  ") {
		line = rest
	}
	line = line[:min(len(line), room)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != s.line {
		s.line = line
		_, _ = io.WriteString(s.w, erase+line)
	}
}

// endLine ends the line and leaves it on the terminal.
func (s *statusLine) endLine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		s.line = ""
		_, _ = io.WriteString(s.w, "\n")
	}
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

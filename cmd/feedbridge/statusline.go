package main

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// screen is standard error. On a terminal its last line can tell what goes on,
// and what is written, such as the log, scrolls by above it.
type screen struct {
	w io.Writer
	// width is the number of columns; nil if there is no terminal whose line
	// can be written anew.
	width func() int

	mu   sync.Mutex // guards what follows, and keeps writes apart
	line string     // the live line as it stands there
}

// refresh is how often the live line is drawn.
const refresh = 200 * time.Millisecond

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
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

// Write writes whole lines above the live line.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(p)
	}
	// In one piece, lest it flickers.
	_, err := io.WriteString(s.w, erase+string(p)+s.line)
	return len(p), err
}

const erase = "\r\x1b[K"

// live has the last line say what text returns, until stop is called, which
// leaves it standing. It does nothing where there is no terminal.
func (s *screen) live(text func() string) (stop func()) {
	if s.width == nil {
		return func() {}
	}
	done := make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		ticker := time.NewTicker(refresh)
		defer ticker.Stop()
		for {
			s.draw(text())
			select {
			case <-ticker.C:
			case <-done:
				s.draw(text())
				s.leave()
				return
			}
		}
	})
	return func() {
		close(done)
		drawing.Wait()
	}
}

// draw makes line the live line. It is cut to the terminal's width, with room for
// the ^C of a person who has seen enough: a line that wraps cannot be erased.
func (s *screen) draw(line string) {
	line = line[:min(len(line), max(0, s.width()-len("^C")-1))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != s.line {
		s.line = line
		_, _ = io.WriteString(s.w, erase+line)
	}
}

// leave ends the live line where it stands.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		s.line = ""
		_, _ = io.WriteString(s.w, "\n")
	}
}

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
)

// terminal renders the output as a terminal does: a carriage return overwrites the line.
type terminal struct{ logbuffer.Buffer }

func (t *terminal) lines() []string {
	lines := strings.Split(t.String(), "\n")
	for i, line := range lines {
		if at := strings.LastIndex(line, erase); at >= 0 {
			lines[i] = line[at+len(erase):]
		}
	}
	return lines
}

func wantLines(t *testing.T, term *terminal, want ...string) {
	t.Helper()
	if got := term.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("on the terminal is\n%q\nwant\n%q", got, want)
	}
}

func TestTheLogScrollsByAboveTheLiveLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var term terminal
		s := &statusLine{w: &term, width: func() int { return 80 }}
		n := 0
		stop := s.showUntilStopped(func() string {
			n++
			return fmt.Sprintf("drawn %d", n)
		})
		synctest.Wait()
		wantLines(t, &term, "drawn 1")
		fmt.Fprintln(s, "first")
		wantLines(t, &term, "first", "drawn 1")
		time.Sleep(refresh)
		synctest.Wait()
		fmt.Fprintln(s, "second")
		wantLines(t, &term, "first", "second", "drawn 2")
		stop()
		wantLines(t, &term, "first", "second", "drawn 3", "")
		fmt.Fprintln(s, "after")
		wantLines(t, &term, "first", "second", "drawn 3", "after", "")
	})
}

// A line that wraps cannot be erased: the next one would be drawn below it.
func TestTheLiveLineIsNarrowerThanTheTerminal(t *testing.T) {
	var term terminal
	width := 10
	s := &statusLine{w: &term, width: func() int { return width }}
	s.drawLine("0123456789abc")
	wantLines(t, &term, "0123456")
	width = 5
	s.drawLine("0123456789abc")
	wantLines(t, &term, "01")
	width = 20
	s.drawLine("10 pages  1234 entities  idle")
	wantLines(t, &term, "idle")
	width = 0
	s.drawLine("0123456789abc")
	wantLines(t, &term, "")
}

func TestThereIsNoLiveLineWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	s := newStatusLine(&out)
	s.showUntilStopped(func() string { return "live" })()
	fmt.Fprintln(s, "log")
	if got := out.String(); got != "log\n" {
		t.Errorf("got %q, want the log alone", got)
	}
}

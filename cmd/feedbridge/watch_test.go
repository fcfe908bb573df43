package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clipperhouse/displaywidth"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the golden files")

// watchedProcess has feeds in each state, three of them with the same error, and hostile texts.
func watchedProcess(now time.Time) *status.Process {
	ago := func(d time.Duration) *time.Time { t := now.Add(-d); return &t }
	seconds := func(s float64) status.Lag { return status.Lag{Seconds: &s} }
	s := &status.Process{
		Summary: status.Summary{Sentence: "9 feeds: 4 need you, 1 is behind, 4,310 entities in the last hour"},
		Buses:   []status.Bus{{Bus: "main", Kind: "nats", OK: true}, {Bus: "spare", Kind: "kafka", Error: "no broker answers"}},
	}
	add := func(f status.Feed) {
		f.Topic, f.LastCommit, f.NextAttempt = f.Feed, &status.Commit{At: ago(90 * time.Second), Writer: "host-1"}, ago(-30*time.Second)
		f.Since = ago(time.Hour)
		s.Feeds = append(s.Feeds, f)
	}
	for _, n := range []int{10, 1, 2} {
		name := fmt.Sprintf("feed-%d", n)
		text := fmt.Sprintf("GET https://blogs.example.com/%d/latest: 404 Not Found", n)
		add(status.Feed{Feed: name, State: "halted", Attention: status.NeedsYou, LastError: &status.Error{At: ago(time.Minute), Text: text}, Explanation: text + "; nothing is published until this is fixed", Entities: 7})
	}
	add(status.Feed{Feed: "hostile", State: "halted\x1b[2J", Attention: status.NeedsYou, Explanation: hostile[:200] + " 漢字漢字"})
	add(status.Feed{Feed: "orders-11", State: "idle", Lag: seconds(0), Entities: 1234567})
	add(status.Feed{Feed: "orders-9", Title: "Orders of the \u202eShop 漢字", State: "idle", Lag: seconds(3), Entities: 12})
	add(status.Feed{Feed: "backfill", State: "reading", Attention: status.Behind, Lag: seconds(7200), Entities: 1000})
	add(status.Feed{Feed: "a-feed-with-a-name-that-is-longer-than-most-terminals-1", State: "paused", Explanation: "paused for all copies"})
	add(status.Feed{Feed: "elsewhere", State: "elsewhere", Owner: "host-2"})
	return s
}

func (m *watch) shown(t *testing.T, width, height int) string {
	t.Helper()
	m.redact = safetext.NewRedactor("ticket")
	var text strings.Builder
	lines := m.lines(width, height)
	for _, line := range lines {
		if columns := displaywidth.String(line.text); columns > width {
			t.Errorf("%d columns of %d: %q", columns, width, line.text)
		}
		mark := ""
		if line.tone == banner {
			mark = "*"
		}
		text.WriteString(strings.TrimRight(mark+line.text, " ") + "\n")
	}
	if len(lines) != height {
		t.Errorf("%d lines of %d", len(lines), height)
	}
	wantSafe(t, text.String(), 100_000)
	return text.String()
}

// answerOf is the answer of a daemon with a status at a time.
func answerOf(s *status.Process) watchAnswer {
	return watchAnswer{at: time.Now(), ready: daemonReadiness{Ready: true}, process: s}
}

// What is shown depends on the answers, the size and the keys only. Each is drawn at three widths.
func TestWatch(t *testing.T) {
	for _, width := range []int{20, 80, 160} {
		var got strings.Builder
		synctest.Test(t, func(t *testing.T) {
			show := func(situation string, height int, keys string, prepare func(m *watch)) {
				m := &watch{}
				m.now = time.Now()
				m.lines(width, height) // before the first answer
				m.update(answerOf(watchedProcess(time.Now())))
				if prepare != nil {
					prepare(m)
				}
				m.shown(t, width, height)
				for key := range strings.FieldsSeq(keys) {
					m.press(key)
					m.lines(width, height)
				}
				fmt.Fprintf(&got, "== %s\n%s", situation, m.shown(t, width, height))
			}
			show("all", 30, "", nil)
			show("a small terminal, at the end", 7, "End", nil)
			show("sorted by name", 18, "s", nil)
			show("a filter", 12, "/ o r d e x Backspace r", nil)
			show("a filter that matches nothing", 12, "/ # # Enter", nil)
			show("details", 24, "Down Enter", nil)
			show("back from details", 12, "Down Enter Esc", nil)
			show("help", 14, "?", nil)
			show("the daemon is gone", 14, "", func(m *watch) {
				time.Sleep(34 * time.Second)
				m.update(watchAnswer{at: time.Now(), err: errors.New("no daemon answers at http://127.0.0.1:9321: connection refused")})
			})
			show("catching up", 30, "", func(m *watch) {
				time.Sleep(10 * time.Second)
				next := watchedProcess(time.Now())
				*next.Feeds[6].Lag.Seconds, next.Feeds[6].Entities = 3600, 2000
				m.update(answerOf(next))
			})
			show("no feeds", 7, "Down Enter PgDn", func(m *watch) { m.update(answerOf(&status.Process{Summary: status.Summary{Sentence: "no feeds"}})) })
		})
		golden(t, fmt.Sprintf("testdata/watch-%d.golden", width), got.String())
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Match(t, file+"; -update writes it", string(want), got)
}

// The selection stays at its feed when others come and go, also behind the details and the help.
func TestWatchKeepsTheSelection(t *testing.T) {
	t.Parallel()
	for keys, back := range map[string]string{"s End Up Up": "", "s End Up Up Enter": "Esc", "s End Up Up ?": "Esc"} {
		for _, n := range []int{-1, 1} {
			m, s := &watch{}, watchedProcess(time.Now())
			press := func(keys string) {
				m.update(answerOf(s))
				m.shown(t, 80, 30)
				for key := range strings.FieldsSeq(keys) {
					m.press(key)
					m.shown(t, 80, 30)
				}
			}
			press(keys)
			if n > 0 {
				s.Feeds = append(s.Feeds, status.Feed{Feed: "a"})
			} else {
				s.Feeds = slices.DeleteFunc(s.Feeds, func(f status.Feed) bool { return f.Feed == "backfill" })
			}
			press(back)
			if got := m.rows[m.selected].feed; got != "hostile" {
				t.Errorf("%s, %d feeds more, %s: %s is selected", keys, n, back, got)
			}
		}
	}
}

// Any size and any keys give lines that fit.
func TestWatchFitsAnyTerminal(t *testing.T) {
	t.Parallel()
	keys := []string{"Down", "Enter", "PgDn", "Esc", "s", "End", "/", "f", "Enter", "Up", "Esc", "Enter", "?", "x", "Home", "Esc"}
	for width := 1; width < 60; width++ {
		for height := 1; height < 12; height++ {
			m := &watch{now: time.Now()}
			m.update(answerOf(watchedProcess(m.now)))
			for _, key := range keys {
				m.shown(t, width, height)
				m.press(key)
			}
			m.update(watchAnswer{err: errors.New("no answer")})
			m.shown(t, width, height)
		}
	}
}

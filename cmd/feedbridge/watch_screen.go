package main

import (
	"context"
	"net/url"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// openScreen takes the whole terminal until its Fini.
func openScreen() (tcell.Screen, error) {
	// Clean has escaped control characters already.
	screen, err := tcell.NewScreen(tcell.OptSanitizeContent(true))
	if err != nil {
		return nil, err
	}
	return screen, screen.Init()
}

// watchAnswer is what the daemon answers to a watch.
type watchAnswer struct {
	process *status.Process
	err     error
	feed    string // the one with details; empty for none
	one     *status.Feed
	oneErr  error
}

// watchOnScreen shows m until a key or the end of ctx ends it.
func watchOnScreen(ctx context.Context, screen tcell.Screen, client *adminClient, m *watch) error {
	defer screen.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, wanted := make(chan watchAnswer), make(chan string, 1)
	asked := m.feed
	wanted <- asked
	go askDaemon(ctx, client, wanted, answers)
	seconds := time.NewTicker(time.Second) // ages grow
	defer seconds.Stop()
	for !m.quit {
		m.now = time.Now()
		m.draw(screen)
		select {
		case <-ctx.Done():
			return nil
		case <-seconds.C:
		case a := <-answers:
			m.update(a.process, a.err)
			if m.details && a.feed == m.feed && a.err == nil {
				m.oneErr = a.oneErr
				if a.oneErr == nil {
					m.one = a.one
				}
			}
		case event, ok := <-screen.EventQ():
			if !ok {
				return nil
			}
			switch event := event.(type) {
			case *tcell.EventKey:
				m.press(keyName(event))
			case *tcell.EventResize:
				screen.Sync()
			}
		}
		want := ""
		if m.details {
			want = m.feed
		}
		if want != asked {
			select {
			case <-wanted: // nobody waits for it any more
			default:
			}
			wanted <- want
			asked = want
		}
	}
	return nil
}

// watchPatience is how long a watch waits for an answer until it shows that there is none.
const watchPatience = 10 * time.Second

// askDaemon sends answers until ctx ends: one every two seconds, and one at once for the feed that is wanted. Answers
// that take long are asked for less often.
func askDaemon(ctx context.Context, client *adminClient, wanted <-chan string, answers chan<- watchAnswer) {
	feed := ""
	for {
		select {
		case feed = <-wanted:
		default:
		}
		began := time.Now()
		a := watchAnswer{process: &status.Process{}, feed: feed}
		limited, cancel := context.WithTimeout(ctx, watchPatience)
		if a.err = client.get(limited, "/status", a.process); a.err == nil && feed != "" {
			a.one = &status.Feed{}
			a.oneErr = client.get(limited, "/status/"+url.PathEscape(feed), a.one)
		}
		cancel()
		wait := time.NewTimer(max(watchInterval, 4*time.Since(began)))
		select {
		case answers <- a:
		case <-ctx.Done():
			return
		}
		select {
		case feed = <-wanted:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// keyName returns a key as watch.press takes it.
func keyName(event *tcell.EventKey) string {
	switch event.Key() {
	case tcell.KeyRune:
		return event.Str()
	case tcell.KeyUp:
		return "up"
	case tcell.KeyDown:
		return "down"
	case tcell.KeyPgUp:
		return "pgup"
	case tcell.KeyPgDn:
		return "pgdn"
	case tcell.KeyHome:
		return "home"
	case tcell.KeyEnd:
		return "end"
	case tcell.KeyEnter:
		return "enter"
	case tcell.KeyEscape:
		return "esc"
	case tcell.KeyBackspace:
		return "backspace"
	case tcell.KeyCtrlC:
		return "ctrl-c"
	}
	return ""
}

// draw puts the lines on the screen, which sends the terminal only what has changed.
func (m *watch) draw(screen tcell.Screen) {
	styles := map[tone]tcell.Style{dim: tcell.StyleDefault.Dim(true), banner: tcell.StyleDefault.Reverse(true)}
	if m.look.colors {
		styles[good] = tcell.StyleDefault.Foreground(color.Green)
		styles[warning] = tcell.StyleDefault.Foreground(color.Olive)
		styles[bad] = tcell.StyleDefault.Foreground(color.Maroon)
		styles[banner] = tcell.StyleDefault.Foreground(color.Maroon).Reverse(true)
	}
	screen.Clear()
	for y, line := range m.lines(screen.Size()) {
		x := 0
		for _, s := range line {
			text := m.look.replace(s.text)
			screen.PutStrStyled(x, y, text, styles[s.tone])
			x += displaywidth.String(text)
		}
	}
	screen.Show()
}

package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
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

// watchOnScreen shows m until a key or the end of ctx ends it. The daemon is asked every two seconds, less often if its
// answers take long, and at once when another feed is to be shown with details.
func watchOnScreen(ctx context.Context, screen tcell.Screen, client *adminClient, m *watch) error {
	defer screen.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan watchAnswer, 1) // one is asked for at a time
	next := time.After(0)                // nil while an answer is awaited
	var began time.Time
	for asked := m.feed; !m.quit; {
		m.draw(screen)
		if next != nil && m.feed != asked {
			next = time.After(0)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next:
			next, began, asked = nil, time.Now(), m.feed
			go func(feed string) { answers <- askDaemon(ctx, client, feed) }(m.feed)
		case a := <-answers:
			m.update(a)
			next = time.After(max(watchInterval, 4*time.Since(began)))
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
	}
	return nil
}

// watchPatience is how long a watch waits for an answer until it shows that there is none.
const watchPatience = 10 * time.Second

// askDaemon returns an answer, with details about a feed unless its name is empty.
func askDaemon(ctx context.Context, client *adminClient, feed string) watchAnswer {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	a := watchAnswer{process: &status.Process{}, feed: feed, one: &status.Feed{}}
	if a.err = client.do(ctx, http.MethodGet, "/readyz", &a.ready, http.StatusServiceUnavailable); a.err == nil {
		a.err = client.get(ctx, "/status", a.process)
	}
	if a.err == nil && feed != "" {
		a.oneErr = client.get(ctx, "/status/"+url.PathEscape(feed), a.one)
	}
	a.at = time.Now()
	return a
}

// keyName returns a key as watch.press takes it.
func keyName(event *tcell.EventKey) string {
	if event.Key() == tcell.KeyRune {
		return event.Str()
	}
	return tcell.KeyNames[event.Key()]
}

// draw puts the lines on the screen, which sends the terminal only what has changed.
func (m *watch) draw(screen tcell.Screen) {
	colors := map[string]color.Color{"31": color.Maroon, "32": color.Green, "33": color.Olive} // of look.paint
	styles := map[tone]tcell.Style{dim: tcell.StyleDefault.Dim(true), banner: tcell.StyleDefault.Reverse(true)}
	screen.Clear()
	for y, line := range m.lines(screen.Size()) {
		x, style := 0, styles[line.tone]
		for i, part := range strings.Split(line.text, "\x1b[") {
			if i > 0 {
				code, text, _ := strings.Cut(part, "m")
				part, style = text, styles[line.tone]
				if c, ok := colors[code]; ok && line.tone != dim {
					style = style.Foreground(c)
				}
			}
			screen.PutStrStyled(x, y, part, style)
			x += displaywidth.String(part)
		}
	}
	screen.Show()
}

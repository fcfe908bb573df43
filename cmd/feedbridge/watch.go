package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// watch is what 'status --watch' shows on a terminal: what status prints, of the feeds that match a filter and in an order
// that keys choose. It is a function of the daemon's answers, of the keys that were pressed, and of the size of the
// terminal. It does no input or output.
type watch struct {
	redact *safetext.Redactor
	look   look
	found  string // as in adminClient

	last watchAnswer     // the last one without an error
	err  error           // why the daemon does not answer since
	now  time.Time       // of the last answer, or of err
	pace map[string]pace // by feed

	order  int // in watchOrders
	filter string
	typing bool   // the filter
	feed   string // whose details are shown; empty for all feeds
	help   bool
	quit   bool

	width    int      // of text
	text     []string // what status prints; nil if it has to be made
	rows     []watchRow
	selected int    // in rows
	kept     string // the selected feed, also while there are no rows; empty for the first one, whichever it is
	down     bool   // the last key has moved down
	top      int    // the first line that is shown
	page     int    // lines of text that fit on the terminal
}

// watchRow is a feed in the text.
type watchRow struct {
	feed string
	line int
}

// watchAnswer is what the daemon answers to a watch.
type watchAnswer struct {
	at      time.Time
	ready   daemonReadiness
	process *status.Process
	err     error
	feed    string // the one with details; empty for none
	one     *status.Feed
	oneErr  error
}

// pace is the first answer of a catching-up feed, from which its speed is computed.
type pace struct {
	at       time.Time
	lag      float64
	entities uint64
}

// watchOrders are the orders of the rows. Without compare they are by trouble.
var watchOrders = []struct {
	name    string
	compare func(a, b *status.Feed) int
}{
	{"trouble", nil},
	{"name", func(a, b *status.Feed) int { return status.CompareNames(a.Feed, b.Feed) }},
	{"lag", func(a, b *status.Feed) int { return cmp.Compare(lagSeconds(b), lagSeconds(a)) }},
	{"entities", func(a, b *status.Feed) int { return cmp.Compare(b.Entities, a.Entities) }},
	{"last commit", func(a, b *status.Feed) int { return commitTime(b).Compare(commitTime(a)) }},
}

func lagSeconds(f *status.Feed) float64 {
	if f.Lag.Seconds == nil {
		return -1
	}
	return *f.Lag.Seconds
}

func commitTime(f *status.Feed) time.Time {
	if f.LastCommit == nil || f.LastCommit.At == nil {
		return time.Time{}
	}
	return *f.LastCommit.At
}

// update takes an answer of the daemon.
func (m *watch) update(a watchAnswer) {
	m.now, m.err, m.text = a.at, a.err, nil
	if a.err != nil {
		return
	}
	m.last = a
	before := m.pace
	m.pace = map[string]pace{}
	for i := range a.process.Feeds {
		if f := &a.process.Feeds[i]; f.Attention == status.Behind {
			first, ok := before[f.Feed]
			if !ok || lagSeconds(f) > first.lag {
				first = pace{a.at, lagSeconds(f), f.Entities}
			}
			m.pace[f.Feed] = first
		}
	}
}

// shownOfGroup is how many feeds with the same error are listed, unless there is a filter.
const shownOfGroup = 5

// groups returns the feeds that match the filter, in the order that is chosen.
func (m *watch) groups(s *status.Process) (groups []feedGroup) {
	compare := watchOrders[m.order].compare
	for _, g := range groupFeeds(s) {
		g.feeds = slices.DeleteFunc(g.feeds, func(f *status.Feed) bool { return !m.matches(f, g.cause) })
		switch {
		case len(g.feeds) == 0:
		case compare != nil:
			for _, f := range g.feeds {
				groups = append(groups, feedGroup{feeds: []*status.Feed{f}})
			}
		default:
			if g.more = len(g.feeds) - shownOfGroup; g.more > 0 && m.filter == "" {
				g.feeds = g.feeds[:shownOfGroup]
			} else {
				g.more = 0
			}
			g.text = cmp.Or(g.text, m.progressOf(g.feeds[0]))
			groups = append(groups, g)
		}
	}
	if compare != nil {
		slices.SortStableFunc(groups, func(a, b feedGroup) int {
			return cmp.Or(compare(a.feeds[0], b.feeds[0]), status.CompareNames(a.feeds[0].Feed, b.feeds[0].Feed))
		})
	}
	return groups
}

func (m *watch) matches(f *status.Feed, cause string) bool {
	filter := strings.ToLower(m.filter)
	for _, text := range []string{f.Feed, f.Title, f.State, f.Topic, f.Owner, cause} {
		if strings.Contains(strings.ToLower(text), filter) {
			return true
		}
	}
	return false
}

// press takes a key: its name, or what it types.
func (m *watch) press(key string) {
	switch {
	case key == "Ctrl-C", key == "q" && !m.typing:
		m.quit = true
	case m.typing:
		m.typeFilter(key)
	case m.help:
		m.help = false
	case key == "?":
		m.help = true
	case key == "Esc", key == "Enter" && m.feed != "":
		if m.feed == "" {
			m.filter = ""
		}
		m.feed, m.top = "", 0
	case key == "Enter" && len(m.rows) > 0:
		m.feed, m.top = m.rows[m.selected].feed, 0
	case key == "/" && m.feed == "":
		m.typing = true
	case key == "s" && m.feed == "":
		m.order, m.selected, m.top = (m.order+1)%len(watchOrders), 0, 0
	default:
		by := map[string]int{"Up": -1, "Down": 1, "k": -1, "j": 1, "PgUp": -m.page, "PgDn": m.page, "Home": -1 << 30, "End": 1 << 30}[key]
		if m.down = by > 0; len(m.rows) > 0 {
			m.selected = max(0, min(m.selected+by, len(m.rows)-1))
		} else {
			m.top = max(0, m.top+by) // the end is known when it is drawn
		}
		return
	}
	m.text = nil
}

func (m *watch) typeFilter(key string) {
	switch {
	case key == "Enter":
		m.typing = false
	case key == "Esc":
		m.typing, m.filter = false, ""
	case key == "Backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	case len([]rune(key)) == 1 && len(m.filter) < 100:
		m.filter += key
	}
	m.selected = 0
}

const watchHelp = `s       sort: by trouble, name, lag, entities, last commit
/       filter by name, state, topic, member or error; Esc ends it
Enter   details of the feed; Esc goes back
arrows, PgUp, PgDn, Home, End   move
q       quit`

// render makes the text.
func (m *watch) render(width int) {
	if m.selected == 0 {
		m.kept = ""
	} else if m.selected < len(m.rows) {
		m.kept = m.rows[m.selected].feed
	}
	l, out := m.look, &lineWriter{width: width, indent: "  "}
	l.width = width
	p := &printer{w: l.writer(out), redact: m.redact}
	var rows []watchRow
	switch {
	case m.help:
		p.printLine("%s\n\nany other key goes back", ownText(watchHelp))
	case m.last.process == nil:
		if m.err == nil {
			p.printLine("waiting for the daemon")
		}
	case m.feed != "":
		m.printOne(p, out, l)
	default:
		if m.found != "" {
			p.printLine("%s", m.found)
		}
		r := statusReport{all: true, groups: m.groups, onRow: func(feed string) { rows = append(rows, watchRow{feed, len(out.lines)}) }}
		r.printProcess(p, m.last.process, m.last.ready, m.now, l)
		if len(rows) == 0 && len(m.last.process.Feeds) > 0 {
			p.printLine("no feed matches the filter")
		}
	}
	m.width, m.text = width, append(out.lines, "")
	if m.feed == "" && !m.help { // else the selection is needed again
		m.selected = max(min(m.selected, len(rows)-1), 0)
		if at := slices.IndexFunc(rows, func(r watchRow) bool { return r.feed == m.kept }); at >= 0 {
			m.selected = at
		}
	}
	m.rows = rows
}

// printOne prints everything about the feed with details.
func (m *watch) printOne(p *printer, out *lineWriter, l look) {
	if m.last.oneErr != nil && m.last.feed == m.feed {
		p.printLine("%s", m.last.oneErr)
	}
	var one *status.Feed
	for i := range m.last.process.Feeds {
		if f := &m.last.process.Feeds[i]; f.Feed == m.feed {
			one = f
		}
	}
	if m.last.feed == m.feed && m.last.oneErr == nil {
		one = m.last.one
	}
	if one == nil {
		return
	}
	if l.width >= 45 { // there is room for a column of the names
		out.indent = strings.Repeat(" ", 15)
	}
	printDetails(p, one, m.now, l)
	if progress := m.progressOf(one); progress != "" {
		p.printLine("progress       %s", progress)
	}
}

// lineWriter keeps lines, which are broken to fit in a width.
type lineWriter struct {
	width  int
	indent string
	lines  []string
}

// Write takes whole lines.
func (w *lineWriter) Write(b []byte) (int, error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n") {
		w.lines = append(w.lines, wrap(line, w.width, w.indent)...)
	}
	return len(b), nil
}

// shownLine is a line on the terminal, which may have the codes of look.paint. Its tone is plain, dim or banner.
type shownLine struct {
	text string
	tone tone
}

// lines returns what the terminal shows.
func (m *watch) lines(width, height int) (lines []shownLine) {
	width, height = max(width, 1), max(height, 1)
	if m.text == nil || m.width != width {
		m.render(width)
	}
	base := plain
	if m.err != nil { // the screen shows the last answer
		base = dim
		text := m.redact.Clip(m.err.Error(), longestPrinted)
		if m.last.process != nil {
			text = fmt.Sprintf("no answer; this is from %s: %s", formatAge(&m.last.at, m.now), text)
		}
		all := wrap(text, width, "")
		for _, line := range all[:min(len(all), max(1, height/4))] {
			lines = append(lines, shownLine{line, banner})
		}
	}
	m.page = max(1, height-len(lines)-1)
	row := m.scroll()
	for i := m.top; i < m.top+m.page; i++ {
		line := shownLine{"", base}
		if i < len(m.text) {
			line.text = m.text[i]
		}
		if i == row && m.err == nil {
			line.tone = banner
		}
		lines = append(lines, line)
	}
	foot := "? help  q quit"
	switch {
	case m.typing:
		foot = "/" + m.filter + "_"
	case m.feed != "":
		foot = "Enter back  " + foot
	case len(m.rows) > 0:
		foot = fmt.Sprintf("%d of %d  %s  s sort: %s", m.selected+1, len(m.rows), foot, watchOrders[m.order].name)
	}
	if m.filter != "" && !m.typing {
		foot += "  filter: " + m.filter
	}
	lines = append(lines[:min(len(lines), height-1)], shownLine{foot, dim})
	for i := range lines {
		lines[i].text = m.look.replace(fit(lines[i].text, width))
	}
	return lines
}

// scroll sets the first line, so that the selected feed is visible, and returns the line of that; -1 if there is none.
// At the first feed it is the beginning of the text, and at the last one the end.
func (m *watch) scroll() (row int) {
	end := max(0, len(m.text)-m.page)
	m.top = min(m.top, end)
	if len(m.rows) == 0 {
		return -1
	}
	row = m.rows[m.selected].line
	switch {
	case m.down && m.selected == len(m.rows)-1:
		m.top = end
	case m.selected == 0:
		m.top = 0
	}
	m.top = max(min(m.top, row), row-m.page+1)
	return row
}

// progressOf returns how fast a feed catches up, once two answers show it.
func (m *watch) progressOf(f *status.Feed) string {
	first, ok := m.pace[f.Feed]
	seconds := m.last.at.Sub(first.at).Seconds()
	if !ok || seconds <= 0 || lagSeconds(f) < 0 {
		return ""
	}
	text := fmt.Sprintf("lag %s  %s", formatLag(f), formatRate(float64(f.Entities-min(f.Entities, first.entities))/seconds))
	if left := timeLeft(lagSeconds(f), (first.lag-lagSeconds(f))/seconds); left != "" {
		text += "  " + left
	}
	return text
}

// writer returns a writer to a terminal with the look.
func (l look) writer(w io.Writer) io.Writer {
	if l.ascii {
		return asciiWriter{w}
	}
	return w
}

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// watch is what 'status --watch' shows on a terminal: a function of the daemon's answers, of the keys that were pressed,
// and of the size of the terminal. It does no input or output.
type watch struct {
	redact *safetext.Redactor
	look   look
	found  string // as in adminClient
	now    time.Time

	// Of the daemon. err is why it does not answer; the rest is of its last answer, at a time.
	process *status.Process
	at      time.Time
	err     error
	one     *status.Feed // with details
	oneErr  error
	groups  []feedGroup
	pace    map[string]pace // by feed

	// Of the keys.
	order    int // in watchOrders
	filter   string
	typing   bool   // the filter
	group    string // the first of the feeds whose error is the same, if only those are shown
	feed     string // the one that is shown if details is set
	details  bool
	help     bool
	selected int
	top      int // the first row that is shown
	page     int // rows of the terminal
	quit     bool

	rows []feedGroup // as they are shown
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
func (m *watch) update(s *status.Process, err error) {
	m.now, m.err = time.Now(), err
	if err != nil {
		return
	}
	m.process, m.at, m.groups = s, m.now, groupFeeds(s)
	before := m.pace
	m.pace = map[string]pace{}
	for i := range s.Feeds {
		if f := &s.Feeds[i]; f.Attention == status.Behind {
			first, ok := before[f.Feed]
			if !ok || lagSeconds(f) > first.lag {
				first = pace{m.now, lagSeconds(f), f.Entities}
			}
			m.pace[f.Feed] = first
		}
	}
	m.arrange()
}

// arrange makes the rows, and keeps the selection at its feed.
func (m *watch) arrange() {
	kept := ""
	if m.selected < len(m.rows) {
		kept = m.rows[m.selected].feeds[0].Feed
	}
	m.rows = m.rows[:0:0]
	for _, g := range m.groups {
		if m.group != "" {
			if g.feeds[0].Feed == m.group || slices.ContainsFunc(g.feeds, func(f *status.Feed) bool { return f.Feed == m.group }) {
				m.rows = append(m.rows, splitGroup(g)...)
			}
			continue
		}
		if g.feeds = slices.DeleteFunc(slices.Clone(g.feeds), func(f *status.Feed) bool { return !m.matches(f, g.cause) }); len(g.feeds) == 0 {
			continue
		}
		if watchOrders[m.order].compare != nil {
			m.rows = append(m.rows, splitGroup(g)...)
		} else {
			m.rows = append(m.rows, g)
		}
	}
	if compare := watchOrders[m.order].compare; compare != nil {
		slices.SortStableFunc(m.rows, func(a, b feedGroup) int {
			return cmp.Or(compare(a.feeds[0], b.feeds[0]), status.CompareNames(a.feeds[0].Feed, b.feeds[0].Feed))
		})
	}
	if at := slices.IndexFunc(m.rows, func(g feedGroup) bool { return g.feeds[0].Feed == kept }); at >= 0 && m.selected > 0 {
		m.selected = at
	}
	m.selected = max(0, min(m.selected, len(m.rows)-1))
}

// splitGroup returns a row for each feed of a group, of which the first has the error.
func splitGroup(g feedGroup) []feedGroup {
	var rows []feedGroup
	for i, f := range g.feeds {
		row := feedGroup{feeds: []*status.Feed{f}, rank: g.rank, cause: g.cause}
		if i > 0 && g.cause != "" {
			row.cause = "the same as " + g.feeds[0].Feed
		}
		rows = append(rows, row)
	}
	return rows
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
	case key == "ctrl-c":
		m.quit = true
	case m.typing:
		m.typeFilter(key)
	case m.help:
		m.help = false
	case key == "q":
		m.quit = true
	case key == "?":
		m.help = true
	case key == "esc", key == "enter" && m.details:
		switch {
		case m.details:
			m.details, m.one, m.oneErr, m.top = false, nil, nil, 0
		case m.group != "":
			m.group = ""
		default:
			m.filter = ""
		}
		m.arrange()
	case key == "enter" && len(m.rows) > 0:
		if g := m.rows[m.selected]; len(g.feeds) > 1 {
			m.group, m.selected = g.feeds[0].Feed, 0
			m.arrange()
		} else {
			m.details, m.feed, m.one, m.oneErr, m.top = true, g.feeds[0].Feed, nil, nil, 0
		}
	case key == "/" && !m.details:
		m.typing, m.group = true, ""
	case key == "s" && !m.details:
		m.order, m.selected, m.top = (m.order+1)%len(watchOrders), 0, 0
		m.arrange()
	default:
		by := map[string]int{"up": -1, "down": 1, "k": -1, "j": 1, "pgup": -m.page, "pgdn": m.page, "home": -1 << 30, "end": 1 << 30}[key]
		if m.details {
			m.top = max(0, m.top+by) // the end is known when it is drawn
		} else {
			m.selected = max(0, min(m.selected+by, len(m.rows)-1))
		}
	}
}

func (m *watch) typeFilter(key string) {
	switch {
	case key == "enter":
		m.typing = false
	case key == "esc":
		m.typing, m.filter = false, ""
	case key == "backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	case len([]rune(key)) == 1 && len(m.filter) < 100:
		m.filter += key
	}
	m.selected = 0
	m.arrange()
}

// span is a part of a line.
type span struct {
	text string
	tone tone
}

const watchHelp = `s       sort: by trouble, name, lag, entities, last commit
/       filter by name, state, topic, member or error; Esc ends it
Enter   details of the feed, or the feeds with that error; Esc goes back
arrows, PgUp, PgDn, Home, End   move
q       quit`

// lines returns what the terminal shows.
func (m *watch) lines(width, height int) [][]span {
	width, height = max(width, 1), max(height, 1)
	head := m.head(width, height)
	m.page = max(1, height-len(head)-1)
	var body [][]span
	foot := ""
	switch {
	case m.help:
		for line := range strings.SplitSeq(watchHelp, "\n") {
			body = appendWrapped(body, line, width, "  ", plain)
		}
		foot = "any key goes back"
	case m.process == nil:
	case m.details:
		body = m.detailLines(width)
		m.top = max(0, min(m.top, len(body)-m.page))
		body = body[m.top:]
		foot = "Enter back  ? help  q quit"
	default:
		body, foot = m.table(width)
	}
	lines := append(head, body[:min(len(body), m.page)]...)
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	if m.typing {
		foot = "/" + m.filter + "_"
	}
	lines = append(lines[:height-1], []span{{fit(foot, width), dim}})
	if m.err != nil { // what is shown is old
		for i := range lines {
			for j := range lines[i] {
				if lines[i][j].tone != banner {
					lines[i][j].tone = dim
				}
			}
		}
	}
	return lines
}

// head returns the sentence, and the troubles of the process: at most half of the terminal.
func (m *watch) head(width, height int) (head [][]span) {
	clip := func(text string) string { return m.redact.Clip(text, longestPrinted) }
	if m.err != nil {
		text := clip(m.err.Error())
		if m.process != nil {
			text = fmt.Sprintf("no answer; this is from %s: %s", formatAge(&m.at, m.now), text)
		}
		head = appendWrapped(head, text, width, "", banner)
		head = head[:min(len(head), max(1, height/4))]
	}
	if m.found != "" {
		head = append(head, []span{{fit(clip(m.found), width), dim}})
	}
	s := m.process
	if s == nil {
		if m.err == nil {
			head = append(head, []span{{fit("waiting for the daemon", width), dim}})
		}
		return head
	}
	head = appendWrapped(head, clip(s.Summary.Sentence), width, "", plain)
	trouble := func(format string, args ...any) {
		head = append(head, []span{{fit(clip(fmt.Sprintf(format, args...)), width), bad}})
	}
	for _, b := range s.Buses {
		if !b.OK {
			trouble("bus %s: %s", b.Bus, b.Error)
		}
	}
	if s.Config.Error != nil {
		trouble("the configuration was not reloaded: %s", s.Config.Error.Text)
	}
	for _, l := range s.Lists {
		if l.Explanation() != "" {
			trouble("list %s: %s", l.List, l.Explanation())
		}
	}
	if s.Fleet != nil && s.Fleet.Error != "" {
		trouble("this copy cannot take part in its fleet: %s", s.Fleet.Error)
	}
	if s.Fleet != nil {
		for _, gone := range s.Fleet.Gone {
			trouble("member %s is gone, since %s", gone.Member, formatAge(gone.GoneSince, m.now))
		}
	}
	for _, f := range s.Served {
		if !f.OK {
			trouble("served feed %s: %s", f.Feed, f.Explanation)
		}
	}
	return head[:min(len(head), max(1, height/2))]
}

// appendWrapped appends a text, which may need several lines.
func appendWrapped(lines [][]span, text string, width int, indent string, t tone) [][]span {
	for _, line := range wrap(text, width, indent) {
		lines = append(lines, []span{{fit(line, width), t}})
	}
	return lines
}

// The widths of the columns of the table behind the name, with a space before each.
const (
	stateWidth    = 9
	lagWidth      = 9
	entitiesWidth = 11
	commitWidth   = 13
)

// table returns the lines of the rows that fit on the terminal, below a header, and the last line.
func (m *watch) table(width int) (body [][]span, foot string) {
	shown := max(1, m.page-1)
	m.top = max(0, min(m.top, m.selected, len(m.rows)-shown), m.selected-shown+1)
	rows := m.rows[min(m.top, len(m.rows)):min(m.top+shown, len(m.rows))]
	name := 8
	for _, g := range m.rows {
		name = max(name, len(g.feeds[0].Feed))
	}
	// At most so many columns that the state remains, and of a wide terminal a third.
	name = max(1, min(name, max(width-3-1-stateWidth, 1), max(width/3, 10)))
	var labels []string
	for _, g := range rows {
		label := m.redact.Clip(g.feeds[0].Feed, longestPrinted)
		if len(g.feeds) > 1 {
			label = withNoun(len(g.feeds), "feed", "feeds")
		}
		labels = append(labels, label)
	}
	labels = fitNames(labels, name)
	rest := width - 3 - name - 1 - stateWidth
	row := func(lag, entities, commit, next string) string {
		text := ""
		left := rest
		for _, cell := range []struct {
			text  string
			width int
		}{{lag, lagWidth}, {entities, entitiesWidth}, {commit, commitWidth}, {next, commitWidth}} {
			if left -= cell.width; left < 0 {
				break
			}
			text += " " + pad(cell.text, cell.width-1)
		}
		return text
	}
	body = append(body, []span{{fit("   "+pad("FEED", name)+" "+pad("STATE", stateWidth)+row("LAG", "ENTITIES", "LAST COMMIT", "NEXT"), width), dim}})
	for i, g := range rows {
		f := g.feeds[0]
		t := toneOf(f.State)
		mark := " "
		switch g.rank {
		case 0:
			mark, t = "✗", bad
		case 1, 2:
			mark, t = "!", warning
		}
		text := ""
		switch {
		case g.cause != "":
			text = " " + m.redact.Clip(g.cause, longestPrinted)
		case g.rank == 2 && m.progressOf(f) != "":
			text = " " + m.progressOf(f)
		default:
			text = row(formatLag(f), formatEntities(f), formatCommit(f, m.now), formatNext(f.NextAttempt, m.now)) + " " + m.redact.Clip(f.Title, longestPrinted)
		}
		cursor := " "
		if m.top+i == m.selected {
			cursor = ">"
		}
		body = append(body, []span{
			{fit(cursor, width), plain},
			{fit(mark+" ", width-1), t},
			{fit(pad(labels[i], name), width-3), plain},
			{fit(" "+pad(m.redact.Clip(f.State, longestPrinted), stateWidth), width-3-name), t},
			{fit(text, rest), plain},
		})
	}
	switch {
	case len(m.process.Feeds) == 0:
		body = appendWrapped(body[:0], "there are no feeds; 'feedbridge add URL' adds one", width, "", plain)
	case len(m.rows) == 0:
		body = appendWrapped(body[:0], "no feed matches the filter", width, "", plain)
	}
	foot = fmt.Sprintf("%d-%d of %d", min(m.top+1, len(m.rows)), m.top+len(rows), len(m.rows))
	if m.filter != "" {
		foot += "  filter: " + m.filter
	}
	if m.group != "" {
		foot += "  Esc back"
	}
	return body, foot + "  ? help  q quit  s sort: " + watchOrders[m.order].name
}

// progressOf returns how fast a feed catches up, once two answers show it.
func (m *watch) progressOf(f *status.Feed) string {
	first, ok := m.pace[f.Feed]
	seconds := m.at.Sub(first.at).Seconds()
	if !ok || seconds <= 0 || lagSeconds(f) < 0 {
		return ""
	}
	text := fmt.Sprintf("lag %s  %s", formatLag(f), formatRate(float64(f.Entities-min(f.Entities, first.entities))/seconds))
	if left := timeLeft(lagSeconds(f), (first.lag-lagSeconds(f))/seconds); left != "" {
		text += "  " + left
	}
	return text
}

// detailLines returns everything about a feed.
func (m *watch) detailLines(width int) (lines [][]span) {
	if m.oneErr != nil {
		lines = appendWrapped(lines, m.redact.Clip(m.oneErr.Error(), longestPrinted), width, "", bad)
	}
	one := m.one
	for i := range m.process.Feeds {
		if f := &m.process.Feeds[i]; one == nil && f.Feed == m.feed {
			one = f
		}
	}
	if one == nil {
		return lines
	}
	var text bytes.Buffer
	printDetails(&printer{w: &text, redact: m.redact}, one, m.now, look{})
	for line := range strings.Lines(text.String()) {
		line, indent := strings.TrimRight(line, "\n"), "               "
		if width < 3*len(indent) { // there is no room for a column of the names
			line, indent = strings.Join(strings.Fields(line), " "), "  "
		}
		lines = appendWrapped(lines, line, width, indent, plain)
	}
	if progress := m.progressOf(one); progress != "" {
		lines = appendWrapped(lines, "progress       "+progress, width, "", plain)
	}
	return lines
}

package statuspage

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

var (
	feedsTemplate  = parse("feeds.html")
	feedTemplate   = parse("feed.html")
	servedTemplate = parse("served.html")
)

func parse(name string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"ago": ago, "nextPoll": nextPoll, "instant": instant, "count": count, "lag": describeLag,
		"place": summarize, "fields": fields, "symbol": symbol,
		"hours": newHours, "short": short,
		"changeURL": func(name, verb string) string { return "/feeds/" + url.PathEscape(name) + "/" + verb },
		"feedURL":   func(name string) string { return "/feed/" + url.PathEscape(name) },
		"statusURL": func(name string) string { return "/status/" + url.PathEscape(name) },
	}).ParseFS(files, "files/layout.html", "files/"+name))
}

// feedsData, feedData and servedData are the data of the three pages.
type feedsData struct {
	Feeds
	Listing listing
}

type feedData struct {
	Name string
	Feed *status.Feed // nil if there is none
}

type servedData struct {
	Served
	Listing listing
}

// listing is a table that is sorted, searched and divided into pages.
type listing struct {
	Query
	All, Found int
	Path       string
}

// newListing returns a listing of the rows that a query has found. A page after the last one is the last.
func newListing(q Query, all, found int, path string) listing {
	q.Page = min(q.Page, lastPage(found))
	return listing{q, all, found, path}
}

// link returns the URL of the listing with another query.
func (l listing) link(q Query) string {
	if v := q.String(); v != "" {
		return l.Path + "?" + v
	}
	return l.Path
}

// First and Last are the numbers of the rows that are shown, from 1.
func (l listing) First() int { from, _ := l.Slice(l.Found); return min(from+1, l.Found) }

// Last is the number of the last row that is shown.
func (l listing) Last() int { _, to := l.Slice(l.Found); return to }

// Pages is the number of the last page.
func (l listing) Pages() int { return lastPage(l.Found) }

// PageURL returns the URL of a page n pages further on; "" if there is none.
func (l listing) PageURL(n int) string {
	q := l.Query
	if q.Page += n; q.Page < 1 || q.Page > l.Pages() {
		return ""
	}
	return l.link(q)
}

// StateURL returns the URL of the rows of a state, or of all states.
func (l listing) StateURL(state string) string {
	q := l.Query
	q.State, q.Page = state, 1
	return l.link(q)
}

// IsStart reports whether the listing shows the first rows of all.
func (l listing) IsStart() bool { return l.Search == "" && l.State == "" && l.Page == 1 }

// SortValue is the order for the form.
func (l listing) SortValue() string { return l.sortValue() }

// header is the head of a column.
type header struct {
	Text, Order string // Order is the value of aria-sort; "" if the table is not sorted by it
	URL         string
}

// Header returns the head of a column. Its link sorts by it, or turns the order round.
func (l listing) Header(column, text string) header {
	q := l.Query
	q.Page = 1
	h := header{Text: text}
	switch {
	case l.Sort != Column(column):
		q.Sort = Column(column)
		q.Descending = slices.Contains([]Column{ByTotal, ByLag, ByRecent, ByCommit}, q.Sort)
	case l.Descending:
		h.Order, q.Descending = "descending", false
	default:
		h.Order, q.Descending = "ascending", true
	}
	h.URL = l.link(q)
	return h
}

// Mark is the symbol of the most serious trouble.
func (d feedsData) Mark() string {
	switch isDown := func(b status.Bus) bool { return !b.OK }; {
	case d.Summary.NeedYou > 0 || d.Config.Error != nil || slices.ContainsFunc(d.Buses, isDown):
		return symbol("halted")
	case d.Summary.Failing > 0 || d.Summary.Behind > 0:
		return symbol("retrying")
	}
	return symbol("idle")
}

// firstTroubles is how many feeds that need a person are shown at once. The others are folded.
const firstTroubles = 4

// First and Others are the feeds that need a person.
func (d feedsData) First() []status.Trouble {
	return d.Summary.Troubles[:min(len(d.Summary.Troubles), firstTroubles)]
}

// Others are those after First.
func (d feedsData) Others() []status.Trouble {
	return d.Summary.Troubles[min(len(d.Summary.Troubles), firstTroubles):]
}

// stateCount is a state with its number of feeds.
type stateCount struct {
	State string
	Count int
}

// StateCounts returns the states that feeds are in, those that need a person first.
func (d feedsData) StateCounts() []stateCount {
	var counts []stateCount
	for _, state := range slices.Sorted(maps.Keys(d.States)) {
		counts = append(counts, stateCount{state, d.States[state]})
	}
	slices.SortStableFunc(counts, func(a, b stateCount) int { return Severity(a.State) - Severity(b.State) })
	return counts
}

// Matching is the number of feeds that match the search, in any state.
func (d feedsData) Matching() (n int) {
	for _, count := range d.States {
		n += count
	}
	return n
}

// symbols show a state by its shape, beside its name and colour.
var symbols = map[string]string{
	"halted": "■", "retrying": "▲", "starting": "◌", "reading": "▶", "idle": "●", "standby": "◐", "paused": "‖", "stopped": "□", "elsewhere": "↗",
}

func symbol(state string) string {
	if s, ok := symbols[state]; ok {
		return s
	}
	return "◇"
}

// ago returns how long ago a time was.
func ago(now time.Time, t *time.Time) string {
	if t == nil {
		return "never"
	}
	if d := now.Sub(*t); d >= time.Second {
		return status.FormatDuration(d) + " ago"
	}
	return "now"
}

// nextPoll returns in how long a feed is polled, or tried again.
func nextPoll(f *status.Feed, now time.Time) string {
	switch {
	case f.NextAttempt != nil && f.NextAttempt.After(now):
		return "in " + status.FormatDuration(max(f.NextAttempt.Sub(now), time.Second))
	case f.Owner != "":
		return "unknown"
	case slices.Contains([]string{"reading", "idle", "retrying", "halted", "standby"}, f.State):
		return "now"
	}
	return "none"
}

// instant returns a time for machines, and to the second for people.
func instant(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// count writes a number with blanks between the thousands.
func count(v any) string {
	text := fmt.Sprint(v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

func describeLag(l status.Lag) string {
	switch {
	case l.Seconds == nil:
		return "unknown"
	case l.Entities != nil && *l.Entities == 0:
		return "none"
	}
	return status.FormatDuration(time.Duration(min(*l.Seconds, math.MaxInt64/1e9) * 1e9))
}

// positionKeys are the keys of a cursor of which the first is its summary.
var positionKeys = []string{"searching", "snapshot", "page", "newest_archive", "moved_to", "start", "dialect"}

// summarize returns the value of the first of positionKeys that a cursor has; "" if it has
// none of them.
func summarize(cursor any) string {
	m, ok := cursor.(map[string]any)
	if !ok {
		text, _ := cursor.(string)
		return text
	}
	for _, key := range positionKeys {
		value, ok := m[key].(string)
		if !ok || value == "" {
			continue
		}
		if index, ok := m["index"]; ok && key == "page" {
			value += ", entity " + text(index)
		}
		return value
	}
	return ""
}

type field struct{ Name, Value string }

// fields returns the values of a cursor by their names.
func fields(cursor any) []field {
	m, ok := cursor.(map[string]any)
	if !ok {
		if cursor == nil {
			return nil
		}
		return []field{{"position", text(cursor)}}
	}
	var all []field
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := text(m[key])
		if seconds, ok := m[key].(float64); ok && key == "last_modified" {
			value = time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
		}
		all = append(all, field{strings.ReplaceAll(key, "_", " "), value})
	}
	return all
}

// text writes a value of JSON.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		var parts []string
		for _, part := range v {
			parts = append(parts, text(part))
		}
		return strings.Join(parts, ", ")
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// hours is a chart of a value in each hour of the clock.
type hours struct {
	Title, Text string // Text has all numbers, for screen readers
	Columns     []hourColumn
	Most        uint64
	MostAt      *time.Time
}

type hourColumn struct {
	At     *time.Time
	N      uint64
	Height uint64 // from 0 to 64
}

// newHours returns a chart of hours, the last of which is the present one.
func newHours(title string, perHour []uint64, now time.Time) hours {
	h := hours{Title: title, Text: fmt.Sprintf("%s, in each of the last %d hours, the oldest first:", title, len(perHour))}
	if len(perHour) > 0 {
		h.Most = slices.Max(perHour)
	}
	for i, n := range perHour {
		at := now.UTC().Truncate(time.Hour).Add(time.Duration(i+1-len(perHour)) * time.Hour)
		c := hourColumn{At: &at, N: n}
		if n > 0 {
			c.Height = max(2, uint64(64*float64(n)/float64(h.Most)))
		}
		if n == h.Most {
			h.MostAt = &at
		}
		h.Text += " " + strconv.FormatUint(n, 10)
		h.Columns = append(h.Columns, c)
	}
	return h
}

// short writes a number with four characters at most, if it is less than 1000 billions.
func short(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10)
	}
	v, unit := float64(n)/1000, 0
	for ; v >= 999.5 && unit < 3; unit++ {
		v /= 1000
	}
	if v < 9.95 {
		return fmt.Sprintf("%.1f%c", v, "kMGT"[unit])
	}
	return fmt.Sprintf("%.0f%c", v, "kMGT"[unit])
}

// Program is how a person starts another command of this program in the directory of the process.
type Program struct {
	// Name is the program, which may be several words; default feedbridge.
	Name string
	// Flags are those by which a command finds the configuration, and Daemon those by which it finds the daemon.
	Flags, Daemon []string
}

// action is a change of a feed that a person can make: with a button and the token, or with a command.
type action struct {
	Verb, Feed, Text, Before, Command string
	Token                             bool
}

// Action returns a change. Before introduces the command, and Text is that of the button.
func (v view) Action(verb, feed, text, before string) action {
	return action{verb, feed, text, before, shellLine(v.Program.Name, []string{verb}, v.Program.Daemon, []string{feed}), v.Token}
}

// Command returns a command that needs the configuration, about a feed, a topic or a URL.
func (v view) Command(verb, object string) string {
	words := strings.Fields(verb)
	return shellLine(v.Program.Name, words[:1], v.Program.Flags, words[1:], []string{object})
}

// shellLine returns a command line for a POSIX shell.
func shellLine(program string, parts ...[]string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (strings.ContainsRune("-._/:=,", r) || unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	line := program
	for _, word := range slices.Concat(parts...) {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		line += " " + word
	}
	return line
}

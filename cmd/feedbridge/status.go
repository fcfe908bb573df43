package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// watchInterval is the time between two reports of status --watch.
const watchInterval = 2 * time.Second

// statusReport has the arguments of status.
type statusReport struct {
	feed   string // empty for all
	asJSON bool
	quiet  bool
	all    bool // print every feed in the table
	// groups returns the feeds in the order of the table; nil for groupFeeds.
	groups func(*status.Process) []feedGroup
	// onRow is called before the row of a feed is printed. It may be nil.
	onRow func(feed string)
}

func statusCommand(a *app) *cobra.Command {
	var r statusReport
	var watch bool
	cmd := a.addAdminFlags(&cobra.Command{
		Use:   "status [FEED]",
		Short: "Show what a running daemon does, and whether it is ready",
		Long: `Status asks the admin server of a running daemon and prints its buses, its feeds
and its served feeds, or everything about one feed. It exits with 0 if the daemon
is ready, or FEED is not halted, and with 1 if not or if no daemon answers, so it
is also the health check of a container: feedbridge status --quiet.`,
		Example: `  feedbridge status -c feedbridge.yaml
  feedbridge status -c feedbridge.yaml --watch orders
  feedbridge status --admin http://127.0.0.1:9321 --json`,
		Args:              optionalArg,
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				r.feed = args[0]
			}
			if watch && r.quiet {
				return &usageError{errors.New("--watch and --quiet exclude each other")}
			}
			if r.all && r.feed != "" {
				return &usageError{errors.New("--all is for the table of the feeds; leave out FEED or --all")}
			}
			client, err := a.openAdmin()
			if err != nil {
				return err
			}
			if !r.quiet {
				a.reportFound(client)
			}
			if watch {
				return r.watchStatus(cmd.Context(), a, client)
			}
			return r.print(cmd.Context(), a.out, a, client)
		},
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow the daemon: on the whole terminal with keys (? shows them),\nor else by printing again every two seconds")
	cmd.Flags().BoolVar(&r.all, "all", false, fmt.Sprintf("print all feeds; default %d, those in trouble first", shownFeeds))
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print the JSON of the admin server, with all feeds")
	cmd.Flags().BoolVarP(&r.quiet, "quiet", "q", false, "print nothing but an error; the exit code is the answer")
	return cmd
}

// watchStatus shows the state until ctx ends: on the whole terminal if there is one, and otherwise by printing
// reports. A daemon that does not answer is asked again.
func (r statusReport) watchStatus(ctx context.Context, a *app, client *adminClient) error {
	clearScreen := ""
	if l := lookOf(a, a.out); l.width > 0 && a.getenv("TERM") != "dumb" {
		clearScreen = "\x1b[H\x1b[2J"
		if !r.asJSON && isTerminal(a.in) {
			if screen, err := openScreen(); err == nil {
				return watchOnScreen(ctx, screen, client, &watch{redact: a.redact, look: l, found: client.found, feed: r.feed})
			}
		}
	}
	for {
		var screen bytes.Buffer
		screen.WriteString(clearScreen)
		if err := r.print(ctx, &screen, a, client); err != nil && ctx.Err() == nil {
			(&printer{w: &screen, redact: a.redact}).printLine("%s", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if _, err := screen.WriteTo(a.out); err != nil {
			return err
		}
		if retry.Sleep(ctx, watchInterval) != nil {
			return nil
		}
	}
}

// print writes one report. The error says why the daemon is not ready, or the feed halted.
func (r statusReport) print(ctx context.Context, w io.Writer, a *app, client *adminClient) error {
	if r.quiet {
		w = io.Discard
	}
	l := lookOf(a, a.out)
	if !r.asJSON {
		w = l.writer(w)
	}
	p := &printer{w: w, redact: a.redact}
	if r.feed != "" {
		return r.printFeed(ctx, p, client, l)
	}
	var ready daemonReadiness
	// One that is not ready has the status 503.
	if err := client.do(ctx, http.MethodGet, "/readyz", &ready, http.StatusServiceUnavailable); err != nil {
		return err
	}
	if !r.quiet {
		var answer json.RawMessage
		if err := client.get(ctx, "/status", &answer); err != nil {
			return err
		}
		var s status.Process
		if r.asJSON {
			p.err = printReport(p.w, p.redact, answer)
		} else if p.err = json.Unmarshal(answer, &s); p.err == nil {
			r.printProcess(p, &s, ready, time.Now(), l)
		}
		if p.err != nil {
			return p.err
		}
	}
	if !ready.Ready {
		return fmt.Errorf("the daemon is not ready: %s", withNoun(len(ready.Reasons), "reason", "reasons"))
	}
	return nil
}

func (r statusReport) printFeed(ctx context.Context, p *printer, client *adminClient, l look) error {
	var answer json.RawMessage
	if err := client.get(ctx, "/status/"+url.PathEscape(r.feed), &answer); err != nil {
		return err
	}
	var f status.Feed
	if err := json.Unmarshal(answer, &f); err != nil {
		return err
	}
	if r.asJSON {
		if err := printReport(p.w, p.redact, answer); err != nil {
			return err
		}
	} else if printDetails(p, &f, time.Now(), l); p.err != nil {
		return p.err
	}
	if bridge.State(f.State) == bridge.Halted {
		return errors.New("the feed is halted")
	}
	return nil
}

// daemonReadiness is what status reads of /readyz.
type daemonReadiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
}

// elsewhere is the state of a feed that another member of the fleet runs.
const elsewhere bridge.State = "elsewhere"

// withoutErrors returns the reasons without the errors, which the lines of the feeds have.
func withoutErrors(reasons []string, s *status.Process) []string {
	shown := map[string]string{}
	for i := range s.Feeds {
		if f := &s.Feeds[i]; f.LastError != nil && isTroubled(f) {
			shown["feed "+f.Feed] = ": " + f.LastError.Text
		}
	}
	shorter := make([]string, len(reasons))
	for i, reason := range reasons {
		name, _, _ := strings.Cut(reason, ": ")
		shorter[i] = strings.TrimSuffix(reason, shown[name])
	}
	return shorter
}

// shownReasons is how many reasons are printed. The sentences of the feeds follow in the table.
const shownReasons = 10

// printProcess prints the buses, a line for each feed, and below those in trouble the explanation.
func (r statusReport) printProcess(p *printer, s *status.Process, ready daemonReadiness, now time.Time, l look) {
	p.printLine("%s", s.Summary.Sentence)
	p.printLine("feedbridge %s, writer %s, started %s", s.Version, s.Writer, formatAge(s.Started, now))
	reasons := withoutErrors(ready.Reasons, s)
	if ready.Ready {
		p.printLine("%s", ownText(l.paint(good, "ready")))
	} else {
		p.printLine("%s", ownText(l.paint(bad, "not ready:")))
		for _, reason := range reasons[:min(len(reasons), shownReasons)] {
			p.printLine("  %s", reason)
		}
		if more := len(reasons) - shownReasons; more > 0 {
			p.printLine("  and %d more", more)
		}
	}
	if e := s.Config.Error; e != nil {
		p.printLine("the configuration was not reloaded (%s); the one before stays in use: %s", formatAge(e.At, now), e.Text)
	}
	for _, l := range s.LeftBehind {
		p.printLine("the feed %s was stopped (%s) and does not end: %s", l.Feed, formatAge(l.Since, now), l.Work)
	}
	for _, host := range s.SlowHosts {
		p.printLine("%s (first %s)", host, formatAge(host.Since, now))
	}
	p.printLine("")
	for _, b := range s.Buses {
		if b.OK {
			p.printLine("bus %s (%s): %s", b.Bus, b.Kind, ownText(l.paint(good, "ok")))
		} else if slices.Contains(reasons, fmt.Sprintf("bus %s: %s", b.Bus, b.Error)) {
			p.printLine("bus %s (%s): %s", b.Bus, b.Kind, ownText(l.paint(bad, "not available")))
		} else {
			p.printLine("bus %s (%s): %s", b.Bus, b.Kind, b.Error)
		}
	}
	for _, l := range s.Lists {
		p.printLine("list %s (%s): %s", l.List, withNoun(l.Feeds, "feed", "feeds"), cmp.Or(l.Explanation(), "ok"))
	}
	if s.Fleet != nil {
		printFleet(p, s.Fleet, now)
	}
	switch {
	case len(s.Feeds) > 0:
		p.printLine("")
		shown := len(s.Feeds)
		if !r.all {
			shown = min(shown, shownFeeds)
		}
		groups := groupFeeds
		if r.groups != nil {
			groups = r.groups
		}
		r.printGroups(p, groups(s), shown, now, l)
		if more := len(s.Feeds) - shown; more > 0 {
			p.printLine("and %s; --all prints all", withNoun(more, "more feed", "more feeds"))
		}
	case len(s.Served) == 0:
		p.printLine("there are no feeds; 'feedbridge add URL' adds one")
	}
	if len(s.Served) > 0 {
		p.printLine("")
	}
	for _, f := range s.Served {
		if f.OK {
			p.printLine("served feed %s: %s, %s", f.Feed, ownText(l.paint(good, "ok")), f.URL)
		} else {
			p.printLine("served feed %s: %s", f.Feed, f.Explanation)
		}
	}
}

// printFleet prints a line for each member of the fleet.
func printFleet(p *printer, f *status.Fleet, now time.Time) {
	p.printLine("")
	p.printLine("fleet %s on bus %s: %s", f.Fleet, f.Bus, withNoun(len(f.Members), "member", "members"))
	for _, m := range f.Members {
		feeds := withNoun(m.Feeds, "feed", "feeds")
		if m.Digest != nil {
			feeds = m.Digest.Describe()
		}
		if m.Self {
			feeds += " (this copy)"
		}
		if m.OtherFeeds {
			feeds += ", has other feeds than this copy"
		}
		if len(m.OtherLists) > 0 {
			feeds += ", has another version than most members of the list " + strings.Join(m.OtherLists, ", ")
		}
		p.printLine("  %s: %s", m.Member, feeds)
	}
	for _, m := range f.Gone {
		p.printLine("  %s: gone, since %s; the others run its feeds", m.Member, formatAge(m.GoneSince, now))
	}
	if f.Error != "" {
		p.printLine("  this copy cannot take part: %s", f.Error)
	}
}

// longestTitle is how many columns the table has for titles.
const longestTitle = 60

// shownFeeds is how many feeds are printed by default.
const shownFeeds = 100

// printGroups prints a table of at most limit feeds, with the explanation of each group in trouble below its feeds. The
// cells are cleaned before the columns are aligned. On a terminal, columns that do not fit are left out.
func (r statusReport) printGroups(p *printer, groups []feedGroup, limit int, now time.Time, l look) {
	rows := [][]string{{"FEED", "STATE", "LAG", "ENTITIES", "LAST COMMIT", "NEXT ATTEMPT", "TOPIC", ""}}
	for _, g := range groups {
		for _, f := range g.feeds[:min(len(g.feeds), limit+1-len(rows))] {
			cells := []string{f.Feed, f.State, formatLag(f), formatEntities(f), formatCommit(f, now), formatNext(f.NextAttempt, now), f.Topic, fit(f.Title, longestTitle)}
			if f.Title != "" {
				rows[0][7] = "TITLE"
			}
			for i, cell := range cells {
				cells[i] = p.redact.Clip(cell, longestPrinted)
			}
			rows = append(rows, cells)
		}
	}
	columns, widths := fitColumns(rows, l.width)
	printRow := func(cells []string) {
		var line strings.Builder
		for i, column := range columns {
			cell := cells[column]
			if column == 0 {
				cell = fitName(cell, widths[0])
			}
			cell = pad(cell, widths[column])
			if column == 1 {
				cell = l.paint(toneOf(cells[1]), cell)
			}
			if i > 0 {
				line.WriteString("  ")
			}
			line.WriteString(cell)
		}
		p.printLine("%s", ownText(strings.TrimRight(line.String(), " ")))
	}
	printRow(rows[0])
	rows = rows[1:]
	for _, g := range groups {
		shown := min(len(g.feeds), len(rows))
		for i, cells := range rows[:shown] {
			if r.onRow != nil {
				r.onRow(g.feeds[i].Feed)
			}
			printRow(cells)
		}
		if rows = rows[shown:]; g.text != "" && shown > 0 {
			text := g.text
			if n := len(g.feeds) + g.more; n > 1 {
				text = fmt.Sprintf("%s, such as %s: %s", withNoun(n, "feed", "feeds"), g.feeds[0].Feed, text)
			}
			for _, line := range wrap("  "+p.redact.Clip(text, longestPrinted), l.width, "  ") {
				p.printLine("%s", ownText(line))
			}
		}
	}
}

// fitColumns returns the columns of a table that fit in width, and the width of each. The first two, the names and the
// states of feeds, are always among them. Long names are cut to a third of the width before columns are left out.
func fitColumns(rows [][]string, width int) (columns, widths []int) {
	widths = make([]int, len(rows[0]))
	total := -2
	for column := range widths {
		for _, cells := range rows {
			widths[column] = max(widths[column], columnsOf.String(cells[column]))
		}
		if widths[column] > 0 {
			columns = append(columns, column)
			total += widths[column] + 2
		}
	}
	if width <= 0 {
		return columns, widths
	}
	cut := max(0, min(total-width, widths[0]-max(width/3, 10)))
	widths[0], total = widths[0]-cut, total-cut
	for _, dropped := range []int{7, 6, 5, 3, 4, 2} {
		if total > width && widths[dropped] > 0 {
			columns = slices.DeleteFunc(columns, func(column int) bool { return column == dropped })
			total -= widths[dropped] + 2
		}
	}
	widths[0] = max(1, widths[0]-max(0, total-width))
	return columns, widths
}

// formatLag returns how far the topic is behind the feed; - if that is not known.
func formatLag(f *status.Feed) string {
	if f.Lag.Seconds == nil {
		return "-"
	}
	return time.Duration(*f.Lag.Seconds * float64(time.Second)).Round(time.Second).String()
}

// formatEntities returns how many entities the topic has; - if that is not known.
func formatEntities(f *status.Feed) string {
	if !f.KnowsEntities() {
		return "-"
	}
	return status.FormatCount(f.Entities)
}

// formatCommit returns the age of the newest checkpoint.
func formatCommit(f *status.Feed, now time.Time) string {
	if f.LastCommit == nil {
		return "-"
	}
	return formatAge(f.LastCommit.At, now)
}

// printDetails prints everything about a feed.
func printDetails(p *printer, f *status.Feed, now time.Time, l look) {
	p.printLine("feed           %s", f.Feed)
	if f.Title != "" {
		p.printLine("title          %s", f.Title)
	}
	p.printLine("state          %s, since %s", ownText(l.paint(toneOf(f.State), p.redact.Clip(f.State, longestPrinted))), formatAge(f.Since, now))
	p.printLine("               %s", f.Explanation)
	if f.Owner != "" {
		p.printLine("owner          %s", f.Owner)
	}
	if f.OwnerError != "" {
		p.printLine("               its details are not shown: %s", f.OwnerError)
	}
	p.printLine("url            %s", f.URL)
	p.printLine("format         %s", f.Format)
	p.printLine("topic          %s on bus %s", f.Topic, f.Bus)
	p.printLine("entities       %s in the topic", formatEntities(f))
	p.printLine("this process   %d published, %d duplicates dropped, %d too large", f.Published, f.Duplicates, f.Oversized)
	dead := uint64(0)
	for _, n := range f.DeadLetters {
		dead += n
	}
	if dead > 0 {
		p.printLine("dead letters   %d", dead)
	}
	p.printLine("lag            %s", formatLag(f))
	if f.LastCommit != nil {
		p.printLine("last commit    %s, by %s", formatCommit(f, now), f.LastCommit.Writer)
	}
	p.printLine("next attempt   %s", formatNext(f.NextAttempt, now))
	if f.Cursor != nil {
		p.printLine("cursor         %s", formatCursor(f.Cursor))
	}
	if f.LastError != nil && strings.Contains(f.Explanation, f.LastError.Text) {
		p.printLine("last error     %s", formatAge(f.LastError.At, now))
	} else if f.LastError != nil {
		p.printLine("last error     %s: %s", formatAge(f.LastError.At, now), f.LastError.Text)
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Violations)) {
		v := f.Violations[kind]
		p.printLine("violation      %s, %s, the last %s: %s (%s)", kind, withNoun(int(v.Count), "time", "times"), formatAge(v.Last.At, now), v.Last.Detail, v.Last.Page)
	}
}

// formatCursor returns a cursor as JSON on one line.
func formatCursor(cursor any) string {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(cursor) // it was decoded from JSON
	return strings.TrimSpace(line.String())
}

// formatNext returns in how much time the next attempt is. The daemon has answered a moment ago, so that may be over.
func formatNext(at *time.Time, now time.Time) string {
	if at != nil && at.Sub(now).Round(time.Second) <= 0 {
		return "now"
	}
	return formatAge(at, now)
}

// formatAge returns how long ago a time was, or in how much time it will be.
func formatAge(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	switch d := now.Sub(*at); {
	case d < 0:
		return "in " + (-d).Round(time.Second).String()
	case d > 48*time.Hour:
		return at.Local().Format(time.DateTime)
	default:
		return d.Round(time.Second).String() + " ago"
	}
}

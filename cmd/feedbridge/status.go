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
	"strconv"
	"strings"
	"text/tabwriter"
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
			if watch {
				return r.watchStatus(cmd.Context(), a, client)
			}
			return r.print(cmd.Context(), a.out, a, client)
		},
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print again every two seconds, until stopped")
	cmd.Flags().BoolVar(&r.all, "all", false, fmt.Sprintf("print all feeds; default %d, those in trouble first", shownFeeds))
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print the JSON of the admin server, with all feeds")
	cmd.Flags().BoolVarP(&r.quiet, "quiet", "q", false, "print nothing but an error; the exit code is the answer")
	return cmd
}

// watchStatus prints reports until ctx ends. A daemon that does not answer is asked again.
func (r statusReport) watchStatus(ctx context.Context, a *app, client *adminClient) error {
	const clearScreen = "\x1b[H\x1b[2J"
	for {
		var screen bytes.Buffer
		if isTerminal(a.out) {
			screen.WriteString(clearScreen)
		}
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
	p := &printer{w: w, redact: a.redact}
	if r.feed != "" {
		return r.printFeed(ctx, p, client)
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
			r.printProcess(p, &s, ready)
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

func (r statusReport) printFeed(ctx context.Context, p *printer, client *adminClient) error {
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
	} else if printDetails(p, &f, time.Now()); p.err != nil {
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

// isTroubled reports whether a person may want to read the explanation.
func isTroubled(f *status.Feed) bool {
	if f.Attention == status.NeedsYou {
		return true
	}
	switch bridge.State(f.State) {
	case bridge.Idle, bridge.Reading, bridge.Starting, bridge.Standby, elsewhere:
		return false
	}
	return true
}

// shownReasons is how many reasons are printed. The sentences of the feeds follow in the table.
const shownReasons = 10

// printProcess prints the buses, a line for each feed, and below those in trouble the explanation.
func (r statusReport) printProcess(p *printer, s *status.Process, ready daemonReadiness) {
	now := time.Now()
	p.printLine("%s", s.Summary.Sentence)
	p.printLine("feedbridge %s, writer %s, started %s", s.Version, s.Writer, formatAge(s.Started, now))
	if ready.Ready {
		p.printLine("ready")
	} else {
		p.printLine("not ready:")
		for _, reason := range ready.Reasons[:min(len(ready.Reasons), shownReasons)] {
			p.printLine("  %s", reason)
		}
		if more := len(ready.Reasons) - shownReasons; more > 0 {
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
			p.printLine("bus %s (%s): ok", b.Bus, b.Kind)
		} else {
			p.printLine("bus %s (%s): %s", b.Bus, b.Kind, b.Error)
		}
	}
	for _, l := range s.Lists {
		text := cmp.Or(l.Explanation(), "ok")
		if l.BadEntries > 0 {
			text += fmt.Sprintf("; %d entries have errors, which 'feedbridge check' prints", l.BadEntries)
		}
		p.printLine("list %s (%s): %s", l.List, withNoun(l.Feeds, "feed", "feeds"), text)
	}
	if s.Fleet != nil {
		printFleet(p, s.Fleet)
	}
	if len(s.Feeds) > 0 {
		p.printLine("")
		shown := s.Feeds
		if !r.all {
			shown = selectFeeds(s.Feeds, shownFeeds)
		}
		printFeeds(p, shown, now)
		if more := len(s.Feeds) - len(shown); more > 0 {
			p.printLine("and %s; --all prints all", withNoun(more, "more feed", "more feeds"))
		}
	}
	if len(s.Served) > 0 {
		p.printLine("")
	}
	for _, f := range s.Served {
		if f.OK {
			p.printLine("served feed %s: ok, %s", f.Feed, f.URL)
		} else {
			p.printLine("served feed %s: %s", f.Feed, f.Explanation)
		}
	}
}

// printFleet prints a line for each member of the fleet.
func printFleet(p *printer, f *status.Fleet) {
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
		p.printLine("  %s: gone, since %s; the others run its feeds", m.Member, formatAge(m.GoneSince, time.Now()))
	}
	if f.Error != "" {
		p.printLine("  this copy cannot take part: %s", f.Error)
	}
}

// shownFeeds is how many feeds are printed by default.
const shownFeeds = 100

// selectFeeds returns at most limit feeds in their order, those in trouble before others.
func selectFeeds(feeds []status.Feed, limit int) []status.Feed {
	if len(feeds) <= limit {
		return feeds
	}
	left := limit
	selected := make([]bool, len(feeds))
	for _, troubled := range []bool{true, false} {
		for i := range feeds {
			if left > 0 && isTroubled(&feeds[i]) == troubled {
				selected[i] = true
				left--
			}
		}
	}
	shown := make([]status.Feed, 0, limit)
	for i := range feeds {
		if selected[i] {
			shown = append(shown, feeds[i])
		}
	}
	return shown
}

// printFeeds prints a table of the feeds. The cells are cleaned before the columns are aligned,
// and explanations are put between the lines.
func printFeeds(p *printer, feeds []status.Feed, now time.Time) {
	var table bytes.Buffer
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "FEED\tSTATE\tLAG\tENTITIES\tLAST COMMIT\tNEXT ATTEMPT\tTOPIC")
	for i := range feeds {
		f := &feeds[i]
		cells := []string{f.Feed, f.State, formatLag(f), strconv.FormatUint(f.Entities, 10), formatCommit(f, now), formatAge(f.NextAttempt, now), f.Topic}
		for i, cell := range cells {
			cells[i] = p.redact.Clip(cell, longestPrinted)
		}
		fmt.Fprintln(columns, strings.Join(cells, "\t"))
	}
	_ = columns.Flush() // a buffer has no errors
	for i, line := range slices.Collect(bytes.Lines(table.Bytes())) {
		p.printLine("%s", ownText(bytes.TrimRight(line, " \n")))
		if i > 0 && isTroubled(&feeds[i-1]) {
			p.printLine("  %s", feeds[i-1].Explanation)
		}
	}
}

// formatLag returns how far the topic is behind the feed; - if that is not known.
func formatLag(f *status.Feed) string {
	if f.Lag.Seconds == nil {
		return "-"
	}
	return time.Duration(*f.Lag.Seconds * float64(time.Second)).Round(time.Second).String()
}

// formatCommit returns the age of the newest checkpoint.
func formatCommit(f *status.Feed, now time.Time) string {
	if f.LastCommit == nil {
		return "-"
	}
	return formatAge(f.LastCommit.At, now)
}

// printDetails prints everything about a feed.
func printDetails(p *printer, f *status.Feed, now time.Time) {
	p.printLine("feed           %s", f.Feed)
	p.printLine("state          %s, since %s", f.State, formatAge(f.Since, now))
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
	p.printLine("entities       %d in the topic", f.Entities)
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
	p.printLine("next attempt   %s", formatAge(f.NextAttempt, now))
	if f.Cursor != nil {
		p.printLine("cursor         %s", formatCursor(f.Cursor))
	}
	if f.LastError != nil {
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

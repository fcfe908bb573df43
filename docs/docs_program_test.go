package docs_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestMetricsAreDocumented(t *testing.T) {
	bus := admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }}
	shared := admin.NewFleet("feedbridge", "main")
	shared.Assigned(fleet.Assignment{Self: "a", Members: []string{"a"}, Owner: func(string) string { return "a" }})
	lists := func() []status.List { return []status.List{{List: "blogs", LastSuccess: new(time.Now())}} }
	server := admin.New(admin.Options{Version: "v1", Buses: []admin.Bus{bus}, Fleet: shared, Lists: lists, Log: slog.New(slog.DiscardHandler)})
	f := server.AddFeed(admin.FeedOptions{
		Name: "orders", Freshness: time.Minute,
		Describe: func(checkpoint.Checkpoint) admin.Description { return admin.Description{Lacking: &admin.Lacking{}} },
	})
	server.AddServed(admin.ServedOptions{Name: "orders", Look: func(context.Context) (admin.ServedTopic, error) {
		return admin.ServedTopic{}, nil
	}}).Answered(http.StatusOK, time.Second)
	// Metrics that appear only after some events appear now.
	f.Entered(bridge.Status{State: bridge.Reading, Checkpoint: checkpoint.Checkpoint{At: time.Now()}})
	batch := feed.Batch{
		Entities: []feed.Entity{{ID: "1", Modified: time.Now()}}, Cursor: feed.Cursor("1"), Newest: time.Now(),
		Violations: []feed.Violation{{Kind: "loop"}},
	}
	f.Polled(batch, nil, time.Second)
	f.Processed(batch, time.Second)

	answer := httptest.NewRecorder()
	server.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	var is []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (feedbridge_\w+)`).FindAllStringSubmatch(answer.Body.String(), -1) {
		is = append(is, m[1])
	}
	wantSame(t, metricsPage, "metric", is, named(read(t, metricsPage), "Metric", 0))
	// Other pages name them too, and the parts of histograms.
	part := regexp.MustCompile(`_(bucket|sum|count)$`)
	for page, document := range pages(t) {
		for _, name := range regexp.MustCompile(`\bfeedbridge_\w+`).FindAllString(document, -1) {
			if regexp.MustCompile(`^feedbridge_(VERSION|[0-9])`).MatchString(name) {
				continue // a file of a release
			}
			if !slices.Contains(is, name) && !slices.Contains(is, part.ReplaceAllString(name, "")) {
				t.Errorf("%s has the metric %s, which does not exist", page, name)
			}
		}
	}
}

// violationKinds returns the kinds of violation by the directory of the source.
func violationKinds(t *testing.T) map[string][]string {
	kinds := map[string][]string{}
	for file, parsed := range sources(t, false) {
		// Parsers may be in packages below those of the sources.
		parts := strings.Split(path.Dir(file), "/")
		dir := strings.Join(parts[:min(2, len(parts))], "/")
		if !slices.Contains([]string{"source/datareplication", "source/syndication", "source/httpfeed"}, dir) || path.Base(file) != "violation.go" {
			continue
		}
		for _, decl := range parsed.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				if kind, ok := text(spec.(*ast.ValueSpec).Values[0]); ok {
					kinds[dir] = append(kinds[dir], kind)
				}
			}
		}
	}
	return kinds
}

func TestViolationsAreDocumented(t *testing.T) {
	kinds := violationKinds(t)
	wantSame(t, datareplicationPage, "violation", kinds["source/datareplication"], named(read(t, datareplicationPage), "Kind", 0))
	wantSame(t, syndicationKindsPage, "violation", kinds["source/syndication"], named(read(t, syndicationKindsPage), "Kind", 0))
	wantSame(t, httpFeedsPage, "violation", kinds["source/httpfeed"], named(read(t, httpFeedsPage), "Kind", 0))
}

// TestRulesAreChecked checks that each rule of the specifications has a kind of violation or a reason why
// not, and that each kind has a rule.
func TestRulesAreChecked(t *testing.T) {
	var is, named []string
	for _, kinds := range violationKinds(t) {
		is = append(is, kinds...)
	}
	rules := 0
	for line := range strings.Lines(read(t, rulesPage)) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 || slices.Contains([]string{"ID", "Section", "Kinds"}, cells[0]) {
			continue
		}
		found, last := 0, cells[len(cells)-1]
		if len(cells) == 2 {
			last = cells[0] // kinds without a rule
		} else if rules++; !slices.Contains([]string{"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"}, cells[len(cells)-3]) {
			t.Errorf("%s has the level %q", rulesPage, cells[len(cells)-3])
		}
		for _, m := range regexp.MustCompile("`([a-z0-9]+(?:_[a-z0-9]+)+|loop|incomplete)`").FindAllStringSubmatch(last, -1) {
			named = append(named, m[1])
			found++
		}
		if reason := strings.TrimPrefix(last, "None"); found == 0 && len(reason) < 20 {
			t.Errorf("%s: the rule %q has neither a kind of violation nor a reason", rulesPage, cells[len(cells)-2])
		}
	}
	if rules < 60 {
		t.Errorf("found only %d rules: this test looks in the wrong place", rules)
	}
	wantSame(t, rulesPage, "violation", is, named)
}

// TestRequirementsAreCases checks that each requirement of 'feedbridge conformance' has the number of a
// case, and that the page of rules has the requirements. With -update it writes them.
func TestRequirementsAreCases(t *testing.T) {
	before := read(t, rulesPage)
	after, seen := before, map[string]bool{}
	tables := map[string]string{}
	for _, q := range conformance.Requirements {
		var by []string
		for kind := range strings.FieldsSeq(q.Kinds) {
			by = append(by, "`"+kind+"`")
		}
		if q.Check != "" {
			by = append(by, "requests of `feedbridge conformance`")
		}
		decided := strings.Join(by, ", ")
		if q.Note != "" && decided != "" {
			decided += ". "
		}
		list, _, _ := strings.Cut(q.ID, "/")
		situation, behaviour := caseOf(t, q.ID)
		if !isAbout(q, situation, behaviour) {
			t.Errorf("requirement %s, %q: the case is about something else: %q", q.ID, q.Rule, situation)
		}
		tables[list] += fmt.Sprintf("| [%s](%s.md) | %s | %s | %s | %s | %s |\n", q.ID, list, situation, q.Section, q.Level, q.Rule, decided+q.Note)
	}
	for list, rows := range tables {
		for line := range strings.Lines(rows) {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "| ["), "]")
			if seen[id] {
				t.Errorf("requirement %s is there twice", id)
			}
			seen[id] = true
		}
		table := regexp.MustCompile("(?s)(\n## " + ruleTitles[list] + "\n.*?\n\\|---\\|---\\|---\\|---\\|---\\|---\\|\n)(?:\\|[^\n]*\n)*")
		if !table.MatchString(after) {
			t.Fatalf("%s has no table of %s", rulesPage, list)
		}
		after = table.ReplaceAllStringFunc(after, func(old string) string { return table.FindStringSubmatch(old)[1] + rows })
	}
	switch {
	case after == before:
	case *update:
		must.Succeed(t, os.WriteFile(rulesPage, []byte(after), 0o644))
	default:
		t.Errorf("%s differs from the requirements: run this test with -update", rulesPage)
	}
}

// caseOf returns the situation and the behaviour of a case.
func caseOf(t *testing.T, id string) (situation, behaviour string) {
	t.Helper()
	list, number, _ := strings.Cut(id, "/")
	serving := false // cases of what feedbridge serves are not about producers that it reads
	for line := range strings.Lines(read(t, "docs/cases/"+list+".md")) {
		if strings.HasPrefix(line, "## ") {
			serving = strings.HasPrefix(line, "## Serving")
		}
		if cells := strings.Split(line, " | "); !serving && cells[0] == "| "+number && len(cells) > 3 {
			return cells[1], cells[2]
		}
	}
	t.Errorf("requirement %s: there is no such case", id)
	return "", ""
}

// commonWords have no meaning for what a rule is about, as far as they are compared.
var commonWords = strings.Fields("page pages docum entry entri item items feed feeds entit answe does have that with")

// isAbout reports whether a case has a kind of violation of the requirement, or a situation with a word of its rule.
func isAbout(q conformance.Requirement, situation, behaviour string) bool {
	words := regexp.MustCompile(`\b(?:[a-z]{4,5}|\d{3})`)
	is := words.FindAllString(strings.ToLower(situation), -1)
	return slices.ContainsFunc(strings.Fields(q.Kinds), func(kind string) bool { return strings.Contains(behaviour, "`"+kind+"`") }) ||
		slices.ContainsFunc(words.FindAllString(strings.ToLower(q.Rule), -1), func(word string) bool {
			return !slices.Contains(commonWords, word) && slices.Contains(is, word)
		})
}

// ruleTitles has the titles of the tables of requirements, by the list of cases.
var ruleTitles = map[string]string{"datareplication": "Datareplication", "syndication": "Atom and RSS", "json-feeds": "JSON Feed and http-feeds"}

func TestCommandsAreDocumented(t *testing.T) {
	document := read(t, commandsPage)
	found := 0
	for file, parsed := range sources(t, false) {
		// The command man is not in the released program.
		if !strings.HasPrefix(file, "cmd/feedbridge/") || file == "cmd/feedbridge/man.go" {
			continue
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr: // Use: "set FEED POSITION"
				key, _ := n.Key.(*ast.Ident)
				use, ok := text(n.Value)
				if !ok || key == nil || key.Name != "Use" || use == "feedbridge" {
					break
				}
				found++
				name := strings.Fields(use)[0]
				if !regexp.MustCompile("`feedbridge ([a-z]+ )?" + name + "[ `]").MatchString(document) {
					t.Errorf("%s lacks the command %s", commandsPage, name)
				}
			case *ast.CallExpr: // Flags().StringVar(&from, "from", ...)
				call, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !regexp.MustCompile(`^[A-Z]\w*VarP?$`).MatchString(call.Sel.Name) {
					break
				}
				found++
				if flag, ok := text(n.Args[1]); ok && !strings.Contains(document, "`--"+flag) {
					t.Errorf("%s lacks the flag --%s", commandsPage, flag)
				}
			}
			return true
		})
	}
	if found < 15 {
		t.Errorf("only %d commands and flags were found: this test looks in the wrong place", found)
	}
}

// program has the directories of the packages that the program is made of.
func program(t *testing.T) map[string]bool {
	t.Helper()
	imports := map[string][]string{}
	for file, parsed := range sources(t, false) {
		for _, spec := range parsed.Imports {
			if ours, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/"); ok {
				imports[path.Dir(file)] = append(imports[path.Dir(file)], ours)
			}
		}
	}
	reached := map[string]bool{}
	for left := []string{"cmd/feedbridge"}; len(left) > 0; left = left[1:] {
		if dir := left[0]; !reached[dir] {
			reached[dir] = true
			left = append(left, imports[dir]...)
		}
	}
	return reached
}

func TestLogLinesAreDocumented(t *testing.T) {
	documented := named(read(t, logsPage), "Message", 0)
	found := 0
	reached := program(t)
	for file, parsed := range sources(t, false) {
		if !reached[path.Dir(file)] {
			continue
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) {
				return true
			}
			message, ok := text(call.Args[0])
			if !ok || strings.Contains(message, "%") {
				return true
			}
			found++
			if !slices.Contains(documented, message) {
				t.Errorf("%s logs %q, which %s lacks", file, message, logsPage)
			}
			return true
		})
	}
	if found < 10 {
		t.Errorf("only %d log lines were found: this test looks in the wrong place", found)
	}
}

// The errors and log lines in the documents exist: each piece of a quotation between two …
// is part of some string in the sources.
func TestDocumentedErrorsExist(t *testing.T) {
	var all []string
	for _, parsed := range sources(t, false) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if s, ok := text(e); ok {
					all = append(all, s)
				}
			}
			return true
		})
	}
	found := 0
	for page, document := range pages(t) {
		cells := slices.Concat(column(document, "The error says", 0), column(document, "Message", 0))
		found += len(cells)
		for _, quoted := range code.FindAllStringSubmatch(strings.Join(cells, "\n"), -1) {
			for piece := range strings.SplitSeq(quoted[1], "…") {
				piece = strings.TrimSpace(piece)
				if !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, piece) }) {
					t.Errorf("%s quotes %q, and no string in the program has %q", page, quoted[1], piece)
				}
			}
		}
	}
	if found < 250 {
		t.Errorf("only %d errors and log lines are documented", found)
	}
}

// Operators follow the cure in an error to the letter, at night. So no cure deletes
// data that others may need.
func TestNoAdviceDeletes(t *testing.T) {
	destroys := regexp.MustCompile(`cleanup\.policy=delete|--delete|kafka-delete-records|stream (rm|del|purge)|delete the (stream|topic|directory)|is emptied|make room`)
	for file, parsed := range sources(t, false) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok {
				if s, ok := text(literal); ok && destroys.MatchString(s) {
					t.Errorf("%s says %q", file, s)
				}
			}
			return true
		})
	}
	found := 0
	for page, document := range pages(t) {
		for _, cell := range slices.Concat(column(document, "The error says", 1), column(document, "The error says", 2)) {
			found++
			if destroys.MatchString(cell) {
				t.Errorf("%s says %q", page, cell)
			}
		}
	}
	if found < 250 {
		t.Errorf("only %d cures were found", found)
	}
}

package feedbridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The pages that the tests in this file compare with the program.
const (
	optionsPage          = "docs/configuration.md"
	commandsPage         = "docs/commands.md"
	metricsPage          = "docs/metrics-and-alerts.md"
	logsPage             = "docs/logs.md"
	permissionsPage      = "docs/nats.md"
	datareplicationPage  = "docs/datareplication.md"
	syndicationKindsPage = "docs/atom-and-rss-violations.md"
	guarantees           = "docs/guarantees.md"
)

// pages returns the text of README.md and of every page in docs/, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d pages in docs/: %v", len(files), err)
	}
	all := map[string]string{}
	for _, file := range append(files, "README.md") {
		all[filepath.ToSlash(file)] = read(t, file)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// column returns a column of all tables in document whose first row starts with
// head.
func column(document, head string, n int) []string {
	var cells []string
	within := false
	for line := range strings.Lines(document) {
		row := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(row) < n+3:
			within = false
		case strings.TrimSpace(row[1]) == head:
			within = true
		case within && !strings.HasPrefix(row[1], "---"):
			cells = append(cells, strings.TrimSpace(row[n+1]))
		}
	}
	return cells
}

var code = regexp.MustCompile("`([^`]+)`")

// named returns the first code of each cell of a column, or the cell if it has no
// code.
func named(document, head string, n int) []string {
	cells := column(document, head, n)
	for i, cell := range cells {
		if m := code.FindStringSubmatch(cell); m != nil {
			cells[i] = m[1]
		}
	}
	return cells
}

// wantSame checks that a page names everything that the program has, and nothing
// else.
func wantSame(t *testing.T, page, what string, is, documented []string) {
	t.Helper()
	if len(is) == 0 {
		t.Errorf("no %s was found in the program: this test looks in the wrong place", what)
	}
	for _, name := range is {
		if !slices.Contains(documented, name) {
			t.Errorf("%s lacks the %s %s", page, what, name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(is, name) {
			t.Errorf("%s has the %s %q, which does not exist", page, what, name)
		}
	}
}

// sources has the module's files of Go, by path.
func sources(t *testing.T, tests bool) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && isOtherModule(file) {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") != tests {
			return err
		}
		files[filepath.ToSlash(file)], err = parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// text returns the value of an expression of string literals and their sums.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, _ := text(e.X)
		y, _ := text(e.Y)
		return x + y, x+y != ""
	}
	return "", false
}

func TestOptionsAreDocumented(t *testing.T) {
	schema, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Properties map[string]json.RawMessage
		// A mapping by names; false elsewhere.
		AdditionalProperties json.RawMessage
		Default              json.RawMessage
	}
	defaults := map[string]string{}
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var n node
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Fatal(err)
		}
		for key, below := range n.Properties {
			walk(strings.TrimPrefix(path+"."+key, "."), below)
		}
		switch {
		case n.Properties != nil:
		case n.AdditionalProperties != nil:
			walk(path+".NAME", n.AdditionalProperties)
		default:
			defaults[path] = strings.Trim(string(n.Default), `"`)
		}
	}
	walk("", schema)

	document := read(t, optionsPage)
	keys := named(document, "Key", 0)
	wantSame(t, optionsPage, "option", slices.Collect(maps.Keys(defaults)), keys)
	presets := named(document, "Key", 2)
	for i, key := range keys {
		if want := defaults[key]; want != "" && presets[i] != want {
			t.Errorf("%s: the default of %s is %s, not %s", optionsPage, key, want, presets[i])
		}
	}
}

// variable returns the environment variable of a key, by the rule in docs/configuration.md.
func variable(key string) string {
	return "FEEDBRIDGE_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Every documented key can be set by the variable that the rule gives, and the examples of
// the rule follow it.
func TestVariablesAreDocumented(t *testing.T) {
	const unknown = "no key of the configuration has this variable"
	known := func(name string) bool {
		_, err := config.Load(config.Options{Environ: []string{name + "=\x00"}})
		return err == nil || !strings.Contains(err.Error(), unknown)
	}
	if known("FEEDBRIDGE_FEEDS_NAME_NONSENSE") {
		t.Fatalf("no error says %q any more", unknown)
	}
	document := read(t, optionsPage)
	for _, key := range named(document, "Key", 0) {
		if name := variable(key); !known(name) {
			t.Errorf("%s: %s cannot be set by %s", optionsPage, key, name)
		}
	}
	examples := regexp.MustCompile("`([a-z.-]+)` is `(FEEDBRIDGE_[A-Z_]+)`").FindAllStringSubmatch(document, -1)
	if len(examples) < 2 {
		t.Errorf("%s has %d examples of variables", optionsPage, len(examples))
	}
	for _, m := range examples {
		if want := variable(m[1]); m[2] != want {
			t.Errorf("%s: the variable of %s is %s, not %s", optionsPage, m[1], want, m[2])
		}
	}
}

// A setting that is documented to be in bytes answers 16MiB with an error that says so,
// and no other setting does.
func TestSizesAreInBytes(t *testing.T) {
	found := 0
	document := read(t, optionsPage)
	keys, kinds := named(document, "Key", 0), column(document, "Key", 1)
	for i, key := range keys {
		_, err := config.Load(config.Options{Environ: []string{variable(key) + "=16MiB"}})
		says := err != nil && strings.Contains(err.Error(), "want a whole number of bytes, such as 16777216")
		if is := kinds[i] == "bytes"; is != says {
			t.Errorf("%s: documented as %s, and to 16MiB it says: %v", key, kinds[i], err)
		}
		if says {
			found++
		}
	}
	if found < 5 {
		t.Errorf("only %d sizes were found", found)
	}
}

// The configurations in the documents are valid. Those without feeds are excerpts.
func TestExamplesOfTheDocumentsLoad(t *testing.T) {
	found := map[string]int{}
	for page, document := range pages(t) {
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(document, -1) {
			if !regexp.MustCompile(`^(#.*\n)*(buses|feeds|serve):`).MatchString(block[1]) {
				continue
			}
			found[page]++
			file := filepath.Join(t.TempDir(), "feedbridge.yaml")
			if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			excerpt := !regexp.MustCompile(`(?m)^(feeds|serve):`).MatchString(block[1])
			if _, err := config.Load(config.Options{File: file, Environ: []string{"API_KEY=x"}, Feedless: excerpt}); err != nil {
				t.Errorf("%s: %v, in:\n%s", page, err, block[1])
			}
		}
	}
	if found["README.md"] < 3 || len(found) < 7 {
		t.Errorf("only these examples were found: %v", found)
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	bus := admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }}
	server := admin.New(admin.Options{Version: "v1", Buses: []admin.Bus{bus}, Log: slog.New(slog.DiscardHandler)})
	f := server.AddFeed(admin.FeedOptions{
		Name: "orders", Freshness: time.Minute,
		CountLacking: func(checkpoint.Checkpoint) (gaps, deletes int, known bool) { return 0, 0, true },
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
	f.Settled(batch, time.Second)

	answer := httptest.NewRecorder()
	server.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
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

func TestViolationsAreDocumented(t *testing.T) {
	kinds := map[string][]string{} // by the directory of the source
	for file, parsed := range sources(t, false) {
		// Parsers may be in packages below those of the sources.
		parts := strings.Split(path.Dir(file), "/")
		dir := strings.Join(parts[:min(2, len(parts))], "/")
		if dir != "source/datareplication" && dir != "source/syndication" {
			continue
		}
		// Kinds are the exported constants that are plain text.
		for _, decl := range parsed.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				spec := spec.(*ast.ValueSpec)
				if name := spec.Names[0].Name; spec.Type != nil || !ast.IsExported(name) || name == "Kind" {
					continue
				}
				if kind, ok := text(spec.Values[0]); ok {
					kinds[dir] = append(kinds[dir], kind)
				}
			}
		}
	}
	wantSame(t, datareplicationPage, "violation", kinds["source/datareplication"], named(read(t, datareplicationPage), "Kind", 0))
	wantSame(t, syndicationKindsPage, "violation", kinds["source/syndication"], named(read(t, syndicationKindsPage), "Kind", 0))
}

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

// A test is named as go test -run takes it: TestX, or TestX/a_case_of_it.
func TestNamedTestsExist(t *testing.T) {
	functions := map[string]bool{}
	var cases []string
	note := func(files map[string]*ast.File) {
		for _, parsed := range files {
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					functions[n.Name.Name] = true
				case *ast.BasicLit:
					if s, ok := text(n); ok {
						cases = append(cases, strings.ReplaceAll(s, " ", "_"))
					}
				}
				return true
			})
		}
	}
	note(sources(t, true))
	note(sources(t, false)) // sinktest is no test file
	test := regexp.MustCompile("`((Test|Fuzz|Benchmark)[A-Z]\\w+)(/[^`]+)?`")
	for page, document := range pages(t) {
		for _, m := range test.FindAllStringSubmatch(document, -1) {
			if !functions[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
			if m[3] != "" && !slices.Contains(cases, m[3][1:]) {
				t.Errorf("%s names %s%s, and there is no such case", page, m[1], m[3])
			}
		}
	}
	if !strings.Contains(read(t, guarantees), "`Test") {
		t.Errorf("%s names no test", guarantees)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for _, others := range []string{"*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(others)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			all[file] = read(t, file)
		}
	}
	for file, document := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(document, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			target := file
			if to != "" {
				target = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", file, m[1])
			}
		}
	}
}

// The index names every page.
func TestIndexIsComplete(t *testing.T) {
	index := read(t, "docs/README.md")
	for page := range pages(t) {
		if name, ok := strings.CutPrefix(page, "docs/"); ok && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// Pages have one topic, and are short enough to be read.
func TestPagesAreShort(t *testing.T) {
	for page, document := range pages(t) {
		most := 320
		if page == "README.md" {
			most = 150
		}
		if lines := strings.Count(document, "\n"); lines > most {
			t.Errorf("%s has %d lines, want at most %d: split it", page, lines, most)
		}
	}
}

// anchors are those that GitHub makes of the headings of a document.
func anchors(document string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(document) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		level := len(line) - len(strings.TrimLeft(line, "#"))
		if fenced || level == 0 || line[level] != ' ' {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(line[level:]))
		heading = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(heading, "")
		anchor := strings.ReplaceAll(heading, " ", "-")
		for n, again := 1, anchor; slices.Contains(all, anchor); n++ {
			anchor = fmt.Sprintf("%s-%d", again, n)
		}
		all = append(all, anchor)
	}
	return all
}

// The documented permissions are sufficient for a sink, and each line is necessary:
// without it something fails, or the server logs a warning.
func TestDocumentedPermissionsAreRight(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, permissionsPage), "## Permissions")
	_, block, _ := strings.Cut(section, "```\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll(block, "$BRIDGE_PASSWORD", "secret")

	if err := useTopic(t, block, time.Minute, 100*time.Millisecond); err != nil {
		t.Errorf("with the permissions of %s: %v", permissionsPage, err)
	}
	lines := regexp.MustCompile(`(?m)^\s+"\S+"$`).FindAllString(block, -1)
	if len(lines) < 5 {
		t.Fatalf("%s has %d permissions to publish", permissionsPage, len(lines))
	}
	for _, line := range lines {
		t.Run(strings.Trim(line, "\" \n"), func(t *testing.T) {
			t.Parallel()
			if err := useTopic(t, strings.Replace(block, line, "", 1), time.Second, 20*time.Second); err == nil {
				t.Error("it works without this permission")
			}
		})
	}
}

// useTopic runs a server with that authorization, does all that a bridge does
// with a topic, and returns the first error or warning. Some requests have no answer,
// and are given up after timeout; a refusal comes later, and is waited for as long as
// patience.
func useTopic(t *testing.T, authorization string, timeout, patience time.Duration) error {
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(authorization), 0o600); err != nil {
		return err
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(time.Minute) {
		return errors.New("the server does not start")
	}

	warnings := make(warnings, 1)
	log := slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := nats.Config{URL: srv.ClientURL(), Username: "bridge", Password: "secret", Timeout: timeout}
	conn, err := nats.Connect(t.Context(), cfg, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	topic := nats.Topic{Feed: "orders", Subject: "orders", Stream: nats.Stream{Create: true}}
	first, second := conn.Sink(topic), conn.Sink(topic)
	for _, step := range []func() error{
		func() error { return conn.Check(t.Context()) },
		func() error { _, err := first.Resume(t.Context()); return err },
		func() error { return first.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2), nil) },
		func() error { _, err := second.Resume(t.Context()); return err },
		func() error { return second.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1))) },
		func() error { return conn.Check(t.Context()) },
		func() error { return warnings.first(patience) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// warnings keeps the first line of a log.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	select {
	case w <- string(line):
	default:
	}
	return len(line), nil
}

func (w warnings) first(patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line := <-w:
		return errors.New(line)
	case <-timer.C:
		return nil
	}
}

package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The pages that the tests in docs_*_test.go compare with the program.
const (
	optionsPage          = "docs/configuration.md"
	commandsPage         = "docs/commands.md"
	metricsPage          = "docs/metrics-and-alerts.md"
	logsPage             = "docs/logs.md"
	permissionsPage      = "docs/nats.md"
	datareplicationPage  = "docs/datareplication.md"
	syndicationKindsPage = "docs/atom-and-rss.md"
	httpFeedsPage        = "docs/http-feeds.md"
	rulesPage            = "docs/cases/rules.md"
	guarantees           = "docs/guarantees.md"
	guaranteeTests       = "docs/guarantee-tests.md"
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
	must.Succeed(t, err)
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
	must.Succeed(t, err)
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
}

// Each guarantee has a row of tests, with the same number and promise.
func TestGuaranteesHaveTests(t *testing.T) {
	rows := func(page string) (promises []string) {
		for _, cells := range regexp.MustCompile(`(?m)^(\| \d+ \| .* \|) (.*) \|$`).FindAllStringSubmatch(read(t, page), -1) {
			if page == guaranteeTests && !regexp.MustCompile("`(Test|Fuzz)").MatchString(cells[2]) {
				t.Errorf("%s names no test: %s", page, cells[0])
			}
			promises = append(promises, cells[1])
		}
		return promises
	}
	if is := rows(guarantees); len(is) < 40 {
		t.Errorf("found only %d guarantees", len(is))
	} else {
		wantSame(t, guaranteeTests, "guarantee", is, rows(guaranteeTests))
	}
}

// Each step of the gate is a target of make, and so is each random run, which is no step.
func TestMakeKnowsTheStepsOfTheGate(t *testing.T) {
	steps := regexp.MustCompile(`(?m)^(steps|random)=\((.+)\)$`).FindAllStringSubmatch(read(t, ".ci/run"), -1)
	targets := regexp.MustCompile(`(?m)^(steps|random) := (.+)$`).FindAllStringSubmatch(read(t, "Makefile"), -1)
	if len(steps) != 2 || len(targets) != 2 || steps[0][2] != targets[0][2] || steps[1][2] != targets[1][2] {
		t.Errorf("the gate has the steps %q, and make %q", steps, targets)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for _, others := range []string{"*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(others)
		must.Succeed(t, err)
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

// Errors name pages by their URL, and pages and headings that exist.
func TestPagesInErrorsExist(t *testing.T) {
	reference := regexp.MustCompile(`([a-z-]+\.md)(?:#([a-z-]+))?`)
	found := 0
	for file, parsed := range sources(t, false) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok {
				if s, _ := text(literal); strings.Contains(s, "docs/") && reference.MatchString(s) {
					t.Errorf("%s has %q; name the page by docs.URL", file, s)
				}
			}
			sum, ok := n.(*ast.BinaryExpr) // "… " + docs.URL + "page.md#heading …"
			if !ok {
				return true
			}
			base := sum.X
			if left, ok := base.(*ast.BinaryExpr); ok {
				base = left.Y
			}
			selector, ok := base.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "URL" || fmt.Sprint(selector.X) != "docs" {
				return true
			}
			found++
			s, _ := text(sum.Y)
			m := reference.FindStringSubmatch(s)
			if m == nil || !slices.Contains(append(anchors(pages(t)["docs/"+m[1]]), ""), m[2]) || pages(t)["docs/"+m[1]] == "" {
				t.Errorf("%s names %q, which does not exist", file, s)
			}
			return true
		})
	}
	if found < 4 {
		t.Errorf("%d pages are named", found)
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

// The navigation of the site names every page.
func TestSiteNamesEveryPage(t *testing.T) {
	var files, named []string
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		must.Succeed(t, err)
		for _, file := range found {
			files = append(files, strings.TrimPrefix(filepath.ToSlash(file), "docs/"))
		}
	}
	for _, m := range regexp.MustCompile(`"([a-zA-Z/-]+\.md)"`).FindAllStringSubmatch(read(t, "site/zensical.toml"), -1) {
		named = append(named, m[1])
	}
	wantSame(t, "the navigation in site/zensical.toml", "page", files, named)
}

// Pages are short enough to be read: README in a minute, a page in half an hour.
func TestPagesAreShort(t *testing.T) {
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, want at most 150", lines)
	}
	for page, document := range pages(t) {
		if words := len(strings.Fields(document)); words > 6600 {
			t.Errorf("%s has %d words, want at most 6600: split it", page, words)
		}
	}
}

// Lines are short enough for a terminal, also those of a code block.
func TestLinesAreShort(t *testing.T) {
	for page, document := range pages(t) {
		n := 0
		for line := range strings.Lines(document) {
			n++
			long := utf8.RuneCountInString(line) > 121 // with its end
			if long && !strings.HasPrefix(line, "|") && strings.Contains(strings.TrimSpace(line), " ") && !strings.HasPrefix(line, "<!--") {
				t.Errorf("%s:%d has more than 120 characters", page, n)
			}
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

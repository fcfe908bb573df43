package docs_test

import (
	"flag"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the columns of tests in docs/cases")

// caseLists are the documents with the numbered cases, and the test files whose subtests have their numbers. All other
// numbers are cases of datareplication.
var caseLists = []struct {
	document string
	least    int // of the cases that have tests
	has      func(file string) bool
}{
	{"docs/cases/datareplication.md", 100, func(file string) bool { return !syndicationFile(file) && !jsonFile(file) }},
	{"docs/cases/syndication.md", 100, func(file string) bool { return syndicationFile(file) && !jsonFile(file) }},
	{"docs/cases/json-feeds.md", 10, jsonFile},
}

// syndicationFile reports whether the case numbers in a test file are those of Atom and RSS.
func syndicationFile(file string) bool {
	return strings.HasPrefix(file, "source/syndication/") ||
		slices.Contains([]string{
			"serve/archive_walk_test.go", "serve/atom_test.go", "serve/document_parsers_test.go", "serve/syndication_round_trip_test.go",
			"serve/valid_test.go", "message/date_test.go", "internal/conformance/syndication_test.go", "cmd/feedbridge/conformance_syndication_test.go",
		}, file)
}

// jsonFile reports whether the case numbers in a test file are those of JSON Feed and http-feeds.
func jsonFile(file string) bool {
	return strings.HasPrefix(file, "source/httpfeed/") ||
		slices.Contains([]string{
			"source/syndication/jsonfeed_test.go", "source/syndication/feedxml/json_test.go", "internal/entry/item_test.go",
			"serve/jsonfeed_test.go", "serve/httpfeed_test.go", "internal/conformance/json_test.go", "cmd/feedbridge/conformance_json_test.go",
		}, file)
}

// unsupported is in the column of tests of a case that feedbridge does not support.
const unsupported = "none"

// TestCasesAreDocumented checks that each numbered case has a test, that each number in a
// test has a case, and that the documents name the tests. With -update it writes the names.
func TestCasesAreDocumented(t *testing.T) {
	files := sources(t, true)
	for _, list := range caseLists {
		t.Run(path.Base(list.document), func(t *testing.T) {
			tests := testsOfCases(files, list.has)
			if len(tests) < list.least {
				t.Fatalf("found only %d cases in tests: this test looks in the wrong place", len(tests))
			}
			before := read(t, list.document)
			var after strings.Builder
			last := 0
			for line := range strings.Lines(before) {
				row := caseRow.FindStringSubmatch(line)
				if row == nil {
					after.WriteString(line)
					continue
				}
				number, rest, documented := row[1], row[2], row[3]
				if n, err := strconv.Atoi(number); err == nil {
					if n <= last {
						t.Fatalf("row %d is behind row %d", n, last)
					}
					last = n
				}
				found := slices.Sorted(maps.Keys(tests[number]))
				delete(tests, number)
				want := "`" + strings.Join(found, "`, `") + "`"
				switch {
				case documented == unsupported && len(found) == 0:
					want = unsupported
				case len(found) == 0:
					t.Errorf("case %s has no test", number)
				case documented != want && !*update:
					t.Errorf("case %s: the document names the tests %s, and they are %s: run this test with -update", number, documented, want)
				}
				after.WriteString("| " + number + " | " + rest + " | " + want + " |\n")
			}
			for number, in := range tests {
				t.Errorf("%v have case %s, which is not in %s", slices.Sorted(maps.Keys(in)), number, list.document)
			}
			if *update && !t.Failed() && after.String() != before {
				must.Succeed(t, os.WriteFile(list.document, []byte(after.String()), 0o644))
			}
		})
	}
}

var (
	caseRow = regexp.MustCompile(`^\| (\d+[a-c]?) \| (.*) \|(?: (.*))? \|\n$`)
	// caseName matches the start of a subtest's name that has one or more case numbers.
	caseName   = regexp.MustCompile(`^cases? ((?:\d+[a-c]?(?:, | and )?)+): `)
	caseNumber = regexp.MustCompile(`\d+[a-c]?`)
)

// testsOfCases returns, by case number, the names of the tests that have the number in a
// string. A string outside a test function counts for all tests of the package that use
// the function or variable with it, directly or not.
func testsOfCases(files map[string]*ast.File, in func(file string) bool) map[string]map[string]bool {
	type declaration struct {
		name  string
		uses  map[string]bool // identifiers
		cases []string
	}
	packages := map[string][]declaration{}
	add := func(dir, name string, node ast.Node) {
		d := declaration{name: name, uses: map[string]bool{}}
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				d.uses[n.Name] = true
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					break
				}
				s, _ := strconv.Unquote(n.Value)
				if m := caseName.FindStringSubmatch(s); m != nil {
					d.cases = append(d.cases, caseNumber.FindAllString(m[1], -1)...)
				}
			}
			return true
		})
		packages[dir] = append(packages[dir], d)
	}
	for file, parsed := range files {
		if !in(file) {
			continue
		}
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				add(path.Dir(file), decl.Name.Name, decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						add(path.Dir(file), v.Names[0].Name, v)
					}
				}
			}
		}
	}
	isTest := func(name string) bool {
		return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Benchmark")
	}
	found := map[string]map[string]bool{}
	for _, decls := range packages {
		for _, d := range decls {
			if len(d.cases) == 0 {
				continue
			}
			users, seen := []string{d.name}, map[string]bool{d.name: true}
			for i := 0; i < len(users); i++ {
				if isTest(users[i]) {
					continue
				}
				for _, other := range decls {
					if other.uses[users[i]] && !seen[other.name] {
						seen[other.name] = true
						users = append(users, other.name)
					}
				}
			}
			for _, number := range d.cases {
				if found[number] == nil {
					found[number] = map[string]bool{}
				}
				for _, name := range users {
					if isTest(name) {
						found[number][name] = true
					}
				}
			}
		}
	}
	return found
}

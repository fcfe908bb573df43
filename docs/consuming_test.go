package docs_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

const consuming = "docs/consuming.md"

// consumers are the pages with the programs in examples/consumers.
var consumers = []string{
	"docs/consuming-python.md", "docs/consuming-go.md", "docs/consuming-javascript.md", "docs/consuming-java.md", "docs/consuming-cloudevents.md",
}

// The documents have the example consumers verbatim. With -update they get them.
func TestConsumersAreDocumented(t *testing.T) {
	included := regexp.MustCompile("(?s)\\]\\(\\.\\./(examples/consumers/[^)]+)\\):\n\n```\\w+\n(.*?)```\n")
	var documented []string
	for _, document := range consumers {
		before := read(t, document)
		after := included.ReplaceAllStringFunc(before, func(part string) string {
			m := included.FindStringSubmatch(part)
			file, block := m[1], m[2]
			documented = append(documented, file)
			program := read(t, file)
			if block != program && !*update {
				t.Errorf("%s does not have %s as it is: run this test with -update", document, file)
			}
			return strings.TrimSuffix(part, block+"```\n") + program + "```\n"
		})
		if *update && after != before {
			must.Succeed(t, os.WriteFile(document, []byte(after), 0o644))
		}
	}
	err := filepath.WalkDir("examples/consumers", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "target"):
			return fs.SkipDir
		case slices.Contains([]string{".py", ".js", ".go", ".java"}, filepath.Ext(file)) && !strings.HasSuffix(file, "_test.go") &&
			!slices.Contains(documented, filepath.ToSlash(file)):
			t.Errorf("%v do not have %s", consumers, file)
		}
		return nil
	})
	must.Succeed(t, err)
}

// Each header in docs/consuming.md is in the program, and each header that package message
// knows is in the document.
func TestMessageHeadersAreDocumented(t *testing.T) {
	known, messages := map[string]bool{}, []string{}
	for file, parsed := range sources(t, false) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				if s, ok := text(lit); ok {
					known[s] = true
					if file == "message/message.go" && regexp.MustCompile(`^(Content|Last|Operation|Feedbridge)-\w`).MatchString(s) {
						messages = append(messages, s)
					}
				}
			}
			return true
		})
	}
	if len(messages) < 8 {
		t.Fatalf("found only the headers %q in package message", messages)
	}
	var documented []string
	for _, cell := range column(read(t, consuming), "Header", 0) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			documented = append(documented, m[1])
			if !known[m[1]] && !known[strings.TrimSuffix(m[1], "X")] && m[1] != "Nats-…" {
				t.Errorf("%s names the header %s, which the program does not have", consuming, m[1])
			}
		}
	}
	for _, name := range messages {
		if !slices.Contains(documented, name) && !slices.Contains(documented, name+"X") {
			t.Errorf("%s does not name the header %s", consuming, name)
		}
	}
}

package docs_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

const (
	architecture = "docs/architecture.md"
	glossary     = "docs/glossary.md"
)

// A path in docs/architecture.md is in code and has a slash: `sink/gate.go`, `bridge/`.
func TestPathsInArchitectureExist(t *testing.T) {
	named := regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)*/?)`")
	count := 0
	for _, m := range named.FindAllStringSubmatch(read(t, architecture), -1) {
		file := m[1]
		if !strings.Contains(file, "/") && !strings.HasSuffix(file, ".go") {
			continue
		}
		count++
		if _, err := os.Stat(strings.TrimSuffix(file, "/")); err != nil {
			t.Errorf("%s names %s: %v", architecture, file, err)
		}
	}
	if count < 20 {
		t.Errorf("found only %d paths in %s: this test looks for the wrong thing", count, architecture)
	}
}

// The names in the last column of the glossary are exported and exist. A name is
// qualified by its package, as in `feed.Entity`.
func TestGlossaryNamesExist(t *testing.T) {
	exported := map[string]bool{}
	for file, parsed := range sources(t, false) {
		add := func(name string) {
			if ast.IsExported(name) {
				exported[path.Base(path.Dir(file))+"."+name] = true
			}
		}
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil {
					add(decl.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name.Name)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name.Name)
						}
					}
				}
			}
		}
	}
	cells := column(read(t, glossary), "Term", 2)
	if len(cells) < 50 {
		t.Fatalf("found only %d terms", len(cells))
	}
	for _, cell := range cells {
		names := code.FindAllStringSubmatch(cell, -1)
		if len(names) == 0 {
			t.Errorf("%s has a term without a name: %q", glossary, cell)
		}
		for _, m := range names {
			if !exported[m[1]] {
				t.Errorf("%s names %s, which does not exist", glossary, m[1])
			}
		}
	}
}

// The paths, tests and fuzz targets in the commands of CONTRIBUTING.md exist.
func TestCommandsOfContributingExist(t *testing.T) {
	functions := map[string]bool{}
	for _, parsed := range sources(t, true) {
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				functions[f.Name.Name] = true
			}
		}
	}
	document := read(t, "CONTRIBUTING.md")
	for _, m := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(document, -1) {
		if !functions[m] {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", m)
		}
	}
	paths := regexp.MustCompile(`\./[\w/]+`).FindAllString(document, -1)
	if len(paths) < 4 {
		t.Errorf("found only the paths %q", paths)
	}
	for _, file := range paths {
		if _, err := os.Stat(strings.TrimSuffix(file, "/")); err != nil {
			t.Errorf("CONTRIBUTING.md: %v", err)
		}
	}
}

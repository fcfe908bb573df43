package feedbridge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The cases of each format are numbered from 1. A test that shows what feedbridge
// does in one bears its number in its name. The tests of Atom and RSS lie in
// files of their own.
func TestEveryCaseOfTheFormatsHasATest(t *testing.T) {
	ofSyndication := func(file string) bool {
		return strings.HasPrefix(file, "source/syndication/") || file == "serve/atom_test.go" || file == "serve/valid_test.go"
	}
	for _, format := range []struct {
		name  string
		in    func(file string) bool
		cases int
		none  []int // those that are not done
	}{
		{"datareplication", func(file string) bool { return !ofSyndication(file) }, 141, nil},
		// 128 and 129 are JSON Feed and http-feeds.
		{"syndication", ofSyndication, 138, []int{128, 129}},
	} {
		t.Run(format.name, func(t *testing.T) {
			found := numbersInTests(t, format.in)
			for n := 1; n <= format.cases; n++ {
				if !found[n] && !slices.Contains(format.none, n) {
					t.Errorf("no test bears the number of case %d", n)
				}
			}
		})
	}
}

var numbered = regexp.MustCompile(`"cases? (\d+)(?: (?:and|to) (\d+))?[:" ]`)

// numbersInTests returns the cases that tests in some files name.
func numbersInTests(t *testing.T, in func(file string) bool) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") || !in(filepath.ToSlash(file)) {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, match := range numbered.FindAllStringSubmatch(string(text), -1) {
			for _, digits := range match[1:] {
				if n, err := strconv.Atoi(digits); err == nil {
					found[n] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

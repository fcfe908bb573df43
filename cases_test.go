package feedbridge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The consumer's cases of the datareplication format are numbered from 1 to 98.
// A test that shows what feedbridge does in one bears its number in its name.
func TestEveryCaseOfTheFormatHasATest(t *testing.T) {
	const cases = 98
	numbered := regexp.MustCompile(`"cases? (\d+)(?: (?:and|to) (\d+))?[:" ]`)
	found := map[int]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
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
	for n := 1; n <= cases; n++ {
		if !found[n] {
			t.Errorf("no test bears the number of case %d", n)
		}
	}
}

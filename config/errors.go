package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Error is one error in the configuration. Its text never contains the value of a
// secret.
type Error struct {
	// Source is the file or the environment variable with the error; empty if a
	// setting is missing everywhere.
	Source string
	// Line is the line in the file, from 1; 0 if the error has no line.
	Line int
	// Key is the path of the key, such as feeds.orders.every; empty for the whole
	// configuration.
	Key string
	// Text has the error and its cure.
	Text string
}

// Error has one line, also if the text quotes a value of several.
func (e *Error) Error() string {
	source := e.Source
	if e.Line > 0 {
		source = fmt.Sprintf("%s:%d", source, e.Line)
	}
	parts := slices.DeleteFunc([]string{source, e.Key, e.Text}, func(part string) bool { return part == "" })
	return safetext.Clean(strings.Join(parts, ": "))
}

// Errors has all errors of a configuration: first those in the file, in the order of its
// lines, then the others in the order of the variables.
type Errors []*Error

// Error has one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Is reports whether target is [feed.ErrPermanent]: only a person can fix a
// configuration.
func (e Errors) Is(target error) bool { return target == feed.ErrPermanent }

func (e Errors) sortByLocation() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(uint(a.Line)-1, uint(b.Line)-1), // no line comes after all lines
			cmp.Compare(a.Source, b.Source), cmp.Compare(a.Key, b.Key))
	})
}

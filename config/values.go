package config

import (
	"maps"
	"reflect"
	"strings"
)

// A valueSet has the values that the sources of a configuration set, and the errors in them. The sources are read one
// after the other, and a value of a later one takes precedence.
type valueSet struct {
	environ map[string]string
	// values has the scalars and lists that are set, by path.
	values map[string]reflect.Value
	// feedless has the value of the field of Options.
	feedless bool
	// titles has the titles of feeds in lists, by name.
	titles map[string]string
	diagnostics
}

func newValueSet(environ []string) *valueSet {
	l := &valueSet{
		environ:     map[string]string{},
		values:      map[string]reflect.Value{},
		titles:      map[string]string{},
		diagnostics: diagnostics{locations: locations{}, suppressed: map[string]bool{}, inDefaults: map[string]bool{}, listOf: map[string]string{}, refusedFeeds: map[string]bool{}, incumbents: map[string]bool{}},
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		l.environ[name] = value
	}
	return l
}

// setText sets the value of s, which is at path, from a text outside of the file. No error
// quotes a value that may be a secret.
func (l *valueSet) setText(s *spec, path, text string, at location) {
	v, err := s.decode(text)
	if err != nil {
		l.reportAt(at, path, err.Error())
		return
	}
	l.locations.setLocation(path, at)
	l.values[path] = v
}

// clone returns the same values, without errors.
func (l *valueSet) clone() *valueSet {
	c := newValueSet(nil)
	c.file, c.feedless, c.environ, c.values, c.locations = l.file, l.feedless, l.environ, maps.Clone(l.values), maps.Clone(l.locations)
	return c
}

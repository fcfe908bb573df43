package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A location is the origin of a value.
type location struct {
	source string // a file, a variable, or the path of a list
	line   int    // of the file or the list, or 0
}

// String returns the location beside a value.
func (at location) String() string {
	list, isList := strings.CutPrefix(at.source, listSource)
	switch {
	case isList:
		return fmt.Sprintf("list %s, line %d", list, at.line)
	case at.line > 0:
		return fmt.Sprintf("%s:%d", at.source, at.line)
	}
	return at.source
}

// listSource begins the source of the feeds of a list.
const listSource = "feeds_from."

// locations has the location that last set each path. Every path above a path is
// in it too, with the location that was first to set something below it.
type locations map[string]location

// setLocation stores where path is set.
func (l locations) setLocation(path string, at location) {
	l[path] = at
	for above := parentPath(path); above != ""; above = parentPath(above) {
		if !l.isSet(above) {
			l[above] = at
		}
	}
}

// isSet reports whether path, or a path below it, is set anywhere.
func (l locations) isSet(path string) bool {
	_, ok := l[path]
	return ok
}

// namesBelow returns the names that occur directly below path, sorted.
func (l locations) namesBelow(path string) []string {
	found := map[string]bool{}
	for p := range l {
		if rest, ok := strings.CutPrefix(p, path+"."); ok {
			name, _, _ := strings.Cut(rest, ".")
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// closest returns the location of path, or of the nearest path above it that has one.
// It is zero if there is none.
func (l locations) closest(path string) location {
	for path != "" && !l.isSet(path) {
		path = parentPath(path)
	}
	return l[path]
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// parentPath returns the path above path: of a list for its items, and the empty path for
// a top-level key.
func parentPath(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

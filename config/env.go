package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// envPrefix is the prefix of variables that set keys. envFile names the file; it is read
// by the callers of Load.
const (
	envPrefix = "FEEDBRIDGE_"
	envFile   = envPrefix + "CONFIG"
)

// serviceLink matches the variables that Kubernetes and Docker set in every container
// beside a service whose name starts with feedbridge, as in
// FEEDBRIDGE_PORT_9321_TCP_ADDR=10.0.0.7. No key ends like these.
var serviceLink = regexp.MustCompile(`_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readEnvironment sets the values of variables. A variable with several readings is
// resolved by the names in the file, not by those in other variables.
func (l *loader) readEnvironment() {
	inFile := maps.Clone(l.places)
	var unknown []string
	for _, variable := range slices.Sorted(maps.Keys(l.environ)) {
		if !strings.HasPrefix(variable, envPrefix) || variable == envFile {
			continue
		}
		at := place{source: variable}
		readings := readingsOf(variable, inFile)
		switch {
		case len(readings) == 1:
			l.setVariable(readings[0], l.environ[variable], at)
		case len(readings) > 1:
			l.fault(at, readings[0].path(), fmt.Sprintf("the variable can mean this and %s; set them in the file", readings[1].path()))
		case !serviceLink.MatchString(variable):
			unknown = append(unknown, variable)
		}
	}
	for _, variable := range unknown {
		l.unknownVariable(variable, inFile)
	}
}

func (l *loader) setVariable(r reading, text string, at place) {
	s, path := r.setting, r.path()
	var value any = text
	var err error
	switch {
	case !utf8.ValidString(text):
		err = errors.New("the value is not UTF-8")
	case s.isList():
		value, err = splitList(text, s.hasCommas())
	default:
		_, err = decodeText(s.typ, text)
	}
	if err != nil {
		l.fault(at, path, strings.TrimPrefix(err.Error(), s.name+" "))
		return
	}
	l.set(path, value, at)
}

// hasCommas reports whether the items of a list may have commas in them: those
// of headers do, and values such as cleanup.policy=compact,delete.
func (s *spec) hasCommas() bool { return s.isSecret() || s.path == "feeds.*.to.kafka.config" }

// splitList reads a list of strings from a variable's text.
func splitList(text string, commas bool) ([]any, error) {
	list := []any{}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		var items []string
		if err := yaml.Unmarshal([]byte(text), &items); err != nil {
			return nil, errors.New("not a YAML list of text") // err would quote it
		}
		for _, item := range items {
			list = append(list, item)
		}
		return list, nil
	}
	separator := func(r rune) bool { return r == '\n' || r == ',' && !commas }
	for _, item := range strings.FieldsFunc(text, separator) {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, nil
}

// A reading is a setting that a variable can stand for.
type reading struct {
	setting *spec
	// name replaces the * in the path of the setting, if it has one.
	name string
}

func (r reading) path() string { return strings.Replace(r.setting.path, "*", r.name, 1) }

// readingsOf returns the readings of variable: none if it is unknown, and several if
// the file has a name for each.
func readingsOf(variable string, inFile map[string]place) []reading {
	var all, known []reading
	root.settings(func(s *spec) {
		name, ok := match(variable, s.path)
		if !ok {
			return
		}
		all = append(all, reading{s, name})
		above, _, _ := strings.Cut(s.path, ".*")
		if _, ok := inFile[join(above, name)]; ok {
			known = append(known, reading{s, name})
		}
	})
	if len(all) < 2 {
		return all
	}
	if len(known) > 0 {
		return known
	}
	longestKey := slices.MinFunc(all, func(a, b reading) int { return len(a.name) - len(b.name) })
	return []reading{longestKey}
}

// spell returns the variable of a path, without the prefix.
func spell(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// match reports whether variable spells pattern, and returns the name in place of
// the *.
func match(variable, pattern string) (name string, ok bool) {
	before, after, named := strings.Cut(spell(pattern), "*")
	if !named {
		return "", variable == before
	}
	rest, ok := strings.CutPrefix(variable, before)
	if !ok {
		return "", false
	}
	spelled, ok := strings.CutSuffix(rest, after)
	name = strings.ToLower(strings.ReplaceAll(spelled, "_", "-"))
	return name, ok && nameForm.MatchString(name) && spelled == strings.ToUpper(spelled)
}

func (l *loader) unknownVariable(variable string, inFile map[string]place) {
	at := place{source: variable}
	for pattern := range reserved {
		for prefix := variable; prefix != ""; prefix = prefix[:max(0, strings.LastIndex(prefix, "_"))] {
			if _, ok := match(prefix, pattern); ok {
				l.fault(at, "", notInThisVersion(pattern))
				return
			}
		}
	}
	meant := nearestVariable(variable, inFile)
	for _, r := range readingsOf(meant, inFile) {
		l.excuse(r, at)
	}
	l.errs = append(l.errs, &Error{Source: at.source, Text: "no key of the configuration has this variable" + didYouMean(meant)})
}

// excuse marks the setting that a misspelt variable was probably meant to set, so that it
// is not reported as missing too: the key, or the whole feed or bus if it occurs nowhere
// else.
func (l *loader) excuse(r reading, at place) {
	path := r.path()
	if _, set := l.places[path]; set {
		return
	}
	missing := path
	if above, _, _ := strings.Cut(r.setting.path, ".*"); r.name != "" {
		if _, occurs := l.places[join(above, r.name)]; !occurs {
			missing = join(above, r.name)
		}
	}
	l.note(path, at)
	l.faulty[missing] = true
}

// nearestVariable returns the variable that was most likely meant. It tries
// each way to cut variable into a name and a key, as only the key is likely to
// be misspelt, and favours a name that the file has.
func nearestVariable(variable string, inFile map[string]place) string {
	keys := map[string][]string{} // by the part of the variable before the name
	root.settings(func(s *spec) {
		before, key, named := strings.Cut(spell(s.path), "*")
		if !named {
			before, key = envPrefix, strings.TrimPrefix(before, envPrefix)
		}
		keys[before] = append(keys[before], key)
	})
	upper := strings.ToUpper(variable)
	best := ""
	for _, before := range slices.Sorted(maps.Keys(keys)) {
		rest, _ := strings.CutPrefix(upper, before)
		if before == envPrefix {
			if key := nearestSpelled(rest, keys[before]); key != "" {
				best = before + key
			}
			continue
		}
		above := strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(before, envPrefix), "_")), "_", ".")
		for i := 1; i < len(rest) && strings.HasPrefix(upper, before); i++ {
			key := ""
			if rest[i] == '_' {
				key = nearestSpelled(rest[i:], keys[before])
			}
			if key == "" {
				continue
			}
			name := strings.ToLower(strings.ReplaceAll(rest[:i], "_", "-"))
			if _, known := inFile[join(above, name)]; known {
				return before + rest[:i] + key
			}
			if best == "" {
				best = before + rest[:i] + key
			}
		}
	}
	return best
}

// nearestSpelled is nearest, or the first key of a mapping if the variable
// names a mapping.
func nearestSpelled(word string, keys []string) string {
	if key := nearest(word, keys); key != "" {
		return key
	}
	for _, key := range keys {
		if strings.HasPrefix(key, word+"_") {
			return key
		}
	}
	return ""
}

package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/feedbridge/feedbridge/credential"
)

// reserved has keys of later versions, with the feature that they configure.
var reserved = map[string]string{
	"feeds.*.compact_backfill": "publishing only the last version of each entry of a history",
}

func notInThisVersion(path string) string {
	return reserved[path] + " is not in this version of feedbridge"
}

var secretType = reflect.TypeFor[credential.Secret]()

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// read checks n against s and returns its value as viper takes it: text, a
// list, or a mapping. Values with an error are left out, and ok is false if that is n
// itself. No error quotes a value that may be a secret.
func (l *loader) read(s *spec, path string, n *yaml.Node) (value any, ok bool) {
	at := place{l.file, n.Line}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.ShortTag(), "!!"):
		l.fault(at, path, "tags are not known here; write a value that starts with ! in quotes")
		return nil, false
	case isNull(n):
		l.fault(at, path, "the value is missing; "+s.want()+", or leave the key out")
		return nil, false
	case s.isList() && n.Kind == yaml.SequenceNode:
		return l.readList(s, path, n)
	case s.isScalar() && n.Kind == yaml.ScalarNode:
		return l.readScalar(s, path, n.Value, at)
	case !s.isList() && !s.isScalar() && n.Kind == yaml.MappingNode:
		return l.readMapping(s, path, n), true
	}
	l.fault(at, path, s.want())
	return nil, false
}

func (l *loader) readScalar(s *spec, path, text string, at place) (value any, ok bool) {
	text, err := interpolate(text, l.lookup)
	if err == nil {
		_, err = decodeText(s.typ, text)
	}
	if err != nil {
		l.fault(at, path, strings.TrimPrefix(err.Error(), s.name+" "))
	}
	return text, err == nil
}

func (l *loader) lookup(name string) (value string, set bool) {
	value, set = l.environ[name]
	return value, set
}

func (l *loader) readList(s *spec, path string, n *yaml.Node) (value any, ok bool) {
	list := make([]any, 0, len(n.Content))
	for i, item := range n.Content {
		below, at := fmt.Sprintf("%s[%d]", path, i), place{l.file, item.Line}
		l.note(below, at)
		if item.Kind == yaml.MappingNode {
			l.fault(at, below, `want text; write an item with ": " in it in quotes`)
			continue
		}
		if v, ok := l.read(s.elem, below, item); ok {
			list = append(list, v)
		}
	}
	return list, len(list) == len(n.Content)
}

func (l *loader) readMapping(s *spec, path string, n *yaml.Node) map[string]any {
	tree := map[string]any{}
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, at := n.Content[i], place{l.file, n.Content[i].Line}
		below := join(path, shown(key.Value))
		switch first, again := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			l.fault(at, path, "a key must be plain text")
			continue
		case again:
			l.fault(at, below, fmt.Sprintf("the key is here twice; the first is in line %d", first))
			continue
		}
		lines[key.Value] = key.Line

		k, name := s.key(key.Value), key.Value
		if s.isNames() && !nameForm.MatchString(name) {
			l.fault(at, below, badName(name))
			if name == "<<" {
				continue // the merged keys are neither feeds nor buses
			}
			name = l.standIn(path, name, n)
			below = join(path, name)
		}
		if k == nil {
			l.unknownKey(s, path, below, key.Value, at)
			continue
		}
		l.note(below, at)
		if v, ok := l.read(k, below, n.Content[i+1]); ok {
			tree[name] = v
		}
	}
	return tree
}

// standIn returns a valid name for an invalid one, so that all keys below it can be read
// and checked: the name that was most likely meant, or, if n has that already, an unused
// one. Errors show the invalid name.
func (l *loader) standIn(path, bad string, n *yaml.Node) string {
	name := likelyName(bad)
	_, taken := l.badNames[join(path, name)]
	for i := 0; i < len(n.Content); i += 2 {
		taken = taken || n.Content[i].Value == name
	}
	if taken || name == "" {
		name = fmt.Sprintf("invalid-%d-name", len(l.badNames))
		l.invented[name] = shown(bad)
	}
	l.badNames[join(path, name)] = join(path, shown(bad))
	return name
}

// showBadNames restores the invalid names of the file in the errors.
func (l *loader) showBadNames() {
	for _, e := range l.errs {
		for name, bad := range l.invented {
			e.Text = strings.ReplaceAll(e.Text, name, bad)
		}
		for path, bad := range l.badNames {
			// A variable refers to the valid name.
			if rest, below := strings.CutPrefix(e.Key+".", path+"."); below && e.Line > 0 {
				e.Key = strings.TrimSuffix(bad+"."+rest, ".")
				break
			}
		}
	}
}

// shown quotes a key that would break the form of a path, or of a line.
func shown(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_<-]+$`)

func badName(name string) string {
	const rule = "a name has only lower-case letters, digits and -, and starts with a letter"
	if likely := likelyName(name); likely != "" {
		return fmt.Sprintf("%s; try %q", rule, likely)
	}
	return rule
}

// likelyName returns the valid name that an invalid one was most likely meant to be,
// or the empty string.
func likelyName(bad string) string {
	lower := strings.ReplaceAll(strings.ToLower(bad), "_", "-")
	if nameForm.MatchString(lower) {
		return lower
	}
	return ""
}

func (l *loader) unknownKey(s *spec, path, below, key string, at place) {
	pattern := join(s.path, key)
	if reserved[pattern] != "" {
		l.fault(at, below, notInThisVersion(pattern))
		return
	}
	if key == "<<" {
		l.faulty[path] = true // do not report the merged keys as missing
		l.fault(at, below, "merge keys are not known here; name an anchor for each value, or repeat them")
		return
	}
	hint := "; known here: " + strings.Join(s.keyNames(), ", ")
	if meant := s.nearestKey(key); meant != "" {
		l.faulty[join(path, meant)] = true // do not report it as missing
		hint = didYouMean(meant)
	}
	l.fault(at, below, "unknown key"+hint)
}

func (s *spec) keyNames() []string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	return names
}

// nearestKey returns the key of s that was most likely meant, or the path
// from s to a key of just that name.
func (s *spec) nearestKey(key string) string {
	if meant := nearest(key, s.keyNames()); meant != "" {
		return meant
	}
	var below string
	s.settings(func(k *spec) {
		rest := strings.TrimPrefix(k.path, s.path+".")
		if below == "" && k.name == key && !strings.Contains(rest, "*") {
			below = rest
		}
	})
	return below
}

// want describes the values of s.
func (s *spec) want() string {
	switch {
	case s.isScalar():
		return want(s.typ)
	case s.isNames():
		return fmt.Sprintf("want a mapping of names, such as {main: {%s: ...}}", s.elem.keys[0].name)
	case !s.isList():
		return fmt.Sprintf("want a mapping, such as {%s: ...}", s.keys[0].name)
	case s.isSecret():
		return `want a list, such as ["Name: value"]`
	default:
		return "want a list, such as [a, b]"
	}
}

// isSecret reports whether s, or each of its items, must not be shown.
func (s *spec) isSecret() bool {
	return s.typ == secretType || s.isList() && s.elem.typ == secretType
}

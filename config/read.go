package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A fileReader reads the values of a file.
type fileReader struct{ *valueSet }

// readNode reads n, the value of s at path in the file. It returns the value of a scalar or a
// list, and sets those in a mapping. A value with an error is left out, and ok is false if that
// is n itself. No error quotes a value that may be a secret.
func (l fileReader) readNode(s *spec, path string, n *yaml.Node) (v reflect.Value, ok bool) {
	at := location{l.file, n.Line}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	text := s.expectedValue()
	switch {
	case n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.ShortTag(), "!!"):
		text = "YAML tags are not supported; put a value that starts with ! in quotes"
	case isNull(n) && path == "feeds" && l.feedless:
		return v, false
	case isNull(n):
		text = "the value is missing; " + text + ", or leave the key out"
	case s.isList() && n.Kind == yaml.SequenceNode:
		return l.readList(s, path, n)
	case s.isScalar() && n.Kind == yaml.ScalarNode:
		read, err := interpolate(n.Value, l.environ)
		if err == nil {
			v, err = s.decode(read)
		}
		if err == nil {
			return v, true
		}
		text = err.Error()
	case !s.isList() && !s.isScalar() && n.Kind == yaml.MappingNode:
		l.readMapping(s, path, n)
		return v, false
	}
	l.reportAt(at, path, text)
	return v, false
}

func (l fileReader) readList(s *spec, path string, n *yaml.Node) (list reflect.Value, ok bool) {
	list = reflect.MakeSlice(s.typ, 0, len(n.Content))
	for i, item := range n.Content {
		below, at := fmt.Sprintf("%s[%d]", path, i), location{l.file, item.Line}
		l.locations.setLocation(below, at)
		if item.Kind == yaml.MappingNode {
			l.reportAt(at, below, `want text; write an item with ": " in it in quotes`)
			continue
		}
		if v, ok := l.readNode(s.elem, below, item); ok {
			list = reflect.Append(list, v)
		}
	}
	return list, list.Len() == len(n.Content)
}

func (l fileReader) readMapping(s *spec, path string, n *yaml.Node) {
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, at := n.Content[i], location{l.file, n.Content[i].Line}
		below := joinPath(path, quoteKey(key.Value))
		switch first, again := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			l.reportAt(at, path, "a key must be plain text")
			continue
		case again:
			l.reportAt(at, below, fmt.Sprintf("the key is repeated; the first one is in line %d", first))
			continue
		}
		lines[key.Value] = key.Line

		k := s.findKey(key.Value)
		if name := key.Value; s.isNameMapping() && !nameForm.MatchString(name) {
			if name == "<<" || !plainKey.MatchString(name) {
				l.reportAt(at, below, badNameText(name))
				continue // merged keys are neither feeds nor buses, and the name would break the paths below it
			}
			l.errs = append(l.errs, &Error{Source: at.source, Line: at.line, Key: below, Text: badNameText(name)})
		}
		if k == nil {
			l.reportUnknownKey(s, path, below, key.Value, at)
			continue
		}
		l.locations.setLocation(below, at)
		if v, ok := l.readNode(k, below, n.Content[i+1]); ok {
			l.values[below] = v
		}
	}
}

// reportUnknownKey reports a key below s, which is at path, and suppresses errors about
// the key that was probably meant.
func (l fileReader) reportUnknownKey(s *spec, path, below, key string, at location) {
	text, meant := s.unknownKey(key)
	switch {
	case key == "<<":
		l.suppress(path) // do not report the merged keys as missing
		text = "YAML merge keys are not supported; put the values that all feeds have into feed_defaults, and use an anchor for any other value"
	case s.isDefaults && key == "url":
		text = "each feed has a URL of its own; set it there"
	case meant != "":
		l.suppress(joinPath(path, meant)) // do not report it as missing
	}
	l.reportAt(at, below, text)
}

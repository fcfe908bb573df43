package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// A fileReader reads the values of a file strictly: each is one that its key can have.
type fileReader struct{ *loader }

// readNode returns the value of s at path in the file: text, a list of text, or a mapping of them by keys. It returns
// a default if the value has an error, and nil if there is none. No error quotes a value that may be a secret.
func (l fileReader) readNode(s *spec, path string, n *yaml.Node) any {
	at := location{l.file, n.Line}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	text := s.expectedValue()
	switch {
	case n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.ShortTag(), "!!"):
		text = "YAML tags are not supported; put a value that starts with ! in quotes"
	case n.Anchor != "" && !plainKey.MatchString(n.Anchor):
		text = "this is not the name of an anchor; put a value that starts with & in quotes"
	case isNull(n) && path == "feeds" && l.feedless:
		return nil
	case isNull(n):
		text = "the value is missing; " + text + ", or leave the key out"
	case s.isList() && n.Kind == yaml.SequenceNode:
		return l.readList(s, path, n)
	case s.isScalar() && n.Kind == yaml.ScalarNode:
		read, err := interpolate(n.Value, l.environ)
		if err == nil {
			_, err = s.parse(read)
		}
		if err == nil {
			return read
		}
		text = err.Error()
	case s.isMapping() && n.Kind == yaml.MappingNode:
		return l.readMapping(s, path, n)
	}
	l.reportAt(at, path, text)
	return s.fallback()
}

func (l fileReader) readList(s *spec, path string, n *yaml.Node) any {
	list := []any{}
	for i, item := range n.Content {
		below, at := fmt.Sprintf("%s[%d]", path, i), location{l.file, item.Line}
		l.locations.setLocation(below, at)
		if item.Kind == yaml.MappingNode {
			l.reportAt(at, below, `want text; write an item with ": " in it in quotes`)
			continue
		}
		list = append(list, l.readNode(s.elem, below, item))
	}
	return list
}

func (l fileReader) readMapping(s *spec, path string, n *yaml.Node) map[string]any {
	lines, values := map[string]int{}, map[string]any{}
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

		k, layerName := s.findKey(key.Value), key.Value
		if name := key.Value; s.isNameMapping() && !nameForm.MatchString(name) {
			if name == "<<" || !plainKey.MatchString(name) {
				l.reportAt(at, below, badNameText(name))
				continue // merged keys are neither feeds nor buses, and the name would break the paths below it
			}
			l.errs = append(l.errs, &Error{Source: at.source, Line: at.line, Key: below, Text: badNameText(name)})
			layerName = layerKey(name)
		}
		if k == nil {
			l.reportUnknownKey(s, path, below, key.Value, at)
			continue
		}
		l.locations.setLocation(below, at)
		if value := l.readNode(k, below, n.Content[i+1]); value != nil {
			values[layerName] = value
		}
	}
	return values
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

// variableForm matches $${, ${NAME} and ${NAME:-default}, and every other ${.
var variableForm = regexp.MustCompile(`\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?`)

// interpolate replaces ${NAME} and ${NAME:-default} in text, once, and $${ by ${. Its
// error is the first one. It names variables, and never quotes the text, which may be a
// secret.
func interpolate(text string, environ map[string]string) (string, error) {
	var err error
	text = variableForm.ReplaceAllStringFunc(text, func(found string) string {
		m := variableForm.FindStringSubmatch(found)
		value, set := environ[m[1]]
		switch {
		case found == "$${":
			return "${"
		case m[1] == "" || strings.Contains(m[3], "${"):
			err = cmp.Or(err, errors.New("want ${NAME} or ${NAME:-default}, not nested; write $${ where ${ itself is meant"))
		case value == "" && m[2] != "":
			return m[3]
		case !set:
			err = cmp.Or(err, fmt.Errorf("the variable %s is not set; give it a default with ${%s:-default}", m[1], m[1]))
		case !utf8.ValidString(value):
			err = cmp.Or(err, fmt.Errorf("the value of the variable %s is not UTF-8", m[1]))
		}
		return value
	})
	return text, err
}

// escapeVariables returns text in the form that interpolate turns back into text.
func escapeVariables(text string) string { return strings.ReplaceAll(text, "${", "$${") }

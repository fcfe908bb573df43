package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A fileReader reads the values of a parsed YAML file. It needs the nodes of the file,
// and cannot leave unknown keys and invalid names to viper: only nodes have lines and the
// text of a scalar, and viper folds keys to lower case, splits them at dots, merges two
// that become the same, and drops empty mappings.
type fileReader struct {
	environ map[string]string
	names   *badNames
	*diagnostics
}

// readNode checks n against s and returns its value as viper accepts it: text, a
// list, or a mapping. Values with an error are left out, and ok is false if that is n
// itself. No error quotes a value that may be a secret.
func (r *fileReader) readNode(s *spec, path string, n *yaml.Node) (value any, ok bool) {
	at := location{r.file, n.Line}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	text := s.expectedValue()
	switch {
	case n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.ShortTag(), "!!"):
		text = "YAML tags are not supported; put a value that starts with ! in quotes"
	case isNull(n):
		text = "the value is missing; " + text + ", or leave the key out"
	case s.isList() && n.Kind == yaml.SequenceNode:
		return r.readList(s, path, n)
	case s.isScalar() && n.Kind == yaml.ScalarNode:
		return r.readScalar(s, path, n.Value, at)
	case !s.isList() && !s.isScalar() && n.Kind == yaml.MappingNode:
		return r.readMapping(s, path, n), true
	}
	r.reportAt(at, path, text)
	return nil, false
}

// readScalar checks a scalar although viper decodes it again later: viper decodes only the
// value that takes precedence, and an error in the file is reported even if a variable
// overrides it.
func (r *fileReader) readScalar(s *spec, path, text string, at location) (value any, ok bool) {
	text, err := interpolate(text, r.environ)
	if err == nil {
		err = s.checkText(text)
	}
	if err != nil {
		r.reportAt(at, path, strings.TrimPrefix(err.Error(), s.name+" "))
	}
	return text, err == nil
}

func (r *fileReader) readList(s *spec, path string, n *yaml.Node) (value any, ok bool) {
	list := make([]any, 0, len(n.Content))
	for i, item := range n.Content {
		below, at := fmt.Sprintf("%s[%d]", path, i), location{r.file, item.Line}
		r.locations.setLocation(below, at)
		if item.Kind == yaml.MappingNode {
			r.reportAt(at, below, `want text; write an item with ": " in it in quotes`)
			continue
		}
		if v, ok := r.readNode(s.elem, below, item); ok {
			list = append(list, v)
		}
	}
	return list, len(list) == len(n.Content)
}

func (r *fileReader) readMapping(s *spec, path string, n *yaml.Node) map[string]any {
	tree := map[string]any{}
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, at := n.Content[i], location{r.file, n.Content[i].Line}
		below := joinPath(path, quoteKey(key.Value))
		switch first, again := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.reportAt(at, path, "a key must be plain text")
			continue
		case again:
			r.reportAt(at, below, fmt.Sprintf("the key is repeated; the first one is in line %d", first))
			continue
		}
		lines[key.Value] = key.Line

		k, name := s.findKey(key.Value), key.Value
		if s.isNameMapping() && !nameForm.MatchString(name) {
			r.reportAt(at, below, badNameText(name))
			if name == "<<" {
				continue // the merged keys are neither feeds nor buses
			}
			name = r.names.replaceName(path, name, n)
			below = joinPath(path, name)
		}
		if k == nil {
			r.reportUnknownKey(s, path, below, key.Value, at)
			continue
		}
		r.locations.setLocation(below, at)
		if v, ok := r.readNode(k, below, n.Content[i+1]); ok {
			tree[name] = v
		}
	}
	return tree
}

// reportUnknownKey reports a key below s, which is at path, and suppresses errors about
// the key that was probably meant.
func (r *fileReader) reportUnknownKey(s *spec, path, below, key string, at location) {
	pattern := joinPath(s.path, key)
	text := "unknown key; want one of: " + strings.Join(s.keyNames(), ", ")
	switch meant := s.nearestKey(key); {
	case reserved[pattern] != "":
		text = notInThisVersion(pattern)
	case key == "<<":
		r.suppress(path) // do not report the merged keys as missing
		text = "YAML merge keys are not supported; use an anchor for each value, or repeat the values"
	case meant != "":
		r.suppress(joinPath(path, meant)) // do not report it as missing
		text = "unknown key" + didYouMean(meant)
	}
	r.reportAt(at, below, text)
}

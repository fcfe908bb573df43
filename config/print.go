package config

import (
	"bytes"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/safetext"
)

// YAML returns the configuration as an equivalent file: with every default, without text
// and lists that are empty by default, and without settings that have no meaning for a
// feed's format. Secrets, values of headers, and credentials in URLs are ***.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(encode(root, reflect.ValueOf(*c))); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	// show masks parameters with the usual names; mask those of SecretParameters too.
	return []byte(safetext.NewRedactor(c.SecretParameters...).Text(out.String())), nil
}

// encode returns nil for a value that is left out.
func encode(s *spec, v reflect.Value) *yaml.Node {
	if s.optional {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch {
	case s.isNames():
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(byName(v))) {
			add(n, name, encode(s.elem, byName(v)[name]))
		}
		return n
	case s.isList():
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			n.Content = append(n.Content, scalar(s.elem, s.elem.show(v.Index(i))))
		}
		if v.Len() == 0 {
			return nil
		}
		return n
	case s.isScalar():
		text := s.show(v)
		if text == "" && s.preset == "" {
			return nil
		}
		return scalar(s, text)
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	f, isFeed := v.Interface().(Feed)
	for _, k := range s.keys {
		if !isFeed || k.suits(f.Format) {
			add(n, k.name, encode(k, v.FieldByIndex(k.index)))
		}
	}
	if len(n.Content) == 0 && !s.optional {
		return nil
	}
	return n
}

func byName(v reflect.Value) map[string]reflect.Value {
	values := make(map[string]reflect.Value, v.Len())
	for _, key := range v.MapKeys() {
		values[key.String()] = v.MapIndex(key)
	}
	return values
}

func add(n *yaml.Node, key string, value *yaml.Node) {
	if value != nil {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
}

// scalar quotes text unless every YAML parser reads it as text without quotes.
func scalar(s *spec, text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: escape(text)}
	switch s.typ.Kind() {
	case reflect.String, reflect.Struct:
		if !plain.MatchString(text) || n.ShortTag() != "!!str" {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./]([A-Za-z0-9._/:@-]*[A-Za-z0-9_/])?$`)

// show returns a scalar as text, with secrets masked.
func (s *spec) show(v reflect.Value) string {
	text := encodeText(v)
	switch {
	case s.path == "feeds.*.headers":
		name, _, _ := strings.Cut(v.Interface().(credential.Secret).Reveal(), ":")
		return name + ": " + text
	case s.name == "url" || strings.HasSuffix(s.name, "_url"):
		return mask(text)
	}
	return text
}

// mask removes the credentials and the secret query parameters of one URL, or of
// several separated by commas. They need no scheme.
func mask(urls string) string {
	var redact *safetext.Redactor
	return redact.Text(userinfo.ReplaceAllString(urls, "$1***@"))
}

var userinfo = regexp.MustCompile(`((?:^|,|://)\s*)[^/?#,\s]*@`)

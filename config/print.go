package config

import (
	"bytes"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/setting"
)

// YAML returns the configuration as an equivalent file: with every default, without text
// and lists that are empty by default, and without settings that have no meaning for a
// feed's format. Secrets, values of headers, and credentials in URLs are ***.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(c.encodeNode(schemaRoot, reflect.ValueOf(*c))), encoder.Close()); err != nil {
		return nil, err
	}
	// maskedText masks parameters with the usual names; mask those of SecretParameters too.
	return []byte(safetext.NewRedactor(c.SecretParameters...).Text(out.String())), nil
}

// encodeNode returns the value v of s, or nil if it is left out.
func (c *Config) encodeNode(s *spec, v reflect.Value) *yaml.Node {
	if s.optional {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	switch {
	case s.isNameMapping():
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			appendKey(n, name.String(), c.encodeNode(s.elem, v.MapIndex(name)))
		}
		return n
	case s.isDefaults:
		return encodeDefaults(s, s, v.Interface().(Defaults))
	case s.isList():
		if v.Len() == 0 && !c.hasDefault(s) {
			return nil
		}
		n.Kind, n.Style = yaml.SequenceNode, yaml.FlowStyle
		for i := range v.Len() {
			n.Content = append(n.Content, scalarNode(s.elem, maskedText(s.elem, v.Index(i))))
		}
		return n
	case s.isScalar():
		text := maskedText(s, v)
		if _, err := s.parse(text); text == "" && s.preset == "" && (err != nil || !c.hasDefault(s)) {
			return nil
		}
		return scalarNode(s, text)
	}
	f, isFeed := v.Interface().(Feed)
	for _, k := range s.keys {
		if !isFeed || k.appliesTo(f.Format) {
			appendKey(n, k.name, c.encodeNode(k, v.FieldByIndex(k.index)))
		}
	}
	if len(n.Content) == 0 && !s.optional {
		return nil
	}
	return n
}

// hasDefault reports whether feed_defaults has a value for the key s of a feed.
func (c *Config) hasDefault(s *spec) bool {
	key, isOfFeed := strings.CutPrefix(s.path, "feeds.*.")
	return isOfFeed && c.FeedDefaults[key] != nil
}

// encodeDefaults returns the values of s, a key of root, or nil if there are none.
func encodeDefaults(root, s *spec, set Defaults) *yaml.Node {
	if s.keys == nil {
		v := set[strings.TrimPrefix(s.path, root.path+".")]
		if v == nil {
			return nil
		}
		return new(Config).encodeNode(s, reflect.ValueOf(v))
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range s.keys {
		appendKey(n, k.name, encodeDefaults(root, k, set))
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

func appendKey(n *yaml.Node, key string, value *yaml.Node) {
	if value != nil {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
}

// scalarNode returns text as a value of s. It quotes text unless every YAML parser reads
// it as text without quotes.
func scalarNode(s *spec, text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: escapeVariables(text)}
	switch s.typ.Kind() {
	case reflect.String, reflect.Struct:
		var read any
		_ = yaml.Unmarshal([]byte(text), &read) // plain text is YAML
		if _, isText := read.(string); !isText || !plainText.MatchString(text) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}

var plainText = regexp.MustCompile(`^[A-Za-z0-9_./]([A-Za-z0-9._/:@-]*[A-Za-z0-9_/])?$`)

// maskedText returns the scalar v of s as text, with secrets masked.
func maskedText(s *spec, v reflect.Value) string {
	text := setting.Encode(v)
	switch {
	case s.path == "feeds.*.headers":
		name, _, _ := strings.Cut(v.Interface().(credential.Secret).Reveal(), ":")
		return name + ": " + text
	case s.typ == secretType:
		if secret := v.Interface().(credential.Secret); strings.HasPrefix(secret.Reveal(), "file:") {
			return secret.Reveal()
		}
	case s.name == "url" || strings.HasSuffix(s.name, "_url"):
		return maskURLs(text)
	}
	return text
}

// maskURLs masks the credentials and the secret query parameters of one URL, or of
// several separated by commas. They need no scheme.
func maskURLs(urls string) string {
	var redact *safetext.Redactor
	return redact.Text(userinfo.ReplaceAllString(urls, "$1***@"))
}

var userinfo = regexp.MustCompile(`((?:^|,|://)\s*)[^/?#,\s]*@`)

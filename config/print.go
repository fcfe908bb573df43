package config

import (
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
// feed's format. Secrets, values of headers, and credentials in URLs are ***. A comment says where a value comes
// from; see [Config.Origins].
func (c *Config) YAML() ([]byte, error) {
	out, err := dumpYAML(c.encodeNode(schemaRoot, "", reflect.ValueOf(*c)))
	if err != nil {
		return nil, err
	}
	// maskedText masks parameters with the usual names; mask those of SecretParameters too.
	return []byte(safetext.NewRedactor(c.SecretParameters...).Text(string(out))), nil
}

// dumpYAML returns v as YAML whose values have a line each, however long they are.
func dumpYAML(v any) ([]byte, error) {
	return yaml.Dump(v, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
}

// Origins returns where each value that is set comes from, by its path such as admin.listen: FILE:LINE, a variable, --set,
// or the line of a list.
func (c *Config) Origins() map[string]string {
	origins := map[string]string{}
	var add func(path string, n *yaml.Node)
	add = func(path string, n *yaml.Node) {
		if n.LineComment != "" {
			origins[path] = strings.TrimPrefix(n.LineComment, "# ")
		}
		for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			add(joinPath(path, n.Content[i].Value), n.Content[i+1])
		}
	}
	add("", c.encodeNode(schemaRoot, "", reflect.ValueOf(*c)))
	return origins
}

// origin returns a comment with where the value at path comes from; empty for a default.
func (c *Config) origin(path string) string {
	if at := c.set.locations[c.set.layer(path)]; at.source != "" {
		return "# " + safetext.Clean(at.String())
	}
	return ""
}

// encodeNode returns the value v of s, which is at path, or nil if it is left out.
func (c *Config) encodeNode(s *spec, path string, v reflect.Value) *yaml.Node {
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
			appendKey(n, name.String(), c.encodeNode(s.elem, joinPath(path, name.String()), v.MapIndex(name)))
		}
		return n
	case s.isDefaults:
		return c.encodeDefaults(s, s, path, v.Interface().(Defaults))
	case s.isList():
		if v.Len() == 0 && !c.hasDefault(s) {
			return nil
		}
		n.Kind, n.Style = yaml.SequenceNode, yaml.FlowStyle
		for i := range v.Len() {
			item := scalarNode(s.elem, maskedText(s.elem, v.Index(i)), "")
			if strings.Contains(item.Value, ":") {
				item.Style = yaml.DoubleQuotedStyle // not the encoder's ', which may be part of a password that is masked
			}
			n.Content = append(n.Content, item)
		}
		n.LineComment = c.origin(path)
		return n
	case s.isScalar():
		text := maskedText(s, v)
		if _, err := s.parse(text); text == "" && s.preset == "" && (err != nil || !c.hasDefault(s)) {
			return nil
		}
		return scalarNode(s, text, c.origin(path))
	}
	f, isFeed := v.Interface().(Feed)
	for _, k := range s.keys {
		if !isFeed || k.appliesTo(f.Format) {
			appendKey(n, k.name, c.encodeNode(k, joinPath(path, k.name), v.FieldByIndex(k.index)))
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

// encodeDefaults returns the values of s at path, a key of root, or nil if there are none.
func (c *Config) encodeDefaults(root, s *spec, path string, set Defaults) *yaml.Node {
	if s.keys == nil {
		v := set[strings.TrimPrefix(s.path, root.path+".")]
		if v == nil {
			return nil
		}
		return (&Config{set: c.set}).encodeNode(s, path, reflect.ValueOf(v))
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range s.keys {
		appendKey(n, k.name, c.encodeDefaults(root, k, joinPath(path, k.name), set))
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

// scalarNode returns text as a value of s, with a comment. It quotes text unless every YAML parser reads
// it as text without quotes.
func scalarNode(s *spec, text, comment string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: escapeVariables(text), LineComment: comment}
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

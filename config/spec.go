package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source"
)

var (
	secretType = reflect.TypeFor[credential.Secret]()
	startType  = reflect.TypeFor[source.Start]()
	keyType    = reflect.TypeFor[kafka.Key]()
)

// A spec describes one key of the configuration. The tree of specs is derived once from
// the structs and their tags. Strict reading, the names of variables, printing, the JSON Schema and
// docs/configuration.md use it.
type spec struct {
	// path has * for names: feeds.*.auth.basic.password.
	path string
	// name is the path's last part.
	name string
	// typ is never a pointer.
	typ reflect.Type
	// index is the index of the field in the struct of the spec above.
	index []int
	// optional marks a pointer: if the key does not occur it is nil and has no
	// defaults.
	optional bool
	// kind has the only kinds of feeds that have the key; empty if all have it.
	kind string
	// keys are the keys of a struct, in its order.
	keys []*spec
	// elem describes the elements of a list or of a mapping by names.
	elem *spec
	// value is the default, and preset that of a scalar as text; empty without the tag default.
	value  reflect.Value
	preset string
	// bounds are those of a whole number or a duration.
	bounds setting.Bounds
	// text describes a key that only contains other keys, for the JSON Schema.
	text string
	// isDefaults marks a mapping with the keys of a feed but url.
	isDefaults bool
}

// schemaRoot is the spec of the whole configuration.
var schemaRoot = specOf("", reflect.TypeFor[Config](), "")

// specOf returns the spec of path, whose type is t. tag is that of its field.
func specOf(path string, t reflect.Type, tag reflect.StructTag) *spec {
	if t.Kind() == reflect.Pointer {
		s := specOf(path, t.Elem(), tag)
		s.optional = true
		return s
	}
	s := &spec{
		path: path, name: path[strings.LastIndex(path, ".")+1:], typ: t, text: tag.Get("doc"),
		value: setting.Default(t, tag), preset: tag.Get("default"), bounds: setting.BoundsOf(t, tag),
	}
	switch {
	case setting.IsScalar(t):
	case t == reflect.TypeFor[Defaults]():
		s.isDefaults = true
		s.keys = slices.DeleteFunc(specOf(path, reflect.TypeFor[Feed](), "").keys, func(k *spec) bool { return k.name == "url" })
	case t.Kind() == reflect.Struct:
		s.addKeys()
	case t.Kind() == reflect.Map:
		s.elem = specOf(joinPath(path, "*"), t.Elem(), "")
		s.elem.text = tag.Get("each")
	case t.Kind() == reflect.Slice:
		s.elem = specOf(path, t.Elem(), "")
	default:
		panic("config: " + path + " has a type that the configuration cannot have: " + t.String())
	}
	return s
}

// addKeys adds the keys of a struct. Those of an inlined struct are keys of s too.
func (s *spec) addKeys() {
	for _, f := range reflect.VisibleFields(s.typ) {
		tag, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if tag == "-" || len(f.Index) > 1 || !f.IsExported() {
			continue
		}
		var keys []*spec
		if option == "inline" {
			keys = specOf(s.path, f.Type, f.Tag).keys
		} else {
			keys = []*spec{specOf(joinPath(s.path, tag), f.Type, f.Tag)}
		}
		for _, k := range keys {
			k.index = append(slices.Clone(f.Index), k.index...)
			k.kind = f.Tag.Get("kind")
		}
		s.keys = append(s.keys, keys...)
	}
}

// appliesTo reports whether the setting has a meaning for a format.
func (s *spec) appliesTo(f Format) bool {
	return s.kind == "" || f.Kind() == "" || slices.Contains(strings.Fields(s.kind), f.Kind())
}

// isNameMapping reports whether s is a mapping whose keys the operator chooses.
func (s *spec) isNameMapping() bool { return s.elem != nil && s.typ.Kind() == reflect.Map }

// documentedPath returns the path under which docs/configuration.md describes the key: that of a
// feed for a key of defaults, or of the credentials of a list.
func (s *spec) documentedPath() string { return likeFeeds.ReplaceAllString(s.path, "feeds.*.$1") }

var likeFeeds = regexp.MustCompile(`^(?:feed_defaults|feeds_from\.\*\.defaults)\.|^feeds_from\.\*\.(auth\.)`)

// isList reports whether s is a list of scalars.
func (s *spec) isList() bool { return s.typ.Kind() == reflect.Slice }

// isScalar reports whether s is one value, which is written as text.
func (s *spec) isScalar() bool { return s.keys == nil && s.elem == nil }

// isMapping reports whether s has keys or names below it.
func (s *spec) isMapping() bool { return !s.isScalar() && !s.isList() }

// findKey returns the spec of a key of s, or nil.
func (s *spec) findKey(name string) *spec {
	if s.isNameMapping() {
		return s.elem
	}
	for _, k := range s.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

// forEachSetting calls f for every scalar and list at or below s.
func (s *spec) forEachSetting(f func(*spec)) {
	switch {
	case s.isNameMapping():
		s.elem.forEachSetting(f)
	case s.keys == nil:
		f(s)
	}
	for _, k := range s.keys {
		k.forEachSetting(f)
	}
}

// acceptsAnyText reports whether s is text without a form of its own.
func (s *spec) acceptsAnyText() bool {
	return s.typ.Kind() == reflect.String && setting.Words(s.typ) == nil
}

// isSecret reports whether s is a secret or a list of secrets.
func (s *spec) isSecret() bool { return s.typ == secretType || s.isList() && s.elem.typ == secretType }

// itemsHaveCommas reports whether the items of a list can contain commas: those
// of headers do, and values such as cleanup.policy=compact,delete.
func (s *spec) itemsHaveCommas() bool {
	return s.elem.typ == secretType || s.documentedPath() == "feeds.*.to.kafka.config"
}

func (s *spec) keyNames() []string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	return names
}

// nearestKey returns the key of s that was most likely meant, or the path from s
// to a key that has exactly that name.
func (s *spec) nearestKey(key string) string {
	if meant := nearestWord(key, s.keyNames()); meant != "" {
		return meant
	}
	var below string
	s.forEachSetting(func(k *spec) {
		rest := strings.TrimPrefix(k.path, s.path+".")
		if below == "" && k.name == key && !strings.Contains(rest, "*") {
			below = rest
		}
	})
	return below
}

// unknownKey returns the error about a key that s does not have, and the key that was probably meant.
func (s *spec) unknownKey(key string) (text, meant string) {
	if meant = s.nearestKey(key); meant != "" {
		return "unknown key" + didYouMean(meant), meant
	}
	return "unknown key; want one of: " + strings.Join(s.keyNames(), ", "), ""
}

// parse returns the value that text has for s in a layer: text for a scalar, and its items for a list. Only the error
// of an enumeration quotes a word, one of its own.
func (s *spec) parse(text string) (any, error) {
	switch {
	case !utf8.ValidString(text):
		return nil, errors.New("the value is not UTF-8")
	case s.isList():
		return splitList(text, s.itemsHaveCommas())
	}
	v, err := setting.Decode(s.typ, text)
	switch {
	case err == nil:
		err = s.bounds.Check(v)
	case s.isRange():
		err = errors.New(s.expectedValue())
	default:
		err = errors.New(strings.TrimPrefix(err.Error(), s.name+" ") + DidYouMean(text, setting.Words(s.typ)))
	}
	return text, err
}

// fallback returns the value in a layer of a key whose value has an error: its default, so that no check of another key
// sees that of feed_defaults. It is nil if there is none.
func (s *spec) fallback() any {
	switch {
	case s.isMapping():
		return map[string]any{}
	case s.isList():
		return []any{}
	}
	if _, err := s.parse(s.preset); err != nil {
		return nil
	}
	return s.preset
}

// splitList returns the items of a list in the text of a variable. Commas separate
// items unless they are part of items.
func splitList(text string, commasInItems bool) ([]any, error) {
	text = strings.TrimSpace(text)
	list := []any{}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		var items []string
		if yaml.Unmarshal([]byte(text), &items) != nil {
			return nil, errors.New("not a YAML list of text") // yaml's error would quote it
		}
		for _, item := range items {
			list = append(list, item)
		}
		return list, nil
	}
	isSeparator := func(r rune) bool { return r == '\n' || r == ',' && !commasInItems }
	for _, item := range strings.FieldsFunc(text, isSeparator) {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, nil
}

// ParseFormat reads the format of a feed as the configuration writes it.
func ParseFormat(text string) (Format, error) {
	_, err := schemaRoot.findKey("feeds").elem.findKey("format").parse(text)
	return Format(text), err
}

// isRange reports whether s is a whole number with both bounds.
func (s *spec) isRange() bool { return s.typ.Kind() == reflect.Int && s.bounds.Range() }

// expectedValue describes the values of s, for an error.
func (s *spec) expectedValue() string {
	switch {
	case s.isRange():
		return fmt.Sprintf("want a whole number from %v to %v", s.bounds.Least, s.bounds.Most)
	case s.isScalar():
		return setting.Expected(s.typ)
	case s.isNameMapping():
		return fmt.Sprintf("want a mapping of names, such as {main: {%s: ...}}", s.elem.keys[0].name)
	case !s.isList():
		return fmt.Sprintf("want a mapping, such as {%s: ...}", s.keys[0].name)
	case s.elem.typ == secretType:
		return `want a list, such as ["Name: value"]`
	default:
		return "want a list, such as [a, b]"
	}
}
